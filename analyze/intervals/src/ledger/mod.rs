//! The ledger: how long the tasks of a trace lived, and how much of that time is in its rows, whatever
//! sources and rights it had.
//!
//! ```text
//! alive 100 ms = waits for locks 2 + polling 0 + undecided waits 0 + idle waits 40 + asleep elsewhere 5 + ready 1 + ran 50 + unknown 2
//! ```
//!
//! Each stretch between two rows of a task has one state, so the parts add up to the lives of all tasks
//! exactly. The first of these states that applies counts: a wait for a lock is open; an undecided wait; an
//! idle wait; the task polls, from its second failed try for a lock until it gets the lock; the task was off
//! its CPU; it ran, if all off-CPU times are on record. Any other stretch is unknown, also after the last row
//! of a task that did not end, and across a loss. If only the creation of a thread is on record, its
//! life is unknown, too.
//!
//! Without all off-CPU times, the unknown time of a process is taken for time in which it ran, up to the
//! processor time that the kernel counted for it. A wait in which a thread spins has some of that processor
//! time, so the threads ran at most for so long.
//!
//! A task of another program that only woke a recorded one is in the trace and not in the ledger.

use std::{cmp::Reverse, collections::BTreeMap};

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;
use trace_format::{Event, EventKind, LockId, LockKind, StackId, Syscall, TaskId, TaskRow, TaskState};

use crate::{
    engine::PAUSE_NS,
    input::{Input, names::purposes::Purpose},
};
use output::error::AnalyzeError;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

/// The time of all tasks by what they did, in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// The lives of all tasks within the recording. The other times add up to it.
    pub alive_ns: i64,
    /// Waits for locks.
    pub locks_ns: i64,
    /// Waits for what may be a lock.
    pub undecided_ns: i64,
    /// Idle waits.
    pub idle_ns: i64,
    /// Those of them in which a scheduler had nothing to run, while its tasks may have waited for locks of
    /// their own.
    pub scheduler_ns: i64,
    /// From the second failed try for a lock until the task got it.
    pub polling_ns: i64,
    /// Sleep outside of waits.
    pub asleep_ns: i64,
    /// The same by system call, where it is known.
    pub asleep_in: BTreeMap<Syscall, i64>,
    /// Ready to run, without a CPU.
    pub ready_ns: i64,
    pub ran_ns: i64,
    pub unknown_ns: i64,
}

/// The largest share of unknown time, in per cent, with which the rest says where the time went.
const UNKNOWN_PERCENT: i64 = 10;

/// The least share, in per cent, that is worth looking at.
const LEAST_PERCENT: i64 = 1;

/// System calls in which tasks wait for locks. Sleep in them outside of waits is for locks that are not
/// recorded: locks of files, semaphores of System V, futexes without the source of futexes, and futexes of
/// io_uring.
const LOCKING: [&str; 7] =
    ["flock", "fcntl", "semop", "semtimedop", "futex", "futex_waitv", "io_uring_enter"];

/// System calls in which tasks sleep for a time, also between tries for a lock; and the least share, in per
/// cent, that counts.
const NAPPING: [&str; 2] = ["clock_nanosleep", "nanosleep"];
const NAPS_PERCENT: i64 = 10;

impl Ledger {
    /// Adds up the time of all tasks of a trace.
    ///
    /// # Errors
    ///
    /// The trace cannot be read.
    pub fn of(input: &Input<'_>) -> Result<Self, AnalyzeError> {
        let info = input.trace.info();
        let names = &input.names;
        let purpose = |lock, stack| names.purposes().of(lock, stack);
        let is_thread = |lock| names.lock(lock).is_some_and(|lock| lock.kind == LockKind::Thread);
        let covers_all = input.has_off_cpu()?;
        let mut last_ns = info.clocks_end.monotonic_ns;
        let mut book = Book::new(names.tasks(), input.selection.start_ns, covers_all);
        input.every_event(|event| {
            last_ns = last_ns.max(event.ts_ns);
            book.add(event, &purpose);
            if let Some(lock) = event.lock.filter(|lock| is_thread(*lock)) {
                book.add_thread(event, lock);
            }
        })?;
        book.add_unseen(names.tasks(), last_ns);
        let closed = book.close(last_ns);
        // Waits of goroutines are waits for locks where they are recorded.
        let scheduler_ns = if info.source_of(LockKind::GoMutex).is_some() { 0 } else { closed.scheduler_ns };
        Ok(Self { scheduler_ns, ..closed })
    }

