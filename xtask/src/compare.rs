//! `cargo xtask compare-perf`: records the same load with perf and klock at the same time, and compares the number of
//! waits of each kind of kernel lock. Both use the contention tracepoints, so they must agree within 1 % and the loss
//! that each reports.
//!
//! A wait counts if it ended while both recorded, by the clock that both use (CLOCK_MONOTONIC). It lasts from the first
//! begin to the end: a mutex has a second begin when it stops spinning and sleeps. Waits of perf's and klock's own
//! processes do not count.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
    process::Command,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use trace_format::{EventKind, Trace};

use crate::{
    harness::{self, Common, Harness, ROOT},
    process::{Run, Running},
    table,
};

/// Compare with perf.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Seconds of each recording.
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    #[command(flatten)]
    common: Common,
}

/// The loads, as shell commands that run until they are killed.
const LOADS: &[(&str, &str)] = &[
    ("stress-ng", "exec timeout 120 stress-ng --quiet --futex 2 --mmap 2 --pipe 2 --switch 2"),
    ("sched messaging", "exec timeout 120 perf bench sched messaging -g 8 -l 1000000"),
];

/// The largest difference that counts as agreement, as a part of the larger number.
const TOLERANCE: f64 = 0.01;

/// The end of a wait for a kernel lock.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ended {
    ts_ns: i64,
    pid: u32,
    kind: &'static str,
}

/// The waits that one tool recorded.
#[derive(Debug, Default)]
struct Seen {
    waits: Vec<Ended>,
    first_ns: i64,
    last_ns: i64,
    lost: u64,
}

/// Records, compares and prints. Returns whether all kinds agree.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let harness = Harness::new("compare-perf", &options.common, &[ROOT, "perf", "stress-ng"])?;
    let mut rows = Vec::new();
    let mut agree = true;
    for (name, load) in LOADS {
        let (perf, klock) = record(&harness, load, options.seconds)?;
        let compared = compare(&perf, &klock);
        ensure!(!compared.is_empty(), "{name}: no wait for a kernel lock while both recorded");
        for line in compared {
            agree &= line.agrees(perf.lost, klock.lost);
            rows.push(line.cells(name, perf.lost, klock.lost));
        }
    }
    let head = ["load", "kind", "perf", "klock", "difference", "perf lost", "klock lost", "within"];
    let verdict = if agree { "All kinds agree." } else { "**Not all kinds agree.**" };
    let text = format!("{}\n{verdict}\n", table::markdown(&head, &rows));
    let command = format!("compare-perf --seconds {}", options.seconds);
    harness.publish(&command, "benchmarks.md", "compare-perf", &text)?;
    Ok(agree)
}

fn record(harness: &Harness, load: &str, seconds: u32) -> Result<(Seen, Seen)> {
    let (trace, data) = (harness.directory.join("trace.parquet"), harness.directory.join("perf.data"));
    let _load = harness::load(load)?;
    thread::sleep(Duration::from_secs(1));
    let options = ["-a", "--locks", "kernel", "--contended-only", "--ring", "16M"];
    let recorder = harness.record(&trace, &options)?;
    let recorder_pid = recorder.pid();
    let mut perf = Command::new("perf");
    perf.args(["lock", "record", "-a", "-q", "-k", "CLOCK_MONOTONIC", "-m", "64M", "-o"]).arg(&data);
    let perf = Running::start(perf.args(["--", "sleep", &seconds.to_string()]))?;
    let own = HashSet::from([recorder_pid, perf.pid()]);
    perf.succeed_within(Duration::from_secs(u64::from(seconds) + 60))?;
    recorder.interrupt()?;
    Ok((of_perf(&data, &own)?, of_klock(&trace, &own)?))
}

