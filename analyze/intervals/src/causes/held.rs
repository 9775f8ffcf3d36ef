//! The states of tasks during their own holds, whether or not other tasks wait for these.
//!
//! ```text
//! 100 A acquire m
//! 180 A offcpu, preempted for 60 ns
//! 200 A release m                      the hold of m: 40 ns running, 60 ns preempted
//! ```
//!
//! The time of a task with an open hold is added up by state, row by row. The states of a hold are the
//! difference of these sums at its end and at its start, so a row costs the same however many holds are open.

use trace_format::LockId;

use super::state::{StatePart, TaskIndex};
use crate::{
    engine::open_list::{Keyed, OpenList},
    items::{ByState, Hold, Item, Sink, State},
};

/// The holds of all tasks.
#[derive(Debug, Default)]
pub(super) struct HeldTimes {
    tasks: Vec<TaskHolds>,
    /// Tasks that may have an open hold.
    holding: Vec<TaskIndex>,
}

#[derive(Debug, Default)]
struct TaskHolds {
    /// The time with an open hold, by state, up to the last row.
    spent: ByState,
    until_ns: i64,
    open: OpenList<OpenHold>,
    /// Holds that other tasks ended after the last row, with their states up to that row.
    ended: Vec<(Hold, ByState)>,
    is_holding: bool,
}

#[derive(Debug)]
struct OpenHold {
    lock: LockId,
    start_ns: i64,
    /// The sums at the start.
    spent: ByState,
}

impl Keyed for OpenHold {
    type Key = LockId;

    fn key(&self) -> LockId {
        self.lock
    }
}

impl TaskHolds {
    /// Adds the time up to `to_ns`, and sends the holds that ended in it.
    fn settle(&mut self, to_ns: i64, parts: &[StatePart; 3], receiver: &mut impl Sink) {
        for (hold, mut states) in self.ended.drain(..) {
            add(&mut states, self.until_ns, hold.end_ns, parts);
            receiver.push(Item::Held(&hold, &states));
        }
        if !self.open.is_empty() {
            add(&mut self.spent, self.until_ns, to_ns, parts);
        }
        self.until_ns = to_ns;
    }
}

/// Adds the time between two instants by state.
fn add(sums: &mut ByState, mut from_ns: i64, to_ns: i64, parts: &[StatePart; 3]) {
    for part in parts {
        let until_ns = part.until_ns.min(to_ns);
        if until_ns > from_ns {
            sums[part.state as usize] += until_ns - from_ns;
            from_ns = until_ns;
        }
    }
}

impl HeldTimes {
    /// Whether the state of a task counts up to its next row.
    #[inline]
    pub(super) fn has(&self, task: TaskIndex) -> bool {
        self.tasks.get(task as usize).is_some_and(|task| !task.open.is_empty() || !task.ended.is_empty())
    }

    /// Adds the time of a task up to its row at `ts_ns`.
    pub(super) fn row(
        &mut self,
        task: TaskIndex,
        ts_ns: i64,
        parts: &[StatePart; 3],
        receiver: &mut impl Sink,
    ) {
        if let Some(task) = self.tasks.get_mut(task as usize) {
            task.settle(ts_ns, parts, receiver);
        }
    }

    /// A hold began at the last row of its task.
    pub(super) fn acquired(&mut self, index: TaskIndex, hold: &Hold) {
        if self.tasks.len() <= index as usize {
            self.tasks.resize_with(index as usize + 1, TaskHolds::default);
        }
        let task = &mut self.tasks[index as usize];
        if !std::mem::replace(&mut task.is_holding, true) {
            self.holding.push(index);
        }
        if task.open.is_empty() {
            task.until_ns = hold.start_ns;
        }
        // A further acquisition within a hold is no start.
        if hold.acquisitions == 1 {
            let Hold { lock, start_ns, .. } = *hold;
            task.open.push(OpenHold { lock, start_ns, spent: task.spent });
        }
    }

    /// A hold ended, perhaps after the last row of its task.
    pub(super) fn ended(&mut self, task: TaskIndex, hold: &Hold, receiver: &mut impl Sink) {
        let mut states = ByState::default();
        let Some(task) = self.tasks.get_mut(task as usize) else {
            return receiver.push(Item::Held(hold, &states));
        };
        let is_it = |at: &usize| task.open.get(*at).is_some_and(|open| open.start_ns == hold.start_ns);
        let found = task.open.of(hold.lock).find(is_it);
        let Some(open) = found.and_then(|at| task.open.remove(at)) else {
            return receiver.push(Item::Held(hold, &states));
        };
        for (state, (now, before)) in states.iter_mut().zip(task.spent.iter().zip(open.spent)) {
            *state = now - before;
        }
        if hold.end_ns > task.until_ns {
            task.ended.push((*hold, states));
        } else {
            receiver.push(Item::Held(hold, &states));
        }
    }

    /// Adds the time of all tasks up to `now_ns`: no further row follows, or a loss comes first. `state`
    /// gives the state of a task since its last row.
    pub(super) fn end(&mut self, now_ns: i64, state: impl Fn(TaskIndex) -> State, receiver: &mut impl Sink) {
        for index in std::mem::take(&mut self.holding) {
            let (parts, task) =
                (StatePart::whole(now_ns, state(index), Default::default()), &mut self.tasks[index as usize]);
            task.settle(now_ns, &parts, receiver);
            task.is_holding = false;
        }
    }
}
