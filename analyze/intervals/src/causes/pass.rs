//! The pass over all locks: moves one clock, settles each nanosecond once its rows are known, and passes rows
//! to queues and engine.

use std::sync::Arc;

use rustc_hash::FxHashSet;
use trace_format::{Event, EventKind, EventRow, LockId, LockRow, RunInfo, run_info::Covers};

use super::{counted::CountedWaits, queues::Queues};
use crate::{
    engine::{Counts, Engine, Rules, deadlock::Deadlock},
    items::{Item, Sink},
};

/// Counts of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassStats {
    /// Rows that are earlier than a row before them. They count as if they had its time. The recorder writes
    /// none.
    pub late_rows: u64,
    /// Changes of a number of waiters whose time counts as unknown, because a payer had too many of them
    /// between two rows.
    pub steps_cut: u64,
}

/// The outcome of a pass.
pub(super) struct Finished<'a, R> {
    pub(super) receiver: R,
    pub(super) counted: CountedWaits<'a>,
    pub(super) stats: PassStats,
    /// The counts and the deadlocks of the selected locks.
    pub(super) counts: Counts,
    pub(super) deadlocks: Vec<Deadlock>,
}

/// Follows the payers of all waits.
pub(super) struct Pass<'a, R> {
    /// The selected locks, and all others. Locks are independent, and the trust block counts the selected
    /// ones.
    engines: [Engine; 2],
    queues: Queues<'a, R>,
    /// Locks with waits that had rows in the nanosecond of the clock.
    touched: Vec<LockId>,
    late_rows: u64,
}

impl<'a, R: Sink> Pass<'a, R> {
    /// Returns a pass over a trace with this footer and these locks.
    pub(super) fn new(
        info: &RunInfo,
        locks: &[LockRow],
        rules: Rules,
        receiver: R,
        counted: CountedWaits<'a>,
    ) -> Self {
        let is_idle = |lock: &LockRow| lock.kind.is_idle() && !rules.measures_holds(lock.id);
        let is_idle = locks.iter().map(is_idle).collect();
        // The recorder takes those who take a semaphore for no holders.
        let is_uncovered = |lock: &&LockRow| lock.kind.is_idle() && rules.measures_holds(lock.id);
        let uncovered = locks.iter().filter(is_uncovered).map(|lock| lock.id);
        let uncovered = if info.covers() == Covers::All {
            FxHashSet::default()
        } else {
            uncovered.collect::<FxHashSet<_>>()
        };
        let is_covered = info.covers() != Covers::None;
        let rules = Arc::new(rules);
        Self {
            engines: [Engine::new(Arc::clone(&rules)), Engine::new(rules)],
            queues: Queues::new(receiver, counted, (is_idle, uncovered), is_covered),
            touched: Vec::new(),
            late_rows: 0,
        }
    }

    /// Adds the next row of the trace.
    #[inline]
    pub(super) fn push(&mut self, row: &impl EventRow) {
        let (ts_ns, now_ns) = (row.ts_ns(), self.queues.now_ns);
        if ts_ns < now_ns {
            self.late_rows += 1;
            return self.add(&Event { ts_ns: now_ns, ..row.to_event() });
        }
        if ts_ns > now_ns {
            self.advance(ts_ns);
        }
        self.add(row);
    }

    /// Adds a row at the time of the clock.
    #[inline]
    fn add(&mut self, row: &impl EventRow) {
        if self.queues.receiver.needs().rows {
            self.queues.receiver.push(Item::Row(row));
        }
        if row.kind() == EventKind::Lost {
            self.settle();
            self.queues.end();
            self.engines.iter_mut().for_each(|engine| engine.push(row, &mut self.queues));
            return;
        }
        if let Some(task) = row.task() {
            self.queues.row(task, row);
        }
        let Some(lock) = row.lock() else { return };
        let engine = &mut self.engines[usize::from(!self.queues.counted.is_of(lock))];
        engine.push(row, &mut self.queues);
        if self.touched.last() != Some(&lock) && self.queues.has_waits(lock) {
            self.touched.push(lock);
        }
    }

    /// Ends the trace at `end_ns`.
    pub(super) fn end(mut self, end_ns: i64) -> Finished<'a, R> {
        self.advance(end_ns.max(self.queues.now_ns));
        self.queues.end();
        let [selected, others] = self.engines;
        let deadlocks = selected.open_locks().deadlocks();
        let counts = selected.finish(self.queues.now_ns, &mut self.queues);
        others.finish(self.queues.now_ns, &mut self.queues);
        let stats = PassStats { late_rows: self.late_rows, steps_cut: self.queues.tasks.steps_cut };
        let Queues { receiver, counted, .. } = self.queues;
        Finished { receiver, counted, stats, counts, deadlocks }
    }

    /// Ends the trace at `end_ns`.
    #[cfg(test)]
    pub(super) fn finish(self, end_ns: i64) -> (R, PassStats) {
        let Finished { receiver, stats, .. } = self.end(end_ns);
        (receiver, stats)
    }

    /// Moves the clock.
    fn advance(&mut self, now_ns: i64) {
        self.settle();
        self.queues.now_ns = now_ns;
    }

    /// Settles the nanosecond of the clock.
    #[inline]
    fn settle(&mut self) {
        if !self.touched.is_empty() || self.queues.has_changes() {
            self.settle_changes();
        }
    }

    fn settle_changes(&mut self) {
        if self.touched.len() > 1 {
            self.touched.sort_unstable();
            self.touched.dedup();
        }
        let mut touched = std::mem::take(&mut self.touched);
        for lock in touched.drain(..) {
            if let Some(payers) =
                self.engines[usize::from(!self.queues.counted.is_of(lock))].payers(lock, &mut self.queues)
            {
                self.queues.place(lock, &payers);
            }
        }
        self.touched = touched;
        self.queues.forget_unplaced();
        self.queues.settle_chains();
    }
}