/// Reads the waits of perf.data.
fn of_perf(data: &Path, own: &HashSet<u32>) -> Result<Seen> {
    let fields = ["script", "--ns", "--show-lost-events", "-F", "pid,tid,cpu,time,event,trace", "-G", "-i"];
    let text = Run::new("perf", &fields).arg(data).read()?;
    let mut seen = Seen::default();
    let mut open: HashMap<(u32, u32, &str), &'static str> = HashMap::new();
    for line in text.lines() {
        if line.contains("PERF_RECORD_LOST") {
            let number = line.split_whitespace().filter_map(|word| word.parse::<u64>().ok()).next_back();
            seen.lost += number.with_context(|| format!("cannot read the loss from perf script: {line}"))?;
            continue;
        }
        let Some(sample) = Sample::of_line(line) else { continue };
        if seen.first_ns == 0 {
            seen.first_ns = sample.ts_ns;
        }
        seen.last_ns = seen.last_ns.max(sample.ts_ns);
        // The idle tasks of all CPUs have one id.
        let who = (sample.tid, if sample.tid == 0 { sample.cpu } else { 0 }, sample.address);
        match sample.flags {
            Some(flags) => {
                open.entry(who).or_insert(kind_of(flags)?);
            }
            None => {
                if let Some(kind) = open.remove(&who).filter(|_| !own.contains(&sample.pid)) {
                    seen.waits.push(Ended { ts_ns: sample.ts_ns, pid: sample.pid, kind });
                }
            }
        }
    }
    ensure!(seen.first_ns > 0, "perf recorded no contention");
    Ok(seen)
}

/// A line of `perf script`.
#[derive(Debug, PartialEq, Eq)]
struct Sample<'a> {
    pid: u32,
    tid: u32,
    cpu: u32,
    ts_ns: i64,
    address: &'a str,
    /// Only a begin has flags.
    flags: Option<&'a str>,
}

impl<'a> Sample<'a> {
    /// Parses `4987/4987  [000]  3460.344699213: lock:contention_begin: 0xffff8881003c63ec (flags=SPIN)`
    fn of_line(line: &'a str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (pid, tid) = words.next()?.split_once('/')?;
        let cpu = words.next()?.strip_prefix('[')?.strip_suffix(']')?;
        let (seconds, nanos) = words.next()?.strip_suffix(':')?.split_once('.')?;
        let event = words.next()?;
        let address = words.next()?;
        let flags = line.split_once("(flags=").map(|(_, rest)| rest.trim_end().trim_end_matches(')'));
        if !event.starts_with("lock:contention_") || event.contains("begin") != flags.is_some() {
            return None;
        }
        Some(Self {
            pid: pid.parse().ok()?,
            tid: tid.parse().ok()?,
            cpu: cpu.parse().ok()?,
            ts_ns: seconds.parse::<i64>().ok()? * 1_000_000_000 + nanos.parse::<i64>().ok()?,
            address,
            flags,
        })
    }
}

/// Returns the kind of lock for the flags of a begin (`include/trace/events/lock.h`, `LCB_F_*`).
fn kind_of(flags: &str) -> Result<&'static str> {
    let words: HashSet<&str> = flags.split('|').collect();
    let has = |word| words.contains(word);
    Ok(match () {
        () if has("MUTEX") => "mutex",
        () if has("PERCPU") => "percpu_rwsem",
        () if has("RT") && (has("READ") || has("WRITE")) => "rwlock",
        () if has("RT") => "rtmutex",
        () if has("SPIN") && (has("READ") || has("WRITE")) => "rwlock",
        () if has("SPIN") => "spinlock",
        () if has("READ") || has("WRITE") => "rwsem",
        () if flags == "0" || flags.is_empty() || flags == "0x0" => "semaphore",
        () => bail!("perf script: unknown flags {flags}"),
    })
}

