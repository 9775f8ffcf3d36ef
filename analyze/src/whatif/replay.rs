//! The replay of a program: its steps and the rules of its locks enter, the time that it takes leaves.
//!
//! A queue of events in the order of time, rank and task. Of events of one time those come first that free something, then waiters that were
//! woken, then all others. Nothing is random: equal programs and variants have equal results.

use std::{cmp::Reverse, collections::BinaryHeap};

use rustc_hash::FxHashMap;
use trace_format::Mode;

use super::{
    change::Changes,
    locks::LockState,
    processors::Processors,
    program::{Action, Program, QueueOrder},
};

/// A choice among what the recording leaves open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Variant {
    /// Nobody overtakes, whatever the kind of the lock.
    pub(crate) fifo: bool,
    /// The quartile of hand-off times: 0, 1 or 2.
    pub(crate) handoff: usize,
    pub(crate) seed: u64,
    /// Whether other programs have processors when they had them in the recording.
    pub(crate) others: bool,
}

impl Variant {
    /// The variant whose times are predicted: the program alone.
    pub(crate) const MAIN: Self = Self { fifo: false, handoff: 1, seed: 0, others: false };
    /// The variant that is compared with the recording.
    pub(crate) const AS_RECORDED: Self = Self { others: true, ..Self::MAIN };

    /// Returns the variants of an interval, of which only some differ if nothing is drawn or there are no other programs.
    pub(crate) fn all(are_drawn: bool, has_others: bool) -> impl Iterator<Item = Self> {
        let seeds = if are_drawn { 3 } else { 1 };
        let beside = [false, true].into_iter().filter(move |others| has_others || !others);
        let order = |others| [false, true].map(|fifo| (others, fifo)).into_iter();
        let handoff = |(others, fifo)| (0..3).map(move |handoff| (others, fifo, handoff));
        let with =
            move |(others, fifo, handoff)| (0..seeds).map(move |seed| Self { fifo, handoff, seed, others });
        beside.flat_map(order).flat_map(handoff).flat_map(with)
    }
}

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replayed {
    /// The time from the start of the first task to the last step of the last one.
    pub(crate) ns: i64,
    /// By lock of the program: all waits for it.
    pub(crate) waited_ns: Vec<i64>,
    /// The number of acquisitions at the sites of progress, and the time of the last one.
    pub(crate) progress: (u64, i64),
    /// Whether tasks wait for each other at the end, for ever.
    pub(crate) is_stuck: bool,
}

/// The rank of an event among those of one time.
const FREES: u8 = 0;
const WOKEN: u8 = 1;
const OTHER: u8 = 2;
/// The rank of a change of the processors of other programs, and its number in place of a task.
const PROCESSORS: u8 = 3;
const NO_TASK: u32 = u32::MAX;

/// Time, rank, task, and the number of events of the task that were taken back.
type Due = Reverse<(i64, u8, u32, u32)>;

/// A lock that a task holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    lock: u32,
    /// The lock of the replay: a shard.
    target: usize,
    mode: Mode,
    site: u32,
    /// Acquisitions less releases.
    depth: u32,
}

/// The meaning of the next event of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The next step is due.
    Step,
    /// A part of its work is done.
    Working,
    /// It was woken and tries to take a lock.
    Trying(usize),
    Done,
}

#[derive(Debug)]
struct Task<'a> {
    actions: &'a [Action],
    next: usize,
    held: Vec<Held>,
    phase: Phase,
    stamp: u32,
    /// The acquisition that it waits for, and since when.
    wanted: Option<(Held, i64)>,
}

/// A running replay.
pub(super) struct Replay<'a> {
    program: &'a Program,
    changes: &'a Changes,
    variant: Variant,
    progress_sites: &'a [u32],
    now_ns: i64,
    tasks: Vec<Task<'a>>,
    locks: Vec<LockState>,
    /// By lock of the program: the number of its acquisitions.
    acquired: Vec<u64>,
    due: BinaryHeap<Due>,
    signalled: Vec<bool>,
    /// The tasks that wait for a signal.
    awaiting: FxHashMap<u32, Vec<u32>>,
    /// By round of a barrier: the tasks that wait for it.
    meeting: FxHashMap<u32, Vec<u32>>,
    processors: Option<Processors>,
    /// The number of changes of the processors of other programs so far.
    others: usize,
    result: Replayed,
}

