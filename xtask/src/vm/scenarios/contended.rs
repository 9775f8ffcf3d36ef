//! Records the waits of a busy guest. The reports made in the guest and on the host must be equal.

use std::collections::BTreeMap;

use anyhow::Result;
use trace_format::{EventKind, LockKind, Trace};

use crate::process::Run;
use crate::vm::scenario::{Files, Finding, NOW, Place, Scenario, Setting, last_line, thousands};

pub(super) const SCENARIO: Scenario =
    Scenario { name: "waits", place: Place::Everywhere, seconds: |_| SECONDS, script, check };

const SECONDS: u32 = 480;
/// The most recordings; the last one begins after half of the time at the latest.
const ATTEMPTS: u32 = 5;

/// The load of these scenarios, in a process group of its own.
pub(super) const LOAD: &str = "setsid nice -n 10 stress-ng --quiet --temp-path $WORK --futex 1 --mmap 2 --mmap-bytes 4m --pipe 1 --switch 1 --dentry 2 --dentries 64";

/// A shell function that waits until klock ends, and lets the group of processes `$load` run only while klock has anything
/// attached, from the first probe to the last. What klock does before and afterwards is its own alone, and takes several times as
/// long beside four busy processors that one or two emulate. The group is stopped at the end.
pub(super) const LOADED: &str = r#"
loaded() {
    is_running=unknown
    while [ -d /proc/$1 ]; do
        if ls -l /proc/$1/fd 2> /dev/null | grep -q -e bpf_link -e perf_event; then wanted=yes; else wanted=no; fi
        if [ $wanted != $is_running ]; then
            if [ $wanted = yes ]; then kill -CONT -$load; else kill -STOP -$load; fi
            is_running=$wanted
        fi
        sleep 1
    done
    kill -STOP -$load
}
"#;

const PART: &str = "waits";
const KERNEL_KINDS: [&str; 7] =
    ["mutex", "rwsem", "spinlock", "rwlock", "percpu_rwsem", "rtmutex", "semaphore"];

/// Without contention tracepoints, waits are part of the full recording. On a slow machine few tasks run in its seconds: it is
/// made again if no lock of the kernel was waited for.
fn script(setting: &Setting) -> String {
    let depth = if setting.contention() { "--contended-only" } else { "--locks kernel,futex" };
    let seconds = if setting.short { 3 } else { 8 };
    format!(
        "{NOW}\n\
         {LOADED}\n\
         begun=$(now)\n\
         for attempt in $(seq {ATTEMPTS}); do\n\
         {LOAD} --timeout 200 > load.log 2>&1 &\n\
         load=$!\n\
         sleep 2\n\
         klock record -a {depth} -d {seconds}s -f -o t.parquet > record 2>&1 &\n\
         ours=$!\n\
         loaded $ours; wait $ours; echo $? > record.status\n\
         kill -INT $load; kill -CONT -$load; wait $load\n\
         grep -qx 0 record.status || break\n\
         klock analyze report t.parquet --format csv > guest.csv 2> report.log; echo $? > report.status\n\
         awk -F, '$4 > 0 && /,({kinds}),/ {{ found = 1 }} END {{ exit !found }}' guest.csv && break\n\
         test $(($(now) - begun)) -lt {enough} || break\n\
         done\n",
        enough = SECONDS / 2,
        kinds = KERNEL_KINDS.join("|"),
    )
}

fn check(files: &Files, setting: &Setting, finding: &mut Finding) -> Result<()> {
    let status = files.status("record.status")?;
    if status != 0 {
        finding
            .faults
            .push(format!("klock record ended with {status}: {}", last_line(&files.text("record"))));
        return Ok(());
    }
    let path = files.path("t.parquet");
    let here = Run::new(&setting.klock, &["analyze", "report", "--format", "csv"]).arg(&path).read()?;
    let there = files.text("guest.csv");
    finding.must(files.status("report.status")? == 0, || {
        format!("the report failed there: {}", files.text("report.log"))
    });
    finding.must(here == there, || "the report made here is not the one made there".to_owned());
    let trace = Trace::open(&path)?;
    let kinds: Vec<LockKind> = trace.locks()?.into_iter().map(|lock| lock.kind).collect();
    let mut waits: BTreeMap<&str, u64> = BTreeMap::new();
    for batch in trace.events()? {
        let batch = batch?;
        let waited =
            batch.iter().filter(|e| e.kind == EventKind::Acquire && e.wait_ns.is_some_and(|ns| ns > 0));
        for lock in waited.filter_map(|event| event.lock) {
            if let Some(kind) = usize::try_from(lock.0).ok().and_then(|at| kinds.get(at)) {
                *waits.entry(kind.as_str()).or_default() += 1;
            }
        }
    }
    finding.must(KERNEL_KINDS.iter().any(|kind| waits.contains_key(kind)), || {
        "no kernel lock was waited for".to_owned()
    });
    let lost = trace.info().loss.events();
    for kind in KERNEL_KINDS.into_iter().chain(["futex"]) {
        finding.figure(PART, kind, waits.get(kind).map_or_else(|| "-".to_owned(), |n| thousands(*n)));
    }
    finding.figure(PART, "events", thousands(trace.event_count()));
    finding.figure(PART, "lost", thousands(lost));
    finding.figure(PART, "report here and there", if here == there { "equal" } else { "**differ**" });
    Ok(())
}
