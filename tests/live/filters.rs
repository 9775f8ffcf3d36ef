//! Records loads that match a filter only in part: the trace must have what matches and nothing else, and
//! must state what was left out.
//!
//! records the whole machine
//! needs: root, gcc
//! full needs: stress-ng

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use trace_format::{
    Event, EventKind, LockKind, LockRow, TaskRow, Trace,
    run_info::{Loss, RunInfo},
};

mod kinds;
mod locks;
mod names;
mod older_tools;

mod sampling;
mod waits;

use crate::support::{self, Running, events, fixture, klock};

/// Bound on every wait; generous, because the machine may be busy.
const LIMIT: Duration = Duration::from_secs(180);

/// A fixture program that waits for a line before it starts.
struct Program {
    running: Running,
    pid: String,
}

impl Program {
    fn start(program: &Path, arguments: &[&str]) -> Self {
        Self::of(Command::new(program).args(arguments))
    }

    fn of(command: &mut Command) -> Self {
        let running = Running::start(command.stdin(Stdio::piped()));
        let pid = running.line_after("ready ");
        Self { running, pid }
    }

    fn fixture(name: &str, arguments: &[&str]) -> Self {
        Self::start(&fixture(name), arguments)
    }

    fn go(&mut self) {
        self.running.child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    /// Returns the address of a word or mutex, which it prints.
    fn address(&self, name: &str) -> String {
        self.running.line_after(&format!("{name} "))
    }

    fn pid(&self) -> i32 {
        self.pid.parse().unwrap()
    }

    /// Ends its input, and with it the program.
    fn end(mut self) -> support::Ended {
        drop(self.running.child.stdin.take());
        self.running.end_within(LIMIT)
    }
}

/// Records while `act` goes on, which begins once everything is recorded.
fn record(arguments: &[&str], act: impl FnOnce()) -> Recorded {
    try_record(arguments, act).expect("the events of one program fit into the rings")
}

/// As [`record`], for a recording of the whole machine, which may lose events; then returns the losses.
fn try_record(arguments: &[&str], act: impl FnOnce()) -> Result<Recorded, Loss> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let mut recorder = Running::start(klock().args(["record", "-o"]).arg(&path).args(arguments));
    recorder.until_recording();
    act();
    recorder.signal("INT");
    let ended = recorder.end_within(LIMIT);
    assert!(ended.status.success(), "{}", ended.stderr);
    Recorded::read(&path)
}

/// A trace.
struct Recorded {
    info: RunInfo,
    events: Vec<Event>,
    locks: Vec<LockRow>,
    tasks: Vec<TaskRow>,
    /// The output of `klock info`, if klock has it.
    words: Option<String>,
}

impl Recorded {
    /// Returns the losses if events were lost, so that what is missing can't be counted. The kernel skips a
    /// nested run of a program: a spinlock in an interrupt during the program of another.
    fn read(path: &Path) -> Result<Self, Loss> {
        let trace = Trace::open(path).expect("the recorder left a trace");
        let info = trace.info().clone();
        if info.loss.events() != info.loss.recursion_misses {
            return Err(info.loss);
        }
        let events = events(&trace);
        let words =
            cfg!(feature = "analyze").then(|| support::run(klock().arg("info").arg(path)).stdout.clone());
        Ok(Self { info, events, locks: trace.locks().unwrap(), tasks: trace.tasks().unwrap(), words })
    }

    fn lock(&self, event: &Event) -> &LockRow {
        &self.locks[usize::try_from(event.lock.expect("a lock event has a lock").0).unwrap()]
    }

    fn task(&self, event: &Event) -> &TaskRow {
        &self.tasks[usize::try_from(event.task.expect("a lock event has a task").0).unwrap()]
    }

    /// The kinds of the locks that events are about.
    fn kinds(&self) -> BTreeSet<LockKind> {
        self.events.iter().map(|event| self.lock(event).kind).collect()
    }

    /// The kinds of kernel locks.
    fn kernel_kinds(&self) -> BTreeSet<LockKind> {
        self.kinds().into_iter().filter(|kind| kind.is_kernel()).collect()
    }

