//! The replay of a program, which tells the time that it takes.
//!
//! A queue of events in the order of time, rank and task. Of events of one time those come first that free
//! something, then waiters that were woken, then all others. Nothing is random: equal programs and variants
//! have equal results.

use std::{cmp::Reverse, collections::BinaryHeap};

use rustc_hash::FxHashMap;
use trace_format::Mode;

use super::{
    change::Changes,
    locks::LockState,
    processors::{Processors, Switched},
    program::{Action, Program, TaskProgram},
};
use crate::engine::open_list::{Keyed, OpenList};

mod steps;

/// A variant of a replay: what a recording leaves open is chosen in several ways, and the results span the
/// interval of a prediction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Variant {
    /// Nobody overtakes, whatever the kind of the lock.
    pub fifo: bool,
    /// The quartile of hand-off times: 0, 1 or 2.
    pub handoff: usize,
    pub seed: u64,
    /// Whether other programs have processors when they had them in the recording.
    pub others: bool,
}

/// When a lock was taken, first and later ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    count: i64,
    first_ns: i64,
    sum_ns: i128,
}

impl Taken {
    fn add(&mut self, ns: i64) {
        self.first_ns = if self.count == 0 { ns } else { self.first_ns };
        self.count += 1;
        self.sum_ns += i128::from(ns);
    }

    /// The sum of the times from the first acquisition to each other one. Half of it is left if the same
    /// acquisitions come twice as fast.
    pub(super) fn since_first_ns(&self) -> i128 {
        self.sum_ns - i128::from(self.first_ns) * i128::from(self.count)
    }
}

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// The time from the start of the first task to the last step of the last one.
    pub ns: i64,
    /// By lock of the program: all waits for it.
    pub waited_ns: Vec<i64>,
    /// By lock of the program: its acquisitions, but for repeated ones.
    pub(super) taken: Vec<Taken>,
    /// The number of acquisitions at the sites of progress, and the time of the last one.
    pub progress: (u64, i64),
    /// Whether tasks wait for each other at the end, for ever.
    pub is_stuck: bool,
}

/// The rank of an event among the events of one time.
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

impl Keyed for Held {
    type Key = u32;

    fn key(&self) -> u32 {
        self.lock
    }
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
    held: OpenList<Held>,
    /// The number of these locks with another rule for times without a processor.
    pausing: usize,
    /// Sleep that was put off until releases.
    later_ns: i64,
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
pub(crate) fn replay<'p>(
    program: &'p Program,
    changes: &'p Changes,
    variant: Variant,
    progress_sites: &'p [u32],
) -> Replayed {
    let task = |of: &'p TaskProgram| {
        let (next, held, pausing, later_ns, stamp, wanted) = Default::default();
        Task { actions: &of.actions, next, held, pausing, later_ns, phase: Phase::Step, stamp, wanted }
    };
    let tasks: Vec<Task<'p>> = program.tasks.iter().map(task).collect();
    let processors =
        changes.cpus.or(program.cpus).map(|cpus| Processors::new(cpus, program.slice_ns, tasks.len()));
    let (awaiting, meeting) = Default::default();
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
        awaiting,
        meeting,
        processors,
        others: 0,
        result: Replayed {
            waited_ns: vec![0; program.locks.len()],
            taken: vec![Taken::default(); program.locks.len()],
            ..Replayed::default()
        },
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
}

/// Work on processors.
impl Replay<'_> {
    /// Starts work, or waits for a processor.
    fn needs_processor(&mut self, task: usize, ns: i64) {
        let now_ns = self.now_ns;
        let Some(processors) = &mut self.processors else { return };
        let started = processors.needs(task, ns, now_ns);
        self.start(&started);
    }

    /// Ends a part of the work of a task.
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

    /// Lets a task leave its processor.
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

    /// Lets tasks start parts of their work, and notes that others were stopped.
    fn start(&mut self, started: &Switched) {
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
