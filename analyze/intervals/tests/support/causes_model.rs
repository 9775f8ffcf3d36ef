//! A slow and obviously correct model of states and chains: it asks for each nanosecond of each wait for the
//! task that pays, for the payer of that task's own wait, and so on, and for the state of the last one.

#![allow(clippy::unwrap_used, reason = "only tests call this")]

use std::collections::{BTreeMap, BTreeSet};

use trace_format::{Event, EventKind, LockId, TaskId, TaskState};

use crate::engine::{Hold, Wait, histories, model::Model};
use crate::items::{ByState, State};

/// Charged ns by lock, owner and begin of the hold, and state.
pub type States = BTreeMap<(LockId, TaskId, i64, State), i64>;

/// Returns the states of all recorded holds. Off-CPU times are recorded if `is_covered`.
pub fn states(events: &[Event], end_ns: i64, is_covered: bool) -> States {
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

/// Returns the time of each hold by the state of its task, whether or not others wait. Off-CPU times are
/// recorded if `is_covered`.
pub fn held(events: &[Event], end_ns: i64, is_covered: bool) -> Vec<(Hold, ByState)> {
    let model = Model::of(events, end_ns);
    let begun = model.begun();
    let (found, _) = model.intervals();
    let seen = found.waits.iter().zip(begun).filter(|(_, begun)| *begun).map(|(wait, _)| *wait);
    let timeline = Timeline { events, waits: seen.collect(), is_covered };
    let of = |hold: Hold| {
        let mut states = ByState::default();
        (hold.start_ns..hold.end_ns).for_each(|ns| states[timeline.state(hold.task, ns) as usize] += 1);
        (hold, states)
    };
    found.holds.into_iter().map(of).collect()
}

/// The party that pays for a nanosecond of a wait, and the state of its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paid {
    Hold(Hold, State),
    Owner(State),
    /// No hold of another task is recorded.
    Nobody,
    Unknown,
}

/// Returns who pays for each nanosecond of each wait. Off-CPU times are recorded if `is_covered`.
pub fn payments(events: &[Event], end_ns: i64, is_covered: bool) -> Vec<(Wait, Vec<Paid>)> {
    let model = Model::of(events, end_ns);
    let waits = chain_waits(&model);
    let seen = waits.iter().flatten().map(|wait| wait.wait).collect();
    let timeline = Timeline { events, waits: seen, is_covered };
    let (found, _) = model.intervals();
    let paid = |(wait, seen): (&Wait, &Option<ChainWait>)| {
        let of = |ns: i64| match seen.as_ref().map(|seen| seen.payer(ns)) {
            Some(Payer::Hold(hold)) => Paid::Hold(hold, timeline.state(hold.task, ns)),
            Some(Payer::Owner(task)) => {
                let own = wait_of(waits.iter().flatten(), task, ns);
                Paid::Owner(timeline.owner_state(task, ns, wait.lock, own))
            }
            Some(Payer::Nobody(Root::Unknown(_))) | None => Paid::Unknown,
            Some(Payer::Nobody(_)) => Paid::Nobody,
        };
        (*wait, (wait.start_ns..wait.start_ns + wait.wait_ns).map(of).collect())
    };
    found.waits.iter().zip(&waits).map(paid).collect()
}

/// Returns the waits with what is known of them; `None` of a wait whose begin was not seen.
fn chain_waits(model: &Model) -> Vec<Option<ChainWait>> {
    let (payers, begun, own) = (model.payers(), model.begun(), model.own());
    let (found, _) = model.clone().intervals();
    let all = found.waits.iter().zip(payers).zip(begun).zip(own);
    all.map(|(((wait, payers), begun), own)| begun.then_some(ChainWait { wait: *wait, payers, own }))
        .collect()
}

/// The end of a chain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Root {
    /// The lock, the owner, the begin of the hold and the owner's state.
    Hold(LockId, TaskId, i64, State),
    Owner(LockId, TaskId, State),
    Handoff(LockId),
    Gap(LockId),
    Oneself(LockId),
    Cycle,
    Unknown(LockId),
}

/// Time by root, depth and whether the wait has another payer itself; the most waits at one time by root, and
/// by root and depth; time that is passed on by lock, owner and begin of the hold, and the lock that the
/// owner waits for; and the time of nested waits.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Chained {
    pub roots: BTreeMap<(Root, u32, bool), i64>,
    pub waiters: BTreeMap<(Root, Option<u32>), i64>,
    pub passed: BTreeMap<(LockId, TaskId, i64, LockId), i64>,
    pub nested_ns: i64,
}

