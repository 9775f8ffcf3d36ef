//! Records the waits of a busy guest. The reports made in the guest and on the host must be equal.

use std::collections::BTreeMap;

use anyhow::Result;
use trace_format::{EventKind, LockKind, Trace};

use crate::process::Run;
use crate::vm::scenario::{self, Files, Finding, Place, Scenario, Setting, thousands};

pub(in crate::vm) const SCENARIO: Scenario =
    Scenario { name: "waits", place: Place::Everywhere, seconds: |_| SECONDS, script, check };

const SECONDS: u32 = 480;
/// The most recordings; the last one begins after half of the time at the latest.
const ATTEMPTS: u32 = 5;

const PART: &str = "waits";
const KERNEL_KINDS: [&str; 7] =
    ["mutex", "rwsem", "spinlock", "rwlock", "percpu_rwsem", "rtmutex", "semaphore"];

/// Without contention tracepoints, waits are part of the full recording.
fn script(setting: &Setting) -> String {
    let depth = if setting.contention() { "--contended-only" } else { "--locks kernel,futex" };
    let seconds = if setting.short { 3 } else { 8 };
    let (enough, kinds) = (SECONDS / 2, KERNEL_KINDS.join("|"));
    scenario::script(
        &[
            ("attempts", &ATTEMPTS),
            ("depth", &depth),
            ("seconds", &seconds),
            ("enough", &enough),
            ("kinds", &kinds),
        ],
        include_str!("../guest/waits.sh"),
    )
}

fn check(files: &Files, setting: &Setting, finding: &mut Finding) -> Result<()> {
    if !files.succeeded("record", finding)? {
        return Ok(());
    }
    let path = files.path("t.parquet");
    let here = Run::new(&setting.klock, &["analyze", "report", "--format", "csv"]).arg(&path).read()?;
    let there = files.text("guest.csv");
    files.succeeded("report", finding)?;
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
