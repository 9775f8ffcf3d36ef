//! The sums of a key in a period: those of a report, and what else a fleet adds up.

use crate::{
    engine::Hold,
    tables::{
        frame::{Sums as _, sums},
        report::{HoldSums, PlainSums},
    },
};

sums! {
    /// The sums that a report does not have.
    pub(super) struct MoreSums {
        /// Waits that ended without the lock.
        abandoned: Sum,
        /// Waits that the source divides into spinning, sleep and run queue, and their length.
        known_waits: Sum,
        known_wait_ns: Sum,
        blocked_ns: Sum,
        runq_ns: Sum,
        waiting_ns: Sum,
        holding_ns: Sum,
        /// 1 if holds of any of the locks in `waiting_ns` or `holding_ns` are recorded.
        measured: Max,
    }
}

impl MoreSums {
    /// Adds a time for which a lock was held; `measured` is 1 if holds of it are recorded.
    #[inline]
    pub(super) fn hold_for(&mut self, ns: i64, measured: i64) {
        self.holding_ns = self.holding_ns.saturating_add(ns);
        self.measured |= measured;
    }

    /// Adds a time for which a task waited.
    #[inline]
    pub(super) fn wait_for(&mut self, ns: i64, measured: i64) {
        self.waiting_ns = self.waiting_ns.saturating_add(ns);
        self.measured |= measured;
    }
}

/// The sums of a key in a period.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FactSums {
    pub(super) holds: HoldSums,
    pub(super) more: MoreSums,
}

impl FactSums {
    /// Adds a hold that is credited.
    #[inline]
    pub(super) fn hold(&mut self, hold: &Hold) {
        self.holds.add(hold);
        if hold.contended
            && let (Some(wait_ns), Some(blocked_ns), Some(runq_ns)) =
                (hold.wait_ns, hold.blocked_ns, hold.runq_ns)
        {
            let more = &mut self.more;
            more.known_waits += 1;
            more.known_wait_ns = more.known_wait_ns.saturating_add(wait_ns);
            more.blocked_ns = more.blocked_ns.saturating_add(blocked_ns);
            more.runq_ns = more.runq_ns.saturating_add(runq_ns);
        }
    }

    /// Adds plain holds that lasted in this period alone, each for some time.
    pub(super) fn add_plain(&mut self, plain: &PlainSums) {
        self.holds.add_plain(plain);
        // A hold is released only if holds of its lock are recorded.
        self.more.hold_for(plain.total_ns, 1);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.holds.merge(&other.holds);
        self.more.merge(&other.more);
    }
}
