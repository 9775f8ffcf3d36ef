//! Adds up how long each lock was held and waited for in each period, for the overview of the timeline.

use trace_format::LockId;

use super::slices::Slices;
use intervals::{
    input::Input,
    items::{Item, Sink},
};
use tables::{cells::Cells, key::Ids};

/// Periods of the finest level.
pub(super) const PERIODS: usize = 2048;

/// The time that a lock was held and waited for in a period, in ns.
pub(super) type Use = [i64; 2];
pub(super) const HELD: usize = 0;
pub(super) const WAITED: usize = 1;

/// Adds up the intervals of some locks by period.
pub(super) struct Levels {
    periods: Slices,
    by_lock: Cells<(), LockId>,
    locks: usize,
    /// All locks in the first period, then in the second: holds come in the order of their ends, so those in use stay in a processor's
    /// cache.
    sums: Vec<Use>,
}

impl Levels {
    /// Adds up the intervals of these locks.
    pub(super) fn new(
        input: &Input<'_>,
        locks: impl Iterator<Item = i32>,
        (from_ns, to_ns): (i64, i64),
    ) -> Self {
        let mut by_lock = Cells::new(Ids::Lock, &input.names);
        for lock in locks {
            by_lock.index(LockId(lock), |subject| subject.lock);
        }
        let locks = by_lock.count();
        let sums = vec![[0; 2]; locks * PERIODS];
        Self { periods: Slices::new(from_ns, to_ns, PERIODS), by_lock, locks, sums }
    }

    /// Returns the length of a period, in ns.
    pub(super) fn period_ns(&self) -> i64 {
        self.periods.length_ns
    }

    /// Returns the periods of a lock.
    pub(super) fn of(&self, lock: i32) -> Vec<Use> {
        let at = self.by_lock.find(LockId(lock), LockId(lock));
        let sums = |period| at.map_or([0; 2], |at| self.sums[period * self.locks + at as usize]);
        (0..PERIODS).map(sums).collect()
    }

    #[inline]
    fn add(&mut self, lock: LockId, start_ns: i64, end_ns: i64, what: usize) {
        let Some(at) = self.by_lock.find(lock, lock) else { return };
        let Self { periods, locks, sums, .. } = self;
        periods.spread(start_ns, end_ns, |period, ns| sums[period * *locks + at as usize][what] += ns);
    }
}

impl Sink for Levels {
    #[inline]
    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Hold(hold) => self.add(hold.lock, hold.start_ns, hold.end_ns, HELD),
            Item::Wait(wait) => self.add(wait.lock, wait.start_ns, wait.end_ns, WAITED),
            _ => {}
        }
    }
}
