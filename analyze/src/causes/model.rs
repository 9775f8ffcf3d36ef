//! A slow and obviously correct model of states: it asks for each nanosecond of each wait for the state of the task that pays.

use std::collections::BTreeMap;

use trace_format::{Event, EventKind, LockId, TaskId, TaskState};

use super::State;
use crate::engine::{Wait, histories, model::Model};

/// Charged ns by lock, owner and begin of the hold, and state.
pub(super) type States = BTreeMap<(LockId, TaskId, i64, State), i64>;

/// Returns the states of all recorded holds. Off-CPU times are recorded if `is_covered`.
pub(super) fn states(events: &[Event], end_ns: i64, is_covered: bool) -> States {
    let model = Model::of(events, end_ns);
    let (payers, begun) = (model.payers(), model.begun());
    let (found, _) = model.intervals();
    let seen = found.waits.iter().zip(begun).filter(|(_, begun)| *begun).map(|(wait, _)| *wait);
    let timeline = Timeline { events, waits: seen.collect(), is_covered };
    let mut states = States::new();
    for (wait, payers) in found.waits.iter().zip(payers) {
        for (ns, payer) in (wait.start_ns..).zip(payers) {
            if let (Some(hold), _) = payer {
                let state = timeline.state(hold.task, ns);
                *states.entry((wait.lock, hold.task, hold.start_ns, state)).or_default() += 1;
            }
        }
    }
    states
}

/// Everything that defines the state of a task.
struct Timeline<'a> {
    events: &'a [Event],
    /// Those whose begin was seen.
    waits: Vec<Wait>,
    is_covered: bool,
}

impl Timeline<'_> {
    fn state(&self, task: TaskId, ns: i64) -> State {
        let is_open = |wait: &&Wait| wait.task == task && wait.start_ns <= ns && ns < wait.end_ns;
        let waits = self.waits.iter().filter(is_open);
        let is_idle = |wait: &Wait| histories::kind(wait.lock).is_idle();
        let kinds: Vec<bool> = waits.map(is_idle).collect();
        if kinds.contains(&false) {
            return State::Lock;
        }
        if kinds.contains(&true) {
            return State::Idle;
        }
        // The rows of the task around this instant, with no loss between them.
        let Some(next) = self.events.iter().position(|event| event.ts_ns > ns && self.is_row(event, task))
        else {
            return State::Unknown;
        };
        let before = |event: &&Event| self.is_row(event, task) || event.kind == EventKind::Lost;
        let Some(before) = self.events[..next].iter().rev().find(before) else { return State::Unknown };
        if before.kind == EventKind::Lost {
            return State::Unknown;
        }
        let row = &self.events[next];
        let running = if self.is_covered { State::Running } else { State::Unknown };
        if row.kind != EventKind::OffCpu {
            return running;
        }
        let left_ns = (row.ts_ns - row.wait_ns.unwrap_or(0)).max(before.ts_ns);
        if ns < left_ns {
            return running;
        }
        let is_blocked = row.blocked_ns.is_none_or(|blocked_ns| ns < left_ns + blocked_ns);
        match row.state {
            Some(TaskState::Runnable) => State::Preempted,
            _ if !is_blocked => State::Ready,
            Some(TaskState::Uninterruptible) => State::Uninterruptible,
            Some(TaskState::Stopped | TaskState::Traced) => State::Stopped,
            _ => State::Asleep,
        }
    }

    fn is_row(&self, event: &Event, task: TaskId) -> bool {
        event.task == Some(task) && event.kind != EventKind::Lost
    }
}
