//! Tasks: their open waits, and the waiting that they pay for since their last row.
//!
//! A payer's state is known at its next row. Until then, the number of waits that it pays for is kept as
//! steps. A row settles all of them and forgets them, so a step costs O(1). Memory grows with the steps since
//! the last row of each payer.

use trace_format::{EventRow, LockId, StackId, TaskId};

pub(super) use super::state::TaskIndex;
use super::{held::HeldTimes, state::StatePart};
use crate::{
    items::{Caused, Detail, Item, Payer, Sink, State, Waiters},
    numbers::Numbered,
};

/// The greatest number of steps of a task. Older ones count as unknown.
const MAX_STEPS: usize = 1 << 20;

/// All tasks that waited or had a row.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    all: Numbered<Task>,
    /// Tasks that may have steps.
    paying: Vec<TaskIndex>,
    /// The open holds of all tasks, if a sink asks for their states.
    pub(super) held: HeldTimes,
    /// The number of losses so far, and the time of the last one. No row is known across one.
    age: u32,
    lost_ns: i64,
    /// Whether off-CPU times are recorded.
    pub(super) is_covered: bool,
    /// Steps that count as unknown because there were too many.
    pub(super) steps_cut: u64,
}

#[derive(Debug, Default)]
pub(super) struct Task {
    /// Open waits in the order of their begin.
    pub(super) waits: Vec<OpenWait>,
    /// The queues that it pays for.
    pub(super) pays: Vec<u32>,
    last_row_ns: i64,
    /// The age of the last row; 0 without a row.
    age: u32,
    is_paying: bool,
    /// The waits that it pays for as the root of chains, if those are followed; and, if a sink needs both, as
    /// their payer.
    steps: [Vec<Step>; 2],
    /// The wait that chains go through.
    pub(super) link: Link,
    /// Waits inside that wait whose time would otherwise count.
    pub(super) nested: i64,
}

/// The wait of a task that chains go through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    /// The queue of the wait; `None` without a wait.
    pub(super) queue: Option<u32>,
    /// Whether its time counts.
    pub(super) counts: bool,
    /// Whether the lock is idle: then chains end at the holds of the task.
    pub(super) is_idle: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct OpenWait {
    pub(super) lock: LockId,
    pub(super) start_ns: i64,
    pub(super) stack: Option<StackId>,
    pub(super) owner: Option<TaskId>,
    /// Whether the lock is one that tasks wait for idly.
    pub(super) is_idle: bool,
    /// Whether its time counts.
    pub(super) is_selected: bool,
    /// Its queue, once it is known.
    pub(super) queue: Option<u32>,
}

/// A time during which a payer paid for the same number of waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// Whether off-CPU times of the lock's holders are recorded.
    pub(super) is_covered: bool,
    pub(super) lock: LockId,
    pub(super) payer: Payer,
    /// The number of locks in the chains of the waits.
    pub(super) depth: u32,
    /// Whether the waits themselves have another payer.
    pub(super) is_received: bool,
    pub(super) from_ns: i64,
    pub(super) until_ns: i64,
    pub(super) waits: i64,
    pub(super) waiters: Waiters,
}

impl Task {
    /// Returns the wait that defines its state: the first for a lock, else the first for an idle one.
    pub(super) fn state_wait(&self) -> Option<&OpenWait> {
        self.waits.iter().find(|wait| !wait.is_idle).or(self.waits.first())
    }

    /// Splits the steps by part and forgets them.
    fn settle(&mut self, parts: &[StatePart; 3], receiver: &mut impl Sink) {
        let [steps, direct] = &mut self.steps;
        settle(steps, parts, |caused| receiver.push(Item::Caused(caused)));
        settle(direct, parts, |caused| receiver.push(Item::Direct(caused)));
    }

    fn waiting(&self) -> Option<(State, Detail)> {
        let wait = self.state_wait()?;
        let state = if wait.is_idle { State::Idle } else { State::Lock };
        Some((state, Detail::Lock(wait.lock, wait.stack)))
    }
}

impl Tasks {
    pub(super) fn new(is_covered: bool) -> Self {
        Self { is_covered, age: 1, lost_ns: i64::MIN, ..Self::default() }
    }

    #[inline]
    pub(super) fn index(&mut self, task: TaskId) -> TaskIndex {
        self.all.number(task.0, Task::default)
    }

