//! A lock in a program that is being built, and how it is handed over.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use trace_format::{LockId, LockKind, Mode};

use crate::{
    context::Context,
    whatif::program::{LockFacts, QueueOrder},
};

/// The acquisitions of a lock so far.
#[derive(Debug, Default)]
pub(super) struct Lock {
    pub(super) sites: Vec<u32>,
    pub(super) handoffs_ns: Vec<i64>,
    /// The tasks that wait for it, the first one first; the one that was woken, and when; the times until
    /// such tasks ran.
    pub(super) waiting: VecDeque<u32>,
    pub(super) woken: Option<(u32, i64)>,
    pub(super) wakeups_ns: Vec<i64>,
    pub(super) waited_ns: i64,
    pub(super) released_ns: Option<i64>,
    pub(super) released_exclusively_ns: Option<i64>,
    pub(super) holders: Holders,
    pub(super) was_held: bool,
}

/// The tasks that hold a lock, by index, each with the mode of its first hold.
#[derive(Debug, Default)]
pub(super) struct Holders {
    modes: FxHashMap<u32, Mode>,
    /// The number of tasks that hold the lock exclusively now, and the greatest number so far.
    exclusive: u32,
    most_exclusive: u32,
}

impl Holders {
    pub(super) fn add(&mut self, task: u32, mode: Mode) {
        self.modes.insert(task, mode);
        self.exclusive += u32::from(mode == Mode::Exclusive);
        self.most_exclusive = self.most_exclusive.max(self.exclusive);
    }

    pub(super) fn remove(&mut self, task: u32) {
        self.exclusive -= u32::from(self.modes.remove(&task) == Some(Mode::Exclusive));
    }

    /// Returns the other tasks that hold it in one of these modes.
    pub(super) fn others(&self, task: u32, is_one: impl Fn(Mode) -> bool) -> Vec<u32> {
        let exclusive = self.exclusive as usize;
        let has_any =
            exclusive > 0 && is_one(Mode::Exclusive) || self.modes.len() > exclusive && is_one(Mode::Shared);
        let others = self.modes.iter().filter(|(other, mode)| **other != task && is_one(**mode));
        if has_any { others.map(|(other, _)| *other).collect() } else { Vec::new() }
    }
}

impl Lock {
    /// Returns the facts about the lock with this id.
    pub(super) fn facts(mut self, id: LockId, context: &Context<'_>) -> LockFacts {
        // The release before an acquisition need not be the one that woke the waiter, if others overtake.
        let handoffs_ns =
            if self.wakeups_ns.is_empty() { &mut self.handoffs_ns } else { &mut self.wakeups_ns };
        handoffs_ns.sort_unstable();
        let quantile = |quarter: usize| {
            let last = handoffs_ns.len().saturating_sub(1);
            handoffs_ns.get(last * quarter / 4).copied().unwrap_or(0)
        };
        let order = match (context.kind)(id) {
            Some(LockKind::SpinLock) => QueueOrder::Fifo,
            Some(LockKind::RwSem | LockKind::PercpuRwSem) => QueueOrder::WritersFirst,
            Some(kind) if kind.is_kernel() => QueueOrder::KeepsPlace,
            _ => QueueOrder::Overtaking,
        };
        let counts = !context.rules.excludes(id, Mode::Exclusive);
        LockFacts {
            lock: id,
            handoff_ns: [1, 2, 3].map(quantile),
            capacity: if counts { self.holders.most_exclusive.max(1) } else { 1 },
            order,
            waited_ns: self.waited_ns,
            sites: self.sites,
        }
    }
}