/// Replays a program. `progress_sites` are sorted.
pub(crate) fn replay(
    program: &Program,
    changes: &Changes,
    variant: Variant,
    progress_sites: &[u32],
) -> Replayed {
    let tasks: Vec<Task<'_>> = program
        .tasks
        .iter()
        .map(|task| Task {
            actions: &task.actions,
            next: 0,
            held: Vec::new(),
            phase: Phase::Step,
            stamp: 0,
            wanted: None,
        })
        .collect();
    let processors =
        changes.cpus.or(program.cpus).map(|cpus| Processors::new(cpus, program.slice_ns, tasks.len()));
    let mut replay = Replay {
        program,
        changes,
        variant,
        progress_sites,
        now_ns: 0,
        tasks,
        locks: (0..changes.lock_count).map(|_| LockState::default()).collect(),
        acquired: vec![0; program.locks.len()],
        due: BinaryHeap::new(),
        signalled: vec![false; program.signals],
        awaiting: FxHashMap::default(),
        meeting: FxHashMap::default(),
        processors,
        others: 0,
        result: Replayed { waited_ns: vec![0; program.locks.len()], ..Replayed::default() },
    };
    for (at, task) in program.tasks.iter().enumerate() {
        let rank = replay.rank(at);
        replay.push(at, task.start_ns, rank);
    }
    replay.expect_others();
    replay.run();
    replay.result
}