    /// The processes that events are of.
    fn pids(&self) -> BTreeSet<i32> {
        self.events.iter().map(|event| self.task(event).pid).collect()
    }

    /// The events about the lock at this address, in this process or in the kernel.
    fn of_lock(&self, address: &str) -> Vec<&Event> {
        self.events.iter().filter(|event| self.address(event) == address).collect()
    }

    fn address(&self, event: &Event) -> String {
        format!("{:#x}", self.lock(event).address.expect("these locks have an address"))
    }

    /// Returns the mutex that the readers of `known_mutex` waited for, and the number of waits.
    fn terminal_mutex(&self, pid: i32) -> Option<(String, usize)> {
        let mut waits: BTreeMap<String, usize> = BTreeMap::new();
        let of_mutex = |event: &&Event| {
            event.kind == EventKind::Acquire
                && self.lock(event).kind == LockKind::Mutex
                && self.task(event).pid == pid
        };
        for event in self.events.iter().filter(of_mutex) {
            *waits.entry(self.address(event)).or_default() += 1;
        }
        waits.into_iter().max_by_key(|(_, count)| *count)
    }

    /// Checks that each source of these locks has this limit, in the footer and in the output of `klock
    /// info`.
    #[track_caller]
    fn assert_says(&self, kind: LockKind, limit: &str) {
        let source = self.info.source_of(kind).expect("these locks are recorded");
        assert!(source.limits.iter().any(|said| said.contains(limit)), "no '{limit}' in {source:?}");
        assert!(self.words.as_ref().is_none_or(|words| words.contains(limit)), "{:?}", self.words);
    }

    /// Every kernel wait that began ended, but for those that the recording's end cut off: the last of their
    /// task.
    #[track_caller]
    fn assert_waits_end(&self) {
        let mut open = BTreeMap::new();
        let (mut ended, mut unknown) = (0, 0);
        for event in self.events.iter().filter(|event| self.lock(event).kind.is_kernel()) {
            let idle = self.task(event).tid == 0;
            let key = (event.task.unwrap().0, event.lock.unwrap().0, if idle { event.cpu } else { None });
            match event.kind {
                EventKind::Wait => assert_eq!(open.insert(key, event.ts_ns), None, "a wait within a wait"),
                EventKind::Acquire | EventKind::Abandon if event.wait_ns.is_none() => unknown += 1,
                EventKind::Acquire | EventKind::Abandon => {
                    let begun = open.remove(&key).expect("what ended had begun");
                    assert_eq!(event.wait_ns, Some(event.ts_ns - begun), "{event:?}");
                    ended += 1;
                }
                _ => {}
            }
        }
        assert!(ended > 0, "nothing was recorded");
        for (&(task, _, _), &begun) in &open {
            let later = |event: &&Event| event.task.unwrap().0 == task && event.ts_ns > begun;
            let next = self.events.iter().filter(|event| self.lock(event).kind.is_kernel()).find(later);
            assert!(next.is_none_or(|next| self.may_be_inside(next)), "{next:?} after a wait without end");
        }
        let loss = &self.info.loss;
        assert!(loss.unpaired + unknown <= loss.recursion_misses, "{unknown} without begin, {loss:?}");
    }

    /// Locks that spin are waited for inside other waits.
    fn may_be_inside(&self, event: &Event) -> bool {
        matches!(self.lock(event).kind, LockKind::SpinLock | LockKind::RwLock)
    }
}

/// Starts a load of the whole machine that waits for kernel locks of many kinds.
fn stress() -> Running {
    let mut command = Command::new("stress-ng");
    command.args(["--quiet", "--mmap", "1", "--pipe", "2", "--switch", "2", "--fork", "1"]);
    Running::start(command.args(["--timeout", "60s"]).stdin(Stdio::null()))
}

fn end(mut load: Running) {
    load.signal("INT");
    load.ends_within(Duration::from_secs(180));
}

fn cannot_run_stress() -> Option<&'static str> {
    let stress = Command::new("stress-ng").arg("--version").stdout(Stdio::null()).status();
    if stress.is_ok_and(|status| status.success()) {
        support::cannot_record()
    } else {
        Some("needs stress-ng")
    }
}