    /// Adds the time of the tasks of another trace.
    pub fn merge(&mut self, other: Self) {
        let sums = [
            (&mut self.alive_ns, other.alive_ns),
            (&mut self.locks_ns, other.locks_ns),
            (&mut self.undecided_ns, other.undecided_ns),
            (&mut self.idle_ns, other.idle_ns),
            (&mut self.scheduler_ns, other.scheduler_ns),
            (&mut self.polling_ns, other.polling_ns),
            (&mut self.asleep_ns, other.asleep_ns),
            (&mut self.ready_ns, other.ready_ns),
            (&mut self.ran_ns, other.ran_ns),
            (&mut self.unknown_ns, other.unknown_ns),
        ];
        sums.into_iter().for_each(|(sum, ns)| *sum = sum.saturating_add(ns));
        for (call, ns) in other.asleep_in {
            let sum = self.asleep_in.entry(call).or_default();
            *sum = sum.saturating_add(ns);
        }
    }

    /// Returns the system calls in which tasks slept for locks that are not recorded, for a share of time
    /// that counts, longest first.
    pub fn unrecorded(&self) -> Vec<Syscall> {
        let is_locking = |call: &Syscall| LOCKING.contains(&&*call.name());
        let mut calls: Vec<(Syscall, i64)> = self.asleep_in.iter().map(|(call, ns)| (*call, *ns)).collect();
        calls.retain(|(call, ns)| is_locking(call) && self.percent(*ns) >= LEAST_PERCENT);
        calls.sort_by_key(|(_, ns)| Reverse(*ns));
        calls.into_iter().map(|(call, _)| call).collect()
    }

    /// Whether tasks sleep for a time for a share of time that counts. SQLite does so until it gets the lock
    /// of a file.
    pub fn has_naps(&self) -> bool {
        let naps = self.asleep_in.iter().filter(|(call, _)| NAPPING.contains(&&*call.name()));
        self.percent(naps.map(|(_, ns)| *ns).fold(0, i64::saturating_add)) >= NAPS_PERCENT
    }

    fn percent(&self, ns: i64) -> i64 {
        ns.saturating_mul(100) / self.alive_ns.max(1)
    }

    /// Whether nearly all time is known, and hardly any is in waits that may be for locks.
    pub fn is_closed(&self) -> bool {
        let share = |ns: i64, percent: i64| ns.saturating_mul(100) < self.alive_ns.saturating_mul(percent);
        self.unrecorded().is_empty()
            && !self.has_naps()
            && !self.has_tasks_of_its_own()
            && share(self.unknown_ns, UNKNOWN_PERCENT)
            && share(self.undecided_ns.saturating_add(self.polling_ns), LEAST_PERCENT)
    }

    /// Whether tasks of a runtime may have waited for locks of their own, for a share of time that counts.
    pub fn has_tasks_of_its_own(&self) -> bool {
        self.percent(self.scheduler_ns) >= UNKNOWN_PERCENT
    }

    /// Whether tasks waited longer for what may be a lock than for all locks.
    pub fn may_be_of_another_lock(&self) -> bool {
        self.undecided_ns > self.locks_ns && !self.is_closed()
    }

