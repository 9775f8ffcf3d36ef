//! Recordings of an honest program beside hostile ones: hostile commands go in; the trace, the messages and the time of the end come out.

use std::{
    fs,
    io::Write as _,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use trace_format::{Stack, Trace};

use crate::support::{
    Running, events, fixture, klock,
    known_counts::{counts, printed},
};

/// Bound on the end of a recording after one Ctrl-C. Generous, because the machine may be busy; a hang is far longer.
pub(crate) const END: Duration = Duration::from_secs(60);

/// Bound on klock's own memory, and on that of its helper processes.
pub(crate) const MAX_KIB: u64 = 500 << 10;

/// The result of a recording.
pub(crate) struct Outcome {
    /// Contains the trace, which is read when it is needed.
    _directory: TempDir,
    pub(crate) trace: Trace,
    pub(crate) stderr: String,
    /// The time from Ctrl-C to the end.
    pub(crate) ending: Duration,
}

/// Records the honest program beside hostile ones.
#[track_caller]
pub(crate) fn record_beside(hostile: &[String]) -> Outcome {
    record_by(&mut klock(), hostile)
}

#[track_caller]
pub(crate) fn record_by(recorder: &mut Command, hostile: &[String]) -> Outcome {
    let mut honest = Command::new(fixture("known_counts"));
    let honest = Running::start(honest.args(["--wait", "3", "500", "4"]).stdin(Stdio::piped()));
    let mut pids = hostile.to_vec();
    pids.push(honest.line_after("ready "));
    // Hostile programs may come in turn as fast as they can; nothing is lost in large rings.
    recorder.args(["record", "-p", &pids.join(","), "--locks", "pthread,futex", "--ring", "64M"]);
    let ends = |honest: &mut Running| assert!(honest.ends_within(Duration::from_secs(180)));
    let (outcome, stdout) = record_until(ends, recorder, honest);
    assert_eq!(outcome.trace.info().loss.events(), 0, "{}", outcome.stderr);
    let trace = &outcome.trace;
    let counts = counts(&events(trace), &trace.locks().unwrap(), &trace.tasks().unwrap());
    assert_eq!(counts, printed(&stdout), "{}", outcome.stderr);
    assert_named(&outcome, "hammer_hot");
    outcome
}

/// Records until an honest program, which waits for a line on its standard input, is `done`. Returns what it printed, too.
#[track_caller]
pub(crate) fn record_until(
    done: impl FnOnce(&mut Running),
    recorder: &mut Command,
    mut honest: Running,
) -> (Outcome, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let mut recorder = Running::start(recorder.arg("-o").arg(&path).stdin(Stdio::null()));
    recorder.until_recording();
    let klock_pid = recorder.child.id();
    let memory = Memory::watch(klock_pid);
    let mut input = honest.child.stdin.take().unwrap();
    input.write_all(b"go\n").unwrap();
    done(&mut honest);
    let started = Instant::now();
    // SAFETY: the call involves no memory.
    unsafe { libc::kill(klock_pid.cast_signed(), libc::SIGINT) };
    let recorder = recorder.end_within(END);
    let ending = started.elapsed();
    drop(input);
    let honest = honest.end_within(END);
    assert!(honest.status.success());
    assert!(recorder.status.success(), "{}", recorder.stderr);
    let (own, helpers) = memory.peak();
    assert!(own > 0 && own <= MAX_KIB && helpers <= MAX_KIB, "{own} and {helpers} KiB: {}", recorder.stderr);
    let trace = Trace::open(&path).unwrap();
    (Outcome { _directory: directory, trace, stderr: recorder.stderr, ending }, honest.stdout)
}

/// Watches the memory of klock and of its helper processes.
pub(crate) struct Memory {
    stop: Arc<AtomicBool>,
    peaks: Arc<[AtomicU64; 2]>,
    thread: thread::JoinHandle<()>,
}

impl Memory {
    pub(crate) fn watch(pid: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let peaks = Arc::new([const { AtomicU64::new(0) }; 2]);
        let (stopped, found) = (Arc::clone(&stop), Arc::clone(&peaks));
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let klocks = processes_below(pid);
                for (index, id) in klocks.iter().enumerate() {
                    let peak = &found[usize::from(index > 0)];
                    peak.fetch_max(status(*id, "VmHWM:").unwrap_or(0), Ordering::Relaxed);
                }
                thread::sleep(Duration::from_millis(50));
            }
        });
        Self { stop, peaks, thread }
    }

    /// Returns the peaks of klock and of the largest helper in KiB.
    pub(crate) fn peak(self) -> (u64, u64) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        (self.peaks[0].load(Ordering::Relaxed), self.peaks[1].load(Ordering::Relaxed))
    }
}

/// Returns a process and its children.
pub(crate) fn processes_below(pid: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let children = all.filter(|&id| status(id, "PPid:") == Some(u64::from(pid)));
    [pid].into_iter().chain(children).collect()
}

pub(crate) fn status(pid: u32, key: &str) -> Option<u64> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[track_caller]
pub(crate) fn assert_named(outcome: &Outcome, symbol: &str) {
    let stacks = outcome.trace.stacks().unwrap();
    let named = stacks.iter().flat_map(|stack| &stack.frames).any(|f| f.symbol.as_deref() == Some(symbol));
    let in_programs = |stack: &&Stack| {
        stack
            .frames
            .iter()
            .any(|frame| frame.module.as_deref().is_some_and(|module| module.contains("known_")))
    };
    let others: Vec<_> = stacks.iter().filter(in_programs).take(3).collect();
    assert!(named, "no frame has the name {symbol}, but there are {others:?}: {}", outcome.stderr);
}
