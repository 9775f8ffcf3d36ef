//! A lock in a program that is being built, and how it is handed over.

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
    /// The tasks that wait for it, the first one first; the one that was woken, and when; the times until such tasks ran.
    pub(super) waiting: Vec<u32>,
    pub(super) woken: Option<(u32, i64)>,
    pub(super) wakeups_ns: Vec<i64>,
    pub(super) waited_ns: i64,
    pub(super) released_ns: Option<i64>,
    pub(super) released_exclusively_ns: Option<i64>,
    /// The tasks that hold it, by index.
    pub(super) holders: Vec<(u32, Mode)>,
    pub(super) most_holders: u32,
    pub(super) was_held: bool,
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
            capacity: if counts { self.most_holders.max(1) } else { 1 },
            order,
            waited_ns: self.waited_ns,
            sites: self.sites,
        }
    }
}