impl Replay<'_> {
    fn run(&mut self) {
        while let Some(Reverse((ns, _, task, stamp))) = self.due.pop() {
            if task == NO_TASK {
                self.now_ns = ns;
                self.others_change();
                continue;
            }
            let task = task as usize;
            if self.tasks[task].stamp != stamp {
                continue;
            }
            self.now_ns = ns;
            match self.tasks[task].phase {
                Phase::Step => self.steps(task),
                Phase::Working => self.part_done(task),
                Phase::Trying(lock) => self.tries(task, lock),
                Phase::Done => {}
            }
        }
        self.result.is_stuck = self.tasks.iter().any(|task| task.phase != Phase::Done);
    }

    fn push(&mut self, task: usize, ns: i64, rank: u8) {
        let stamp = self.tasks[task].stamp;
        self.due.push(Reverse((ns, rank, task as u32, stamp)));
    }

    /// Returns the rank of the next step of a task.
    fn rank(&self, task: usize) -> u8 {
        let task = &self.tasks[task];
        match task.actions.get(task.next) {
            None | Some(Action::Release { .. } | Action::Signal(_)) => FREES,
            _ => OTHER,
        }
    }

    /// Lets a task take its next step at this time.
    fn step_at(&mut self, task: usize, ns: i64) {
        self.tasks[task].phase = Phase::Step;
        let rank = self.rank(task);
        self.push(task, ns, rank);
    }

    /// Takes steps of a task until its next one is not the next event.
    fn steps(&mut self, task: usize) {
        loop {
            if !self.step(task) {
                return;
            }
            let next = (self.now_ns, self.rank(task), task as u32, self.tasks[task].stamp);
            if self.due.peek().is_some_and(|Reverse(due)| *due < next) {
                return self.push(task, next.0, next.1);
            }
        }
    }

    /// Takes the next step of a task. Returns whether the one after it is due at once.
    fn step(&mut self, task: usize) -> bool {
        let Some(action) = self.tasks[task].actions.get(self.tasks[task].next).copied() else {
            self.end(task);
            return false;
        };
        self.tasks[task].next += 1;
        match action {
            Action::Work(ns) => self.work(task, ns),
            Action::Sleep(ns) => self.sleep(task, ns),
            Action::SleepUntil(ns) => self.sleep(task, ns - self.now_ns),
            Action::Ready(ns) => {
                let is_dropped = self.changes_held(task, |change| change.no_preempt);
                self.pause(task, if is_dropped { 0 } else { ns })
            }
            Action::Acquire { lock, site, mode } => self.acquire(task, lock, site, mode),
            Action::Release { lock, mode } => {
                self.release(task, lock, mode);
                true
            }
            Action::Await { signal, object } => self.awaits(task, signal, object),
            Action::Signal(signal) => {
                self.signal(signal);
                true
            }
            Action::Meet { round, object } => self.meet(task, round, object),
        }
    }

    /// Whether a change of a lock that the task holds is like this.
    fn changes_held(&self, task: usize, is_it: impl Fn(&super::change::LockChange) -> bool) -> bool {
        self.tasks[task].held.iter().any(|held| is_it(&self.changes.locks[held.lock as usize]))
    }

    fn work(&mut self, task: usize, ns: i64) -> bool {
        let ns = match self.tasks[task].held.last() {
            Some(held) => self.changes.locks[held.lock as usize].scale(held.site, ns),
            None => ns,
        };
        if ns <= 0 {
            return true;
        }
        let is_free = self.processors.is_none() || self.changes_held(task, |change| change.no_preempt);
        if is_free {
            self.step_at(task, self.now_ns + ns);
            return false;
        }
        self.needs_processor(task, ns);
        false
    }

    fn sleep(&mut self, task: usize, ns: i64) -> bool {
        if ns <= 0 || self.changes_held(task, |change| change.no_sleep) {
            return true;
        }
        self.blocks(task);
        self.pause(task, ns)
    }

    fn pause(&mut self, task: usize, ns: i64) -> bool {
        if ns > 0 {
            self.step_at(task, self.now_ns + ns);
        }
        ns <= 0
    }

    fn acquire(&mut self, task: usize, lock: u32, site: u32, mode: Mode) -> bool {
        let at = lock as usize;
        if self.progress_sites.binary_search(&site).is_ok() {
            self.result.progress = (self.result.progress.0 + 1, self.now_ns);
        }
        if let Some(held) = self.tasks[task].held.iter_mut().find(|held| held.lock == lock) {
            held.depth += 1;
            return true;
        }
        let change = &self.changes.locks[at];
        let number = self.acquired[at];
        self.acquired[at] += 1;
        let mode = change.mode(mode, site, number, self.variant.seed);
        let target = change.target(at, task, number, self.variant.seed);
        let held = Held { lock, target, mode, site, depth: 1 };
        let (capacity, order) = (self.program.locks[at].capacity, self.order(at));
        if change.removed || self.locks[target].takes(mode, capacity, order) {
            self.tasks[task].held.push(held);
            return true;
        }
        self.locks[target].queue(task, mode);
        self.tasks[task].wanted = Some((held, self.now_ns));
        self.blocks(task);
        false
    }

    /// Returns the rules of the queue of a lock.
    fn order(&self, lock: usize) -> QueueOrder {
        let is_fifo = self.variant.fifo || self.changes.locks[lock].fifo;
        if is_fifo { QueueOrder::Fifo } else { self.program.locks[lock].order }
    }

    /// A woken waiter tries to take its lock.
    fn tries(&mut self, task: usize, target: usize) {
        let Some((held, since_ns)) = self.tasks[task].wanted else { return };
        let lock = held.lock as usize;
        let (capacity, order) = (self.program.locks[lock].capacity, self.order(lock));
        let takes = self.locks[target].tries(task, held.mode, capacity, order);
        if takes {
            self.result.waited_ns[lock] += self.now_ns - since_ns;
            self.tasks[task].wanted = None;
            self.tasks[task].held.push(held);
        }
        self.wake(target, lock);
        if takes {
            self.tasks[task].phase = Phase::Step;
            let rank = self.rank(task);
            self.push(task, self.now_ns, rank);
        }
    }

    fn release(&mut self, task: usize, lock: u32, mode: Mode) {
        let held = &mut self.tasks[task].held;
        let at = held.iter().rposition(|held| held.lock == lock && held.mode == mode);
        let Some(at) = at.or_else(|| held.iter().rposition(|held| held.lock == lock)) else { return };
        held[at].depth -= 1;
        if held[at].depth == 0 {
            let held = held.remove(at);
            self.free(held);
        }
    }

    fn free(&mut self, held: Held) {
        let lock = held.lock as usize;
        if !self.changes.locks[lock].removed {
            self.locks[held.target].frees(held.mode);
            self.wake(held.target, lock);
        }
    }

    /// Wakes the waiters of a lock that could take it.
    fn wake(&mut self, target: usize, lock: usize) {
        let facts = &self.program.locks[lock];
        let order = self.order(lock);
        let handoff_ns =
            self.changes.locks[lock].handoff_ns.unwrap_or(facts.handoff_ns[self.variant.handoff]);
        for task in self.locks[target].wakes(facts.capacity, order) {
            self.tasks[task].phase = Phase::Trying(target);
            self.push(task, self.now_ns + handoff_ns, WOKEN);
        }
    }

    fn awaits(&mut self, task: usize, signal: u32, _object: u32) -> bool {
        if self.signalled[signal as usize] {
            return true;
        }
        self.awaiting.entry(signal).or_default().push(task as u32);
        self.blocks(task);
        false
    }

    fn signal(&mut self, signal: u32) {
        self.signalled[signal as usize] = true;
        for task in self.awaiting.remove(&signal).unwrap_or_default() {
            self.resume(task as usize);
        }
    }

    fn meet(&mut self, task: usize, round: u32, _object: u32) -> bool {
        let waiting = self.meeting.entry(round).or_default();
        if waiting.len() + 1 < self.program.rounds[round as usize] as usize {
            waiting.push(task as u32);
            self.blocks(task);
            return false;
        }
        for other in self.meeting.remove(&round).unwrap_or_default() {
            self.resume(other as usize);
        }
        true
    }

    /// Lets a task go on that waited idly, after the time that this takes.
    fn resume(&mut self, task: usize) {
        let of = &self.tasks[task];
        let object = match of.actions.get(of.next - 1) {
            Some(Action::Await { object, .. } | Action::Meet { object, .. }) => *object as usize,
            _ => return,
        };
        self.step_at(task, self.now_ns + self.program.latency_ns[object]);
    }

    /// Ends a task, and what it still holds.
    fn end(&mut self, task: usize) {
        self.tasks[task].phase = Phase::Done;
        self.result.ns = self.result.ns.max(self.now_ns);
        while let Some(held) = self.tasks[task].held.pop() {
            self.free(held);
        }
        self.blocks(task);
    }

    // Processors.

    /// Starts work, or waits for a processor.
    fn needs_processor(&mut self, task: usize, ns: i64) {
        let now_ns = self.now_ns;
        let Some(processors) = &mut self.processors else { return };
        let started = processors.needs(task, ns, now_ns);
        self.start(&started);
    }

    /// A part of the work of a task is done.
    fn part_done(&mut self, task: usize) {
        let now_ns = self.now_ns;
        let Some(processors) = &mut self.processors else { return };
        let (is_done, started) = processors.part_done(task, now_ns);
        self.start(&started);
        if is_done {
            self.tasks[task].phase = Phase::Step;
            self.steps(task);
        }
    }

    /// A task leaves its processor.
    fn blocks(&mut self, task: usize) {
        let now_ns = self.now_ns;
        let Some(processors) = &mut self.processors else { return };
        let started = processors.leaves(task, now_ns);
        self.start(&started);
    }

    /// Adds the next change of the processors of other programs to the queue of events.
    fn expect_others(&mut self) {
        if self.variant.others
            && self.processors.is_some()
            && let Some((ns, _)) = self.program.others.get(self.others)
        {
            self.due.push(Reverse((*ns.max(&self.now_ns), PROCESSORS, NO_TASK, 0)));
        }
    }

    fn others_change(&mut self) {
        let now_ns = self.now_ns;
        let Some((_, count)) = self.program.others.get(self.others).copied() else { return };
        let Some(processors) = &mut self.processors else { return };
        let switched = processors.others_have(count, now_ns);
        self.start(&switched);
        self.others += 1;
        self.expect_others();
    }

    /// Tasks start parts of their work, and others were stopped.
    fn start(&mut self, started: &super::processors::Switched) {
        for task in started.stopped.iter().copied() {
            self.tasks[task].stamp += 1;
        }
        for (task, until_ns, is_last) in started.started.iter().copied() {
            self.tasks[task].phase = Phase::Working;
            let rank = if is_last { self.rank(task) } else { OTHER };
            self.push(task, until_ns, rank);
        }
    }
}
