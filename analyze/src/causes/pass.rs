//! The pass over all locks: moves one clock, settles each nanosecond once its rows are known, and passes rows to queues and engine.

use trace_format::{Event, EventKind, LockId, LockRow, RunInfo, run_info::Covers};

use super::{
    Receiver,
    queues::{Queues, WaitChoice},
    tasks::Tasks,
};
use crate::engine::{Engine, Rules};

/// Counts of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PassStats {
    /// Rows that are earlier than a row before them. They count as if they had its time. The recorder writes none.
    pub(crate) late_rows: u64,
    /// Changes of a number of waiters whose time counts as unknown, because a payer had too many of them between two rows.
    pub(crate) steps_cut: u64,
    /// Time whose division into sleeping and running is an estimate.
    pub(crate) estimated_ns: i64,
}

/// Follows the payers of all waits.
pub(crate) struct Pass<R, C> {
    engine: Engine,
    queues: Queues<R, C>,
    /// Locks with waits that had rows in the nanosecond of the clock.
    touched: Vec<LockId>,
    late_rows: u64,
}

impl<R: Receiver, C: WaitChoice> Pass<R, C> {
    /// Returns a pass over a trace with this footer and these locks.
    pub(crate) fn new(info: &RunInfo, locks: &[LockRow], rules: Rules, receiver: R, choice: C) -> Self {
        let is_idle = locks.iter().map(|lock| lock.kind.is_idle()).collect();
        let is_covered = info.covers() != Covers::None;
        Self {
            engine: Engine::new(rules),
            queues: Queues::new(receiver, choice, is_idle, is_covered),
            touched: Vec::new(),
            late_rows: 0,
        }
    }

    /// Adds the next row of the trace.
    pub(crate) fn push(&mut self, row: &Event) {
        let now_ns = self.queues.now_ns;
        self.late_rows += u64::from(row.ts_ns < now_ns);
        let row = Event { ts_ns: row.ts_ns.max(now_ns), ..*row };
        if row.ts_ns > now_ns {
            self.advance(row.ts_ns);
        }
        if row.kind == EventKind::Lost {
            self.settle();
            self.queues.end();
        } else if let Some(task) = row.task {
            self.queues.row(task, &row);
        }
        self.engine.push(&row, &mut self.queues);
        if let Some(lock) = row.lock
            && self.touched.last() != Some(&lock)
            && self.queues.has_waits(lock)
        {
            self.touched.push(lock);
        }
    }

    /// Ends the trace at `end_ns`.
    pub(crate) fn finish(mut self, end_ns: i64) -> (R, PassStats) {
        self.advance(end_ns.max(self.queues.now_ns));
        self.queues.end();
        self.engine.finish(self.queues.now_ns, &mut self.queues);
        let Tasks { steps_cut, estimated_ns, .. } = self.queues.tasks;
        (self.queues.receiver, PassStats { late_rows: self.late_rows, steps_cut, estimated_ns })
    }

    /// Moves the clock.
    fn advance(&mut self, now_ns: i64) {
        self.settle();
        self.queues.now_ns = now_ns;
    }

    /// Settles the nanosecond of the clock.
    fn settle(&mut self) {
        if self.touched.len() > 1 {
            self.touched.sort_unstable();
            self.touched.dedup();
        }
        let mut touched = std::mem::take(&mut self.touched);
        for lock in touched.drain(..) {
            if let Some(payers) = self.engine.payers(lock, &mut self.queues) {
                self.queues.place(lock, &payers);
            }
        }
        self.touched = touched;
        self.queues.forget_unplaced();
        self.queues.settle_chains();
    }
}
