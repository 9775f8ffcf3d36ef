//! A slow and obviously correct model of states and chains: it asks for each nanosecond of each wait for the task that pays, for the
//! payer of that task's own wait, and so on, and for the state of the last one.

use std::collections::{BTreeMap, BTreeSet};

use trace_format::{Event, EventKind, LockId, TaskId, TaskState};

use crate::engine::{Hold, Wait, histories, model::Model};
use crate::items::State;

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

/// The end of a chain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Root {
    /// The lock, the owner, the begin of the hold and the owner's state.
    Hold(LockId, TaskId, i64, State),
    Owner(LockId, TaskId, State),
    Handoff(LockId),
    Gap(LockId),
    Oneself(LockId),
    Cycle,
    Unknown(LockId),
}

/// Time by root and depth, time that is passed on by lock, owner and begin of the hold, and the lock that the owner waits for; and the time
/// of nested waits.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Chained {
    pub(super) roots: BTreeMap<(Root, u32), i64>,
    pub(super) passed: BTreeMap<(LockId, TaskId, i64, LockId), i64>,
    pub(super) nested_ns: i64,
}

/// Returns the roots of all waits. Off-CPU times are recorded if `is_covered`.
pub(super) fn chains(events: &[Event], end_ns: i64, is_covered: bool) -> Chained {
    let model = Model::of(events, end_ns);
    let (payers, begun, own) = (model.payers(), model.begun(), model.own());
    let (found, _) = model.intervals();
    let mut waits = Vec::new();
    let mut chained = Chained::default();
    for (((wait, payers), begun), own) in found.waits.iter().zip(payers).zip(begun).zip(own) {
        if begun {
            waits.push(ChainWait { wait: *wait, payers, own });
        } else if wait.wait_ns > 0 {
            *chained.roots.entry((Root::Unknown(wait.lock), 1)).or_default() += wait.wait_ns;
        }
    }
    let seen = waits.iter().map(|wait| wait.wait).collect();
    let timeline = Timeline { events, waits: seen, is_covered };
    for first in &waits {
        for ns in first.wait.start_ns..first.wait.end_ns {
            if !std::ptr::eq(first, wait_of(&waits, first.wait.task, ns).unwrap()) {
                chained.nested_ns += 1;
                continue;
            }
            let root = root(&waits, first, ns, &timeline);
            *chained.roots.entry(root).or_default() += 1;
            if let (Payer::Hold(hold), Some(next)) = (first.payer(ns), next(&waits, first, ns)) {
                let key = (hold.lock, hold.task, hold.start_ns, next.wait.lock);
                *chained.passed.entry(key).or_default() += 1;
            }
        }
    }
    chained
}

/// A wait whose begin was seen, with what is known of each nanosecond of it.
struct ChainWait {
    wait: Wait,
    payers: Vec<(Option<Hold>, bool)>,
    own: Vec<bool>,
}

enum Payer {
    Hold(Hold),
    Owner(TaskId),
    Nobody(Root),
}

impl ChainWait {
    fn payer(&self, ns: i64) -> Payer {
        let Wait { lock, owner, start_ns, .. } = self.wait;
        let at = usize::try_from(ns - start_ns).unwrap();
        let Some((hold, free)) = self.payers.get(at) else {
            return owner.map_or(Payer::Nobody(Root::Unknown(lock)), Payer::Owner);
        };
        let has_been_held = || self.payers[..at].iter().any(|(hold, _)| hold.is_some());
        match (hold, owner) {
            (Some(hold), _) => Payer::Hold(*hold),
            (None, Some(owner)) if !has_been_held() => Payer::Owner(owner),
            _ if self.own[at] => Payer::Nobody(Root::Oneself(lock)),
            _ if *free => Payer::Nobody(Root::Handoff(lock)),
            _ => Payer::Nobody(Root::Gap(lock)),
        }
    }
}

/// Returns the wait of a task: the first for a lock, else the first for an idle one.
fn wait_of(waits: &[ChainWait], task: TaskId, ns: i64) -> Option<&ChainWait> {
    let is_open =
        |ChainWait { wait, .. }: &&ChainWait| wait.task == task && wait.start_ns <= ns && ns < wait.end_ns;
    let open = waits.iter().filter(is_open);
    open.min_by_key(|ChainWait { wait, .. }| (histories::kind(wait.lock).is_idle(), wait.start_ns, wait.lock))
}

/// Returns the wait of the task that pays for a wait, if it is for a lock.
fn next<'a>(waits: &'a [ChainWait], wait: &ChainWait, ns: i64) -> Option<&'a ChainWait> {
    let task = match wait.payer(ns) {
        Payer::Hold(hold) => hold.task,
        Payer::Owner(task) => task,
        Payer::Nobody(_) => return None,
    };
    wait_of(waits, task, ns).filter(|next| !histories::kind(next.wait.lock).is_idle())
}

/// Follows the chain of a wait to its end.
fn root(waits: &[ChainWait], first: &ChainWait, ns: i64, timeline: &Timeline<'_>) -> (Root, u32) {
    let mut tasks = BTreeSet::new();
    // In a cycle, each lock and its payer count once.
    let mut locks = BTreeSet::new();
    let mut wait = first;
    loop {
        let lock = wait.wait.lock;
        let (task, hold_ns) = match wait.payer(ns) {
            Payer::Hold(hold) => (hold.task, Some(hold.start_ns)),
            Payer::Owner(task) => (task, None),
            Payer::Nobody(root) => return (root, locks.len() as u32 + 1),
        };
        locks.insert((lock, task, hold_ns));
        if !tasks.insert(task) {
            return (Root::Cycle, locks.len() as u32);
        }
        match (next(waits, wait, ns), hold_ns) {
            (Some(next), _) => wait = next,
            (None, Some(start_ns)) => {
                let root = Root::Hold(lock, task, start_ns, timeline.state(task, ns));
                return (root, locks.len() as u32);
            }
            (None, None) => {
                return (Root::Owner(lock, task, timeline.state(task, ns)), locks.len() as u32);
            }
        }
    }
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