/// Reads the waits of a trace.
fn of_klock(path: &Path, own: &HashSet<u32>) -> Result<Seen> {
    let trace = Trace::open(path)?;
    let (locks, tasks) = (trace.locks()?, trace.tasks()?);
    let info = trace.info();
    let mut seen = Seen {
        first_ns: info.clocks_start.monotonic_ns,
        last_ns: info.clocks_end.monotonic_ns,
        lost: info.loss.events(),
        ..Seen::default()
    };
    for batch in trace.events()? {
        for event in batch?.iter() {
            let lock = event.lock.and_then(|id| locks.get(usize::try_from(id.0).ok()?));
            let task = event.task.and_then(|id| tasks.get(usize::try_from(id.0).ok()?));
            let (Some(lock), Some(task)) = (lock, task) else { continue };
            let ends = matches!(event.kind, EventKind::Acquire | EventKind::Abandon);
            let pid = task.pid.cast_unsigned();
            if ends && lock.kind.is_kernel() && !own.contains(&pid) {
                seen.waits.push(Ended { ts_ns: event.ts_ns, pid, kind: lock.kind.as_str() });
            }
        }
    }
    Ok(seen)
}

/// The counts of one kind.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    kind: &'static str,
    perf: u64,
    klock: u64,
}

impl Line {
    fn agrees(&self, perf_lost: u64, klock_lost: u64) -> bool {
        let allowed = TOLERANCE * self.perf.max(self.klock) as f64 + (perf_lost + klock_lost) as f64;
        self.perf.abs_diff(self.klock) as f64 <= allowed
    }

    fn cells(&self, load: &str, perf_lost: u64, klock_lost: u64) -> Vec<String> {
        let percent = 100.0 * (self.klock as f64 - self.perf as f64) / self.perf.max(1) as f64;
        vec![
            load.to_owned(),
            self.kind.to_owned(),
            self.perf.to_string(),
            self.klock.to_string(),
            format!("{percent:+.2} %"),
            perf_lost.to_string(),
            klock_lost.to_string(),
            if self.agrees(perf_lost, klock_lost) { "yes" } else { "**no**" }.to_owned(),
        ]
    }
}

/// Counts by kind over the time that both recorded, less a tenth of a second at either end.
fn compare(perf: &Seen, klock: &Seen) -> Vec<Line> {
    let margin = 100_000_000;
    let window = perf.first_ns.max(klock.first_ns) + margin..perf.last_ns.min(klock.last_ns) - margin;
    let mut counts: BTreeMap<&'static str, (u64, u64)> = BTreeMap::new();
    for wait in perf.waits.iter().filter(|wait| window.contains(&wait.ts_ns)) {
        counts.entry(wait.kind).or_default().0 += 1;
    }
    for wait in klock.waits.iter().filter(|wait| window.contains(&wait.ts_ns)) {
        counts.entry(wait.kind).or_default().1 += 1;
    }
    counts.into_iter().map(|(kind, (perf, klock))| Line { kind, perf, klock }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_perf_script_is_parsed() {
        let line =
            " 4987/4988  [001]  3460.344699213: lock:contention_begin: 0xffff8881003c63ec (flags=SPIN|MUTEX)";
        let sample = Sample::of_line(line).unwrap();
        assert_eq!((sample.pid, sample.tid, sample.cpu, sample.ts_ns), (4987, 4988, 1, 3_460_344_699_213));
        assert_eq!((sample.address, sample.flags), ("0xffff8881003c63ec", Some("SPIN|MUTEX")));
        let end = "    0/0     [000]  3460.346344977:   lock:contention_end: 0xffff8881003c63ec (ret=0)";
        assert_eq!(Sample::of_line(end).unwrap().flags, None);
        assert_eq!(Sample::of_line("'trace' not valid for hardware events. Ignoring."), None);
    }

    #[test]
    fn flags_give_the_kind_of_lock() {
        let kinds = ["SPIN", "SPIN|MUTEX", "MUTEX", "READ", "WRITE|PERCPU", "RT", "SPIN|READ", "0"];
        let expected =
            ["spinlock", "mutex", "mutex", "rwsem", "percpu_rwsem", "rtmutex", "rwlock", "semaphore"];
        assert_eq!(kinds.map(|flags| kind_of(flags).unwrap()), expected);
        assert!(kind_of("PLAID").is_err());
    }

    #[test]
    fn counts_agree_within_one_percent_and_the_loss() {
        let line = Line { kind: "mutex", perf: 1000, klock: 985 };
        assert!(!line.agrees(0, 0));
        assert!(line.agrees(0, 5));
    }
}
