//! Records the same load with perf and klock at the same time, and compares the number of waits of each kind
//! of kernel lock. Both use the contention tracepoints, so they must agree within 1 % and the loss that each
//! reports.
//!
//! A wait counts if it ended while both recorded, by the clock that both use (CLOCK_MONOTONIC). It lasts from
//! the first begin to the end: a mutex has a second begin when it stops spinning and sleeps. Waits of perf's
//! and klock's own processes do not count.
//!
//! records the whole machine
//! needs: root
//! full needs: perf, stress-ng

#![cfg(feature = "record")]

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Range,
    path::Path,
    process::Command,
    time::Duration,
};

use trace_format::EventKind;
use xtask::process::Run;

use crate::support::{Running, cannot_record, klock, most_of, place::Recorded, skip};

const SECONDS: &str = "5";
/// Bound on what hangs.
const LIMIT: Duration = Duration::from_secs(180);

/// The waits that one tool recorded: the end, the process and the kind of each, while it recorded, and the
/// number of lost events.
#[derive(Debug)]
struct Seen {
    waits: Vec<(i64, u32, &'static str)>,
    while_ns: Range<i64>,
    lost: u64,
}

/// Reads the waits from the output of `perf script`.
fn of_perf(text: &str) -> Seen {
    let mut seen = Seen { waits: Vec::new(), while_ns: Range { start: i64::MAX, end: 0 }, lost: 0 };
    let mut open: HashMap<(u32, u32, &str), &'static str> = HashMap::new();
    for line in text.lines() {
        if line.contains("PERF_RECORD_LOST") {
            let mut numbers = line.split_whitespace().rev().filter_map(|word| word.parse::<u64>().ok());
            seen.lost += numbers.next().expect("perf script prints the number of lost events");
            continue;
        }
        let Some(Sample { pid, tid, cpu, ts_ns, address, flags }) = Sample::of_line(line) else { continue };
        seen.while_ns = seen.while_ns.start.min(ts_ns)..seen.while_ns.end.max(ts_ns);
        // The idle tasks of all CPUs have one id.
        let who = (tid, if tid == 0 { cpu } else { 0 }, address);
        match flags {
            Some(flags) => {
                open.entry(who).or_insert_with(|| kind_of(flags));
            }
            None => seen.waits.extend(open.remove(&who).map(|kind| (ts_ns, pid, kind))),
        }
    }
    seen
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
fn kind_of(flags: &str) -> &'static str {
    let words: HashSet<&str> = flags.split('|').collect();
    let has = |word| words.contains(word);
    match () {
        () if has("MUTEX") => "mutex",
        () if has("PERCPU") => "percpu_rwsem",
        () if has("RT") && (has("READ") || has("WRITE")) => "rwlock",
        () if has("RT") => "rtmutex",
        () if has("SPIN") && (has("READ") || has("WRITE")) => "rwlock",
        () if has("SPIN") => "spinlock",
        () if has("READ") || has("WRITE") => "rwsem",
        () if flags == "0" || flags.is_empty() || flags == "0x0" => "semaphore",
        () => panic!("perf script: unknown flags {flags}"),
    }
}

/// Reads the waits of a trace.
fn of_klock(path: &Path) -> Seen {
    let recorded = Recorded::read(path);
    let info = recorded.trace.info();
    let wait = |event: &trace_format::Event| {
        let lock = recorded.lock(event)?;
        let task = recorded.tasks.get(usize::try_from(event.task?.0).ok()?)?;
        let ends = matches!(event.kind, EventKind::Acquire | EventKind::Abandon);
        (ends && lock.kind.is_kernel()).then(|| (event.ts_ns, task.pid.cast_unsigned(), lock.kind.as_str()))
    };
    Seen {
        waits: recorded.events.iter().filter_map(wait).collect(),
        while_ns: info.clocks_start.monotonic_ns..info.clocks_end.monotonic_ns,
        lost: info.loss.events(),
    }
}

/// Counts perf's and klock's waits of each kind over the time that both recorded, less a tenth of a second at
/// either end.
fn counts(perf: &Seen, klock: &Seen, own: [u32; 2]) -> BTreeMap<&'static str, [u64; 2]> {
    const MARGIN_NS: i64 = 100_000_000;
    let window = perf.while_ns.start.max(klock.while_ns.start) + MARGIN_NS
        ..perf.while_ns.end.min(klock.while_ns.end) - MARGIN_NS;
    let mut counts: BTreeMap<&'static str, [u64; 2]> = BTreeMap::new();
    for (at, seen) in [perf, klock].into_iter().enumerate() {
        for (_, _, kind) in
            seen.waits.iter().filter(|(ts_ns, pid, _)| window.contains(ts_ns) && !own.contains(pid))
        {
            counts.entry(kind).or_default()[at] += 1;
        }
    }
    counts
}

