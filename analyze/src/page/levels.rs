//! Adds up in each period how long each lock was held and waited for, and what each thread did, for the
//! overview of the timeline.

use super::slices::Slices;

/// Periods of the finest level of locks.
pub(super) const PERIODS: usize = 2048;
pub(super) const THREAD_PERIODS: usize = 256;

/// The time that a lock was held and waited for in a period; or that a thread held locks, waited for locks
/// and was off-CPU, in ns.
pub(super) type Use = [i64; 3];
pub(super) const HELD: usize = 0;
pub(super) const WAITED: usize = 1;
pub(super) const OFF: usize = 2;

/// Adds up the intervals of some locks or threads by period.
pub(super) struct Levels {
    periods: Slices,
    pub(super) count: usize,
    /// By id: one more than the place of the lock or thread, or 0.
    places: Vec<u32>,
    rows: usize,
    /// All rows in the first period, then in the second: holds come in the order of their ends, so those in
    /// use stay in a processor's cache.
    sums: Vec<Use>,
}

impl Levels {
    /// Adds up the intervals of the locks or threads with these ids in `count` periods.
    pub(super) fn new(ids: impl Iterator<Item = i32>, (from_ns, to_ns): (i64, i64), count: usize) -> Self {
        let (mut places, mut rows) = (Vec::new(), 0);
        for id in ids.filter_map(|id| usize::try_from(id).ok()) {
            rows += 1;
            places.resize(places.len().max(id + 1), 0);
            places[id] = rows;
        }
        let rows = rows as usize;
        let periods = Slices::new(from_ns, to_ns, count);
        Self { periods, count, places, rows, sums: vec![[0; 3]; rows * count] }
    }

    /// Returns the length of a period, in ns.
    pub(super) fn period_ns(&self) -> i64 {
        self.periods.length_ns
    }

    /// Returns the ids of all rows.
    pub(super) fn ids(&self) -> impl Iterator<Item = i32> {
        (0..).zip(&self.places).filter(|(_, place)| **place > 0).map(|(id, _)| id)
    }

    #[inline]
    fn place(&self, id: i32) -> Option<usize> {
        let place = usize::try_from(id).ok().and_then(|id| self.places.get(id)).copied()?;
        place.checked_sub(1).map(|place| place as usize)
    }

    /// Returns the periods of a lock or a thread.
    pub(super) fn of(&self, id: i32) -> Vec<Use> {
        let at = self.place(id);
        let sums = |period| at.map_or([0; 3], |at| self.sums[period * self.rows + at]);
        (0..self.count).map(sums).collect()
    }

    /// Adds an interval.
    #[inline]
    pub(super) fn add(&mut self, id: i32, start_ns: i64, end_ns: i64, what: usize) {
        let Some(at) = self.place(id) else { return };
        let Self { periods, rows, sums, .. } = self;
        periods.spread(start_ns, end_ns, |period, ns| sums[period * *rows + at][what] += ns);
    }
}