/// Returns the roots of all waits. Off-CPU times are recorded if `is_covered`.
pub fn chains(events: &[Event], end_ns: i64, is_covered: bool) -> Chained {
    let model = Model::of(events, end_ns);
    let all = chain_waits(&model);
    let (found, _) = model.intervals();
    let mut waits = Vec::new();
    let mut chained = Chained::default();
    // By instant, root, the first task of a cycle, and depth.
    let mut open: BTreeMap<(i64, Root, Option<TaskId>, Option<u32>), i64> = BTreeMap::new();
    let mut add_open = |ns: i64, end: &ChainEnd| {
        for depth in [None, Some(end.depth)] {
            *open.entry((ns, end.root.clone(), end.cycle, depth)).or_default() += 1;
        }
    };
    for (wait, seen) in found.waits.iter().zip(all) {
        if let Some(seen) = seen {
            waits.push(seen);
        } else if wait.wait_ns > 0 {
            *chained.roots.entry((Root::Unknown(wait.lock), 1, false)).or_default() += wait.wait_ns;
            let end = ChainEnd { root: Root::Unknown(wait.lock), cycle: None, depth: 1 };
            (wait.start_ns..wait.end_ns).for_each(|ns| add_open(ns, &end));
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
            let end = chain_end(&waits, first, ns, &timeline);
            add_open(ns, &end);
            let next = next(&waits, first, ns);
            // In a cycle no payer is the end.
            let is_received = end.cycle.is_none() && next.is_some();
            *chained.roots.entry((end.root, end.depth, is_received)).or_default() += 1;
            if let (Payer::Hold(hold), Some(next)) = (first.payer(ns), next) {
                let key = (hold.lock, hold.task, hold.start_ns, next.wait.lock);
                *chained.passed.entry(key).or_default() += 1;
            }
        }
    }
    for ((_, root, _, depth), waits) in open {
        let most = chained.waiters.entry((root, depth)).or_default();
        *most = waits.max(*most);
    }
    chained
}

/// The end of the chain of a wait: the root, the first task of the cycle if it is one, and the number of
/// locks.
struct ChainEnd {
    root: Root,
    cycle: Option<TaskId>,
    depth: u32,
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
fn wait_of<'a>(
    waits: impl IntoIterator<Item = &'a ChainWait>,
    task: TaskId,
    ns: i64,
) -> Option<&'a ChainWait> {
    let is_open =
        |ChainWait { wait, .. }: &&ChainWait| wait.task == task && wait.start_ns <= ns && ns < wait.end_ns;
    let open = waits.into_iter().filter(is_open);
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

/// Follows the chain of a wait to its end. A lock counts once if its holder waits for it itself, and once in
/// a cycle.
fn chain_end(waits: &[ChainWait], first: &ChainWait, ns: i64, timeline: &Timeline<'_>) -> ChainEnd {
    // The locks of the chain with their payers.
    let mut links: Vec<(LockId, TaskId, Option<i64>)> = Vec::new();
    let changes = |locks: &[LockId]| locks.windows(2).filter(|pair| pair[0] != pair[1]).count() as u32;
    let locks = |links: &[(LockId, TaskId, Option<i64>)], last: LockId| -> Vec<LockId> {
        links.iter().map(|(lock, ..)| *lock).chain([last]).collect()
    };
    let mut wait = first;
    loop {
        let lock = wait.wait.lock;
        let (task, hold_ns) = match wait.payer(ns) {
            Payer::Hold(hold) => (hold.task, Some(hold.start_ns)),
            Payer::Owner(task) => (task, None),
            Payer::Nobody(root) => {
                return ChainEnd { root, cycle: None, depth: 1 + changes(&locks(&links, lock)) };
            }
        };
        let again = links.iter().position(|(_, other, _)| *other == task);
        links.push((lock, task, hold_ns));
        if let Some(again) = again {
            let cycle = &links[again + 1..];
            let before: Vec<_> = links.iter().copied().take_while(|link| !cycle.contains(link)).collect();
            let in_cycle: BTreeSet<LockId> = cycle.iter().map(|(lock, ..)| *lock).collect();
            let entry = links[before.len()].0;
            let depth = in_cycle.len() as u32 + changes(&locks(&before, entry));
            let cycle = cycle.iter().map(|(_, task, _)| *task).min();
            return ChainEnd { root: Root::Cycle, cycle, depth };
        }
        match (next(waits, wait, ns), hold_ns) {
            (Some(next), _) => wait = next,
            (None, hold_ns) => {
                let own = wait_of(waits, task, ns);
                let root = match hold_ns {
                    Some(start_ns) => Root::Hold(lock, task, start_ns, timeline.state(task, ns)),
                    None => Root::Owner(lock, task, timeline.owner_state(task, ns, lock, own)),
                };
                return ChainEnd { root, cycle: None, depth: 1 + changes(&locks(&links, lock)) };
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
    /// Returns the state of a task that only the word of `lock` named as its owner. If it waits for the lock
    /// itself, it has released it, unseen.
    fn owner_state(&self, task: TaskId, ns: i64, lock: LockId, own: Option<&ChainWait>) -> State {
        if own.is_some_and(|own| own.wait.lock == lock) { State::Unknown } else { self.state(task, ns) }
    }

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
        let before = self.events[..next].iter().rev().find(before);
        let before_ns = before.map_or(i64::MIN, |before| before.ts_ns);
        let row = &self.events[next];
        let is_known = self.is_covered && before.is_some_and(|before| before.kind != EventKind::Lost);
        let running = if is_known { State::Running } else { State::Unknown };
        if row.kind != EventKind::OffCpu {
            return running;
        }
        let left_ns = (row.ts_ns - row.wait_ns.unwrap_or(0)).max(before_ns);
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