    /// Returns the parts that are at least one per cent, largest first: `ran 58 %, asleep elsewhere 40 % (38
    /// % in flock)`.
    pub fn shares(&self) -> String {
        let mut parts = [
            ("waits for locks", self.locks_ns),
            ("undecided waits", self.undecided_ns),
            ("idle waits", self.idle_ns),
            ("polling with failed tries", self.polling_ns),
            ("asleep elsewhere", self.asleep_ns),
            ("ready without a CPU", self.ready_ns),
            ("ran", self.ran_ns),
            ("not seen", self.unknown_ns),
        ];
        parts.sort_by_key(|(_, ns)| Reverse(*ns));
        let counts = |ns: i64| self.percent(ns) >= LEAST_PERCENT;
        let most = self.asleep_in.iter().max_by_key(|(_, ns)| **ns).filter(|(_, ns)| counts(**ns));
        let most = most.map(|(call, ns)| format!(" ({} % in {})", self.percent(*ns), call.name()));
        let word = |(what, ns): &(&str, i64)| {
            let most = most.as_deref().filter(|_| *what == "asleep elsewhere").unwrap_or_default();
            format!("{what} {} %{most}", self.percent(*ns))
        };
        let words: Vec<String> = parts.iter().filter(|(_, ns)| counts(*ns)).map(word).collect();
        words.join(", ")
    }
}

/// The tasks of a ledger so far.
struct Book {
    covers_all: bool,
    start_ns: i64,
    tasks: FxHashMap<TaskId, TaskTime>,
    sums: Ledger,
    /// Threads by the lock of their end: the creator, and the times of creation and end.
    threads: FxHashMap<LockId, (TaskId, i64, Option<i64>)>,
    /// The processor time of processes, unless what ran is known from off-CPU times.
    cpu_ns: FxHashMap<i32, i64>,
}

/// A task whose time is known up to `last_ns`.
struct TaskTime {
    /// Its process; 0 if that is not on record.
    pid: i32,
    parent: Option<TaskId>,
    /// Whether it has a row that is not a wake-up of another task.
    is_recorded: bool,
    last_ns: i64,
    unknown_ns: i64,
    exit_ns: Option<i64>,
    /// Open waits.
    waits: Vec<(LockId, Purpose)>,
    /// Locks that it tried to get: when it did last, and how often.
    tried: Vec<(LockId, i64, u32)>,
    held: FxHashSet<LockId>,
}

impl TaskTime {
    fn new(last_ns: i64) -> Self {
        let (waits, tried, held) = (Vec::new(), Vec::new(), FxHashSet::default());
        let (pid, parent, is_recorded, unknown_ns, exit_ns) = (0, None, false, 0, None);
        Self { pid, parent, is_recorded, last_ns, unknown_ns, exit_ns, waits, tried, held }
    }
}

impl Book {
    fn new(tasks: &[TaskRow], start_ns: i64, covers_all: bool) -> Self {
        let time = |task: &TaskRow| {
            let last_ns = task.start_ns.unwrap_or(start_ns).max(start_ns);
            let TaskRow { id, pid, parent, exit_ns, .. } = *task;
            (id, TaskTime { pid, parent, exit_ns, ..TaskTime::new(last_ns) })
        };
        let mut cpu_ns: FxHashMap<i32, i64> = FxHashMap::default();
        for task in tasks.iter().filter(|_| !covers_all) {
            // A process that started another program has one time for both, on the later row.
            let ns = cpu_ns.entry(task.pid).or_default();
            *ns = ns.saturating_add(task.process_cpu_ns.unwrap_or(0).max(0));
        }
        let (tasks, threads) = (tasks.iter().map(time).collect(), FxHashMap::default());
        Self { covers_all, start_ns, tasks, sums: Ledger::default(), threads, cpu_ns }
    }