    pub(super) fn find(&self, task: TaskId) -> Option<TaskIndex> {
        self.all.find(task.0)
    }

    pub(super) fn get(&mut self, index: TaskIndex) -> &mut Task {
        &mut self.all[index]
    }

    /// Adds the time during which a task paid for this number of waits, up to its next row. `is_direct`: for
    /// time that is also followed through chains.
    pub(super) fn pay(&mut self, task: TaskIndex, step: Step, is_direct: bool, receiver: &mut impl Sink) {
        let paying = &mut self.all[task];
        if !paying.is_paying {
            paying.is_paying = true;
            self.paying.push(task);
        }
        if paying.steps[usize::from(is_direct)].len() == MAX_STEPS {
            self.steps_cut += if is_direct { 0 } else { MAX_STEPS as u64 };
            self.settle_unknown(task, receiver);
        }
        self.get(task).steps[usize::from(is_direct)].push(step);
    }

    /// Settles the time since the last row of a task.
    #[inline]
    pub(super) fn row(&mut self, task: TaskIndex, row: &impl EventRow, receiver: &mut impl Sink) {
        let (age, lost_ns, is_covered) = (self.age, self.lost_ns, self.is_covered);
        let (index, task) = (task, &mut self.all[task]);
        let (pays, holds) = (task.steps.iter().any(|steps| !steps.is_empty()), self.held.has(index));
        if pays || holds {
            let parts = match task.waiting() {
                Some((state, detail)) => StatePart::whole(i64::MAX, state, detail),
                None if task.age == age => StatePart::between(task.last_row_ns, row, is_covered),
                // Of the time before its first row, only the sleep that this row tells is known.
                None => StatePart::between(lost_ns, row, false),
            };
            if holds {
                self.held.row(index, row.ts_ns(), &parts, receiver);
            }
            task.settle(&parts, receiver);
        }
        (task.last_row_ns, task.age) = (row.ts_ns(), age);
    }

    /// Settles the time since the last row of every task: no further row follows, or a loss at `now_ns` comes
    /// first.
    pub(super) fn end(&mut self, now_ns: i64, receiver: &mut impl Sink) {
        self.age += 1;
        self.lost_ns = now_ns;
        for task in std::mem::take(&mut self.paying) {
            self.settle_unknown(task, receiver);
            self.get(task).is_paying = false;
        }
        let Self { all, held, .. } = self;
        held.end(now_ns, |task| all[task].waiting().unwrap_or_default().0, receiver);
    }

    fn settle_unknown(&mut self, task: TaskIndex, receiver: &mut impl Sink) {
        let task = self.get(task);
        let (state, detail) = task.waiting().unwrap_or_default();
        task.settle(&StatePart::whole(i64::MAX, state, detail), receiver);
    }
}

/// Splits steps by part, and forgets them. Steps of one payer follow each other, so their times are added up
/// before they leave.
fn settle(steps: &mut Vec<Step>, parts: &[StatePart; 3], mut send: impl FnMut(&Caused)) {
    let key = |step: &Step| (step.lock, step.payer, step.depth, step.is_received);
    for of_payer in steps.chunk_by(|a, b| key(a) == key(b)) {
        let Step { lock, payer, depth, is_received, is_covered, .. } = of_payer[0];
        let mut from_ns = i64::MIN;
        for part in parts {
            let (mut ns, mut waiters) = (0_i64, Waiters::default());
            for step in of_payer {
                let overlap = step.until_ns.min(part.until_ns).saturating_sub(step.from_ns.max(from_ns));
                if overlap > 0 {
                    ns = ns.saturating_add(overlap.saturating_mul(step.waits));
                    waiters = waiters.max(step.waiters);
                }
            }
            if ns > 0 {
                // An owner by the lock word that waits for the lock itself has released it, unseen.
                let (state, detail) = match (payer, part.detail) {
                    (Payer::Owner(_), Detail::Lock(of, _)) if of == lock => (State::Unknown, Detail::None),
                    _ if part.state == State::Running && !is_covered => (State::Unknown, part.detail),
                    (_, detail) => (part.state, detail),
                };
                send(&Caused { lock, payer, depth, is_received, waiters, state: Some(state), detail, ns });
            }
            from_ns = from_ns.max(part.until_ns);
        }
    }
    steps.clear();
}