/// Returns whether two counts differ by at most 1 % and the number of lost events.
fn agree([perf, klock]: [u64; 2], lost: u64) -> bool {
    perf.abs_diff(klock) as f64 <= 0.01 * perf.max(klock) as f64 + lost as f64
}

/// Records a load, a command of the shell that runs until it is killed, and compares.
#[track_caller]
fn assert_waits_are_those_of_perf(load: &str) {
    use std::os::unix::process::CommandExt as _;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [trace, data] = ["trace.parquet", "perf.data"].map(|name| directory.path().join(name));
    let _load = Running::start(Command::new("sh").args(["-c", load]).process_group(0));
    let options = ["-a", "--locks", "kernel", "--contended-only", "--ring", "16M"];
    let mut recorder = Running::start(klock().args(["record", "--quiet", "-o"]).arg(&trace).args(options));
    recorder.until_recording();
    let mut perf = Command::new("perf");
    perf.args(["lock", "record", "-a", "-q", "-k", "CLOCK_MONOTONIC", "-m", "64M", "-o"]).arg(&data);
    let perf = Running::start(perf.args(["--", "sleep", SECONDS]));
    let own = [recorder.pid(), perf.pid()];
    let ended = perf.end_within(LIMIT);
    assert!(ended.status.success(), "{}", ended.stderr);
    recorder.signal("INT");
    let ended = recorder.end_within(LIMIT);
    assert!(ended.status.success(), "{}", ended.stderr);
    let fields = ["script", "--ns", "--show-lost-events", "-F", "pid,tid,cpu,time,event,trace", "-G", "-i"];
    let text = Run::new("perf", &fields).arg(&data).read().expect("perf script reads its file");
    let (perf, klock) = (of_perf(&text), of_klock(&trace));
    let lost = perf.lost + klock.lost;
    let counts = counts(&perf, &klock, own);
    assert!(!counts.is_empty(), "no wait for a kernel lock while both recorded");
    assert!(
        counts.values().all(|&counts| agree(counts, lost)),
        "{load}: perf and klock have {counts:?}, {lost} lost"
    );
}

#[test]
#[ignore = "full: compares with perf, which must have the same waits"]
fn waits_for_kernel_locks_are_as_many_as_those_of_perf() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    for load in [
        "exec timeout 120 stress-ng --quiet --futex 2 --mmap 2 --pipe 2 --switch 2",
        "exec timeout 120 perf bench sched messaging -g 8 -l 1000000",
    ] {
        most_of(3, 1, || assert_waits_are_those_of_perf(load));
    }
}

#[test]
fn a_line_of_perf_script_is_parsed() {
    let line =
        " 4987/4988  [001]  3460.344699213: lock:contention_begin: 0xffff8881003c63ec (flags=SPIN|MUTEX)";
    let sample = Sample::of_line(line).expect("a sample");
    assert_eq!((sample.pid, sample.tid, sample.cpu, sample.ts_ns), (4987, 4988, 1, 3_460_344_699_213));
    assert_eq!((sample.address, sample.flags), ("0xffff8881003c63ec", Some("SPIN|MUTEX")));
    let end = "    0/0     [000]  3460.346344977:   lock:contention_end: 0xffff8881003c63ec (ret=0)";
    assert_eq!(Sample::of_line(end).expect("a sample").flags, None);
    assert_eq!(Sample::of_line("'trace' not valid for hardware events. Ignoring."), None);
}

#[test]
fn flags_give_the_kind_of_lock() {
    let kinds = ["SPIN", "SPIN|MUTEX", "MUTEX", "READ", "WRITE|PERCPU", "RT", "SPIN|READ", "0"];
    let expected = ["spinlock", "mutex", "mutex", "rwsem", "percpu_rwsem", "rtmutex", "rwlock", "semaphore"];
    assert_eq!(kinds.map(kind_of), expected);
}

#[test]
fn counts_agree_within_one_percent_and_the_loss() {
    assert!(!agree([1000, 985], 0));
    assert!(agree([1000, 985], 5));
}