    fn add(&mut self, event: &Event, purpose: &impl Fn(LockId, Option<StackId>) -> Purpose) {
        if event.kind == EventKind::Lost {
            return self.lose(event.ts_ns);
        }
        let Some(id) = event.task else { return };
        let task = self.tasks.entry(id).or_insert_with(|| TaskTime::new(self.start_ns));
        task.is_recorded |= event.kind != EventKind::Wake;
        if !task.is_recorded {
            return;
        }
        let ns = event.ts_ns.saturating_sub(task.last_ns).max(0);
        task.last_ns = task.last_ns.max(event.ts_ns);
        let ended = event.lock.filter(|_| matches!(event.kind, EventKind::Acquire | EventKind::Abandon));
        // A wait of which only the end and the length are known.
        let unseen = ended.filter(|lock| !task.waits.iter().any(|(waits, _)| waits == lock));
        let unseen_ns = event.wait_ns.filter(|_| unseen.is_some()).unwrap_or(0).clamp(0, ns);
        task.stretch(ns - unseen_ns, event, self.covers_all, &mut self.sums);
        if let Some(lock) = unseen.filter(|_| unseen_ns > 0) {
            task.waits.push((lock, purpose(lock, event.stack)));
            task.stretch(unseen_ns, event, self.covers_all, &mut self.sums);
        }
        match (event.kind, event.lock) {
            (EventKind::Wait, Some(lock)) => task.waits.push((lock, purpose(lock, event.stack))),
            // A task that has the lock asks with a try whether it has it.
            (EventKind::TryFail, Some(lock)) if !task.held.contains(&lock) => {
                match task.tried.iter_mut().find(|(tried, ..)| *tried == lock) {
                    Some((_, last_ns, tries)) if event.ts_ns.saturating_sub(*last_ns) <= PAUSE_NS => {
                        (*last_ns, *tries) = (event.ts_ns, *tries + 1);
                    }
                    Some(run) => *run = (lock, event.ts_ns, 1),
                    None => task.tried.push((lock, event.ts_ns, 1)),
                }
            }
            (EventKind::Acquire | EventKind::Abandon, Some(lock)) => {
                task.waits.retain(|(waits, _)| *waits != lock);
                task.tried.retain(|(tried, ..)| *tried != lock);
                if event.kind == EventKind::Acquire && purpose(lock, event.stack) == Purpose::Lock {
                    task.held.insert(lock);
                }
            }
            (EventKind::Release, Some(lock)) => drop(task.held.remove(&lock)),
            _ => {}
        }
    }

    /// Adds a row of the end of a thread.
    fn add_thread(&mut self, event: &Event, lock: LockId) {
        match (event.kind, event.task) {
            (EventKind::Init, Some(creator)) => {
                self.threads.insert(lock, (creator, event.ts_ns, None));
            }
            (EventKind::Acquire | EventKind::Wake, _) => {
                if let Some((.., end_ns)) = self.threads.get_mut(&lock) {
                    *end_ns = end_ns.or(Some(event.ts_ns));
                }
            }
            _ => {}
        }
    }

    /// Adds the lives of threads that are no tasks of the trace: their creator created more threads than are
    /// known to be its own.
    fn add_unseen(&mut self, tasks: &[TaskRow], last_ns: i64) {
        let mut created: Vec<(TaskId, i64, i64)> = self
            .threads
            .values()
            .map(|(creator, ns, end_ns)| (*creator, *ns, end_ns.unwrap_or(last_ns)))
            .collect();
        created.sort_unstable();
        for threads in created.chunk_by(|(one, ..), (other, ..)| one == other) {
            let is_own = |task: &&TaskRow| task.parent == Some(threads[0].0) && task.tid != task.pid;
            let known = tasks.iter().filter(is_own).count();
            // Which ones are not known is not known: those that lived shortest are taken for them.
            let mut lives: Vec<i64> =
                threads.iter().map(|(_, from, to)| to.saturating_sub(*from).max(0)).collect();
            lives.sort_unstable();
            let unseen = lives.iter().take(lives.len().saturating_sub(known));
            if let Some(creator) = self.tasks.get_mut(&threads[0].0) {
                creator.unknown_ns = unseen.fold(creator.unknown_ns, |sum, ns| sum.saturating_add(*ns));
            }
        }
    }

    /// Nothing that is open is known any more.
    fn lose(&mut self, ts_ns: i64) {
        for task in self.tasks.values_mut() {
            let ns = ts_ns.saturating_sub(task.last_ns).max(0);
            (task.last_ns, task.unknown_ns) = (task.last_ns.max(ts_ns), task.unknown_ns.saturating_add(ns));
            task.waits.clear();
            task.tried.clear();
            task.held.clear();
        }
    }

