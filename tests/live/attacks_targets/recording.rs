//! Recordings of an honest program beside hostile ones: hostile commands go in; the trace, the messages and
//! the time of the end come out.

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
use trace_format::{EventKind, Stack, Trace};

use crate::support::{
    Running, events, fixture, klock,
    known_counts::{counts, printed},
    until,
};

/// Bound on the end of a recording after one Ctrl-C: it ends hangs only.
pub(crate) const END: Duration = Duration::from_secs(300);

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

/// Records the honest program beside hostile ones, given by their PIDs, and by how many of their calls must
/// be in the trace. They call from one of their files after the other.
#[track_caller]
pub(crate) fn record_beside(hostile: &[(&str, usize)]) -> Outcome {
    record_by(klock, hostile)
}

#[track_caller]
pub(crate) fn record_by(recorder: impl Fn() -> Command, hostile: &[(&str, usize)]) -> Outcome {
    until("a recording without loss and with enough hostile calls", || {
        let mut honest = Command::new(fixture("known_counts"));
        let honest = Running::start(honest.args(["--wait", "--stay", "3", "500", "4"]).stdin(Stdio::piped()));
        let mut pids: Vec<String> = hostile.iter().map(|(pid, _)| (*pid).to_owned()).collect();
        pids.push(honest.line_after("ready "));
        let pids = pids.join(",");
        // Hostile programs may come in turn as fast as they can; large rings rarely lose anything.
        let options =
            ["record", "-p", &pids, "--locks", "pthread,futex", "--probes", "uprobe", "--ring", "64M"];
        let made_all = |honest: &mut Running| drop(honest.line_after("COUNT "));
        let (outcome, stdout) = record_until(made_all, recorder().args(options), honest);
        let trace = &outcome.trace;
        let (events, tasks, loss) = (events(trace), trace.tasks().unwrap(), &trace.info().loss);
        let calls = |pid: &str| {
            let of_pid = |id: usize| tasks[id].pid.to_string() == pid;
            let acquired = events.iter().filter(|event| event.kind == EventKind::Acquire);
            acquired.filter(|event| event.task.is_some_and(|task| of_pid(task.0 as usize))).count()
        };
        let is_late = loss.stacks_not_unwound > 0 && !is_named(trace, "hammer_hot");
        if loss.events() > 0 || is_late || hostile.iter().any(|(pid, least)| calls(pid) < *least) {
            return None;
        }
        assert_eq!(counts(&events, &trace.locks().unwrap(), &tasks), printed(&stdout), "{}", outcome.stderr);
        assert_named(&outcome, "hammer_hot");
        Some(outcome)
    })
}

/// Records until an honest program, which waits for a line on its standard input, is `done`. Returns what it
/// printed, too.
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
        let look = move || {
            for (index, id) in processes_below(pid).iter().enumerate() {
                let peak = &found[usize::from(index > 0)];
                peak.fetch_max(status(*id, "VmHWM:").unwrap_or(0), Ordering::Relaxed);
            }
        };
        // On a busy machine klock may end before the thread runs.
        look();
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                look();
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

fn is_named(trace: &Trace, symbol: &str) -> bool {
    let stacks = trace.stacks().unwrap();
    stacks.iter().flat_map(|stack| &stack.frames).any(|frame| frame.symbol.as_deref() == Some(symbol))
}

#[track_caller]
pub(crate) fn assert_named(outcome: &Outcome, symbol: &str) {
    let stacks = outcome.trace.stacks().unwrap();
    let in_programs = |stack: &&Stack| {
        stack
            .frames
            .iter()
            .any(|frame| frame.module.as_deref().is_some_and(|module| module.contains("known_")))
    };
    let others: Vec<_> = stacks.iter().filter(in_programs).take(3).collect();
    let named = is_named(&outcome.trace, symbol);
    assert!(named, "no frame has the name {symbol}, but there are {others:?}: {}", outcome.stderr);
}