    /// Returns the processes with a recorded task, and those that they started.
    fn recorded_processes(&self) -> FxHashSet<i32> {
        let recorded = self.tasks.values().filter(|task| task.is_recorded && task.pid != 0);
        let mut processes: FxHashSet<i32> = recorded.map(|task| task.pid).collect();
        let parent = |task: &TaskTime| task.parent.and_then(|parent| self.tasks.get(&parent));
        loop {
            let is_new = |task: &&TaskTime| {
                task.pid != 0
                    && !processes.contains(&task.pid)
                    && parent(task).is_some_and(|parent| processes.contains(&parent.pid))
            };
            let children: Vec<i32> = self.tasks.values().filter(is_new).map(|task| task.pid).collect();
            if children.is_empty() {
                return processes;
            }
            processes.extend(children);
        }
    }

    fn close(mut self, end_ns: i64) -> Ledger {
        let processes = self.recorded_processes();
        let mut unknown_ns: FxHashMap<i32, i64> = FxHashMap::default();
        for task in self.tasks.values_mut() {
            if !task.is_recorded && !processes.is_empty() && !processes.contains(&task.pid) {
                continue;
            }
            let ns = task.exit_ns.unwrap_or(end_ns).saturating_sub(task.last_ns).max(0);
            let covers_all = self.covers_all && task.exit_ns.is_some();
            task.stretch(ns, &Event::new(end_ns, EventKind::Init, 0), covers_all, &mut self.sums);
            let sum = unknown_ns.entry(task.pid).or_default();
            *sum = sum.saturating_add(task.unknown_ns);
        }
        for (pid, ns) in unknown_ns {
            let ran_ns = self.cpu_ns.get(&pid).map_or(0, |cpu_ns| ns.min(*cpu_ns));
            self.sums.ran_ns = self.sums.ran_ns.saturating_add(ran_ns);
            self.sums.unknown_ns = self.sums.unknown_ns.saturating_add(ns - ran_ns);
        }
        let Ledger {
            locks_ns,
            undecided_ns,
            idle_ns,
            polling_ns,
            asleep_ns,
            ready_ns,
            ran_ns,
            unknown_ns,
            ..
        } = self.sums.clone();
        let parts = [locks_ns, undecided_ns, idle_ns, polling_ns, asleep_ns, ready_ns, ran_ns, unknown_ns];
        Ledger { alive_ns: parts.iter().sum(), ..self.sums }
    }
}

impl TaskTime {
    /// Whether it tries for a lock again and again.
    fn polls(&self, ts_ns: i64) -> bool {
        let goes_on = |last_ns: i64| ts_ns.saturating_sub(last_ns) <= PAUSE_NS;
        self.tried.iter().any(|(_, last_ns, tries)| *tries > 1 && goes_on(*last_ns))
    }

    /// Adds `ns` that end with a row of the task.
    fn stretch(&mut self, ns: i64, row: &Event, covers_all: bool, sums: &mut Ledger) {
        let waits_for = |is: fn(Purpose) -> bool| self.waits.iter().any(|(_, purpose)| is(*purpose));
        let off_ns = row.wait_ns.filter(|_| row.kind == EventKind::OffCpu).unwrap_or(0).clamp(0, ns);
        if waits_for(|purpose| purpose == Purpose::Lock) {
            sums.locks_ns += ns;
        } else if waits_for(|purpose| purpose == Purpose::Undecided) {
            sums.undecided_ns += ns;
        } else if waits_for(Purpose::is_idle) {
            sums.idle_ns += ns;
            sums.scheduler_ns += if waits_for(|purpose| purpose == Purpose::Scheduler) { ns } else { 0 };
        } else if self.polls(row.ts_ns) {
            sums.polling_ns += ns;
        } else {
            let asleep_ns = match row.state {
                Some(TaskState::Runnable) => 0,
                _ => row.blocked_ns.unwrap_or(off_ns).clamp(0, off_ns),
            };
            sums.asleep_ns += asleep_ns;
            if let Some(call) = row.syscall.filter(|call| asleep_ns > 0 && *call != Syscall::NONE) {
                *sums.asleep_in.entry(call).or_default() += asleep_ns;
            }
            sums.ready_ns += off_ns - asleep_ns;
            let rest = if covers_all { &mut sums.ran_ns } else { &mut self.unknown_ns };
            *rest += ns - off_ns;
        }
    }
}
