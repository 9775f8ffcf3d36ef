//! The overview of the timeline: intervals enter, the time that each lock was held and waited for in each period leaves, and the
//! activity of all locks, from which the busiest windows are chosen.

use trace_format::LockId;

use super::data::Window;
use crate::{
    engine::{Hold, Sink, Wait},
    error::AnalyzeError,
    input::{Detail, Input, ReadOutcome, selection::Selection},
    plot::lanes::busiest_run,
    tables::{by_row::ByRow, gather::Gather, key::RowKey},
};

/// Periods of the finest level.
pub(super) const PERIODS: usize = 2048;
/// Slices of the trace between which a window can begin.
const SLICES: usize = 1 << 15;

/// Time cut into slices of equal length; the last one may end after the trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slices {
    from_ns: i64,
    pub(super) length_ns: i64,
    count: usize,
    /// A slice, its begin and its end: that of the last time that was asked for. Intervals come in the order of their ends, and a
    /// division takes as long as the rest of a sum.
    last: (usize, i64, i64),
}

impl Slices {
    pub(super) fn new(from_ns: i64, to_ns: i64, count: usize) -> Self {
        let span_ns = to_ns.saturating_sub(from_ns).max(1);
        let length_ns = (span_ns - 1) / i64::try_from(count).unwrap_or(i64::MAX) + 1;
        Self { from_ns, length_ns, count, last: (0, from_ns, from_ns) }
    }

    #[inline]
    fn at(&mut self, ns: i64) -> usize {
        let (slice, begin_ns, end_ns) = self.last;
        if begin_ns <= ns && ns < end_ns {
            return slice;
        }
        let slice = ns.saturating_sub(self.from_ns).max(0) / self.length_ns;
        let slice = usize::try_from(slice).map_or(self.count - 1, |slice| slice.min(self.count - 1));
        self.last = (slice, self.begin(slice), self.begin(slice + 1));
        slice
    }

    fn begin(&self, slice: usize) -> i64 {
        self.from_ns.saturating_add(self.length_ns.saturating_mul(i64::try_from(slice).unwrap_or(i64::MAX)))
    }

    /// Calls `each` with every slice that the interval touches and the ns in it.
    #[inline]
    fn spread(&mut self, start_ns: i64, end_ns: i64, mut each: impl FnMut(usize, i64)) {
        let start_ns = start_ns.max(self.from_ns);
        if start_ns >= end_ns {
            return;
        }
        let (first, last) = (self.at(start_ns), self.at(end_ns - 1));
        if first == last {
            return each(first, end_ns - start_ns);
        }
        each(first, self.begin(first + 1) - start_ns);
        (first + 1..last).for_each(|slice| each(slice, self.length_ns));
        each(last, end_ns - self.begin(last));
    }
}

/// The time of one lock in a period, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) held_ns: i64,
    pub(super) waited_ns: i64,
}

/// Adds up the intervals of some locks by period.
pub(super) struct Levels<'a> {
    selection: &'a Selection,
    periods: Slices,
    /// In the order of the locks that have levels; without periods until the lock is used.
    by_lock: ByRow<Option<Box<[Use]>>>,
}

impl<'a> Levels<'a> {
    /// Adds up the intervals of these locks.
    pub(super) fn new(input: &'a Input<'_>, locks: &[i32], (from_ns, to_ns): (i64, i64)) -> Self {
        let mut by_lock = ByRow::new(input.names.locks().len());
        for lock in locks {
            by_lock.of(RowKey::Lock(LockId(*lock)));
        }
        Self { selection: &input.selection, periods: Slices::new(from_ns, to_ns, PERIODS), by_lock }
    }

    /// Returns the length of a period, in ns.
    pub(super) fn period_ns(&self) -> i64 {
        self.periods.length_ns
    }

    /// Returns the periods of the lock with this index; nothing if it was not used.
    pub(super) fn of(&self, place: usize) -> Option<&[Use]> {
        self.by_lock.values().get(place)?.1.as_deref()
    }

    #[inline]
    fn add(&mut self, lock: LockId, start_ns: i64, end_ns: i64, add: impl Fn(&mut Use) -> &mut i64) {
        let Some(periods) = self.by_lock.find(RowKey::Lock(lock)) else { return };
        let periods = periods.get_or_insert_with(|| vec![Use::default(); PERIODS].into());
        self.periods.spread(start_ns, end_ns, |period, ns| *add(&mut periods[period]) += ns);
    }
}

/// Gathers the waiting and the intervals of all locks by slice of time.
pub(super) struct Activity<'a> {
    selection: &'a Selection,
    slices: Slices,
    waited_ns: Vec<i64>,
    /// Holds and waits that begin in the slice.
    begun: Vec<u64>,
}

impl<'a> Activity<'a> {
    pub(super) fn new(selection: &'a Selection, (from_ns, to_ns): (i64, i64)) -> Self {
        let slices = Slices::new(from_ns, to_ns, SLICES);
        Self { selection, slices, waited_ns: vec![0; SLICES], begun: vec![0; SLICES] }
    }

    /// Adds the sums of other locks.
    fn merge(&mut self, other: Self) {
        self.waited_ns.iter_mut().zip(other.waited_ns).for_each(|(sum, ns)| *sum = sum.saturating_add(ns));
        self.begun.iter_mut().zip(other.begun).for_each(|(sum, count)| *sum += count);
    }

    /// Returns up to `count` windows with much waiting that do not overlap and have about `most` intervals together, in the order of
    /// time; a single one if there are no more intervals in all.
    pub(super) fn busiest(&self, count: usize, most: usize, end_ns: i64) -> Vec<Window> {
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        let all = Window { from_ns: self.slices.from_ns, to_ns: end_ns };
        if self.begun.iter().sum::<u64>() <= most {
            return vec![all];
        }
        let (mut weights, mut begun) = (self.waited_ns.clone(), self.begun.clone());
        let mut windows: Vec<Window> = Vec::new();
        for _ in 0..count {
            let share = (most / count as u64).max(1);
            let Some(run) = busiest_run(&weights, &begun, share) else { break };
            let from_ns = self.slices.begin(run.first);
            let to_ns = match run.count {
                // One slice has more than fits: as much of it as likely fits.
                count if count > share => {
                    let part = i128::from(self.slices.length_ns) * i128::from(share) / i128::from(count);
                    from_ns.saturating_add(i64::try_from(part).unwrap_or(1).max(1))
                }
                _ => self.slices.begin(run.first + run.length).min(end_ns),
            };
            if weights[run.first..run.first + run.length].iter().all(|ns| *ns == 0) {
                break;
            }
            windows.push(Window { from_ns, to_ns });
            weights[run.first..run.first + run.length].fill(0);
            begun[run.first..run.first + run.length].fill(most.saturating_add(1));
        }
        windows.sort_by_key(|window| window.from_ns);
        if windows.is_empty() { vec![Window { to_ns: self.slices.begin(1), ..all }] } else { windows }
    }
}

impl<'a> Gather for Activity<'a> {
    type Sink = Self;

    fn detail(&self) -> Detail {
        Detail::Times
    }

    fn sink(&self, _: usize) -> Self {
        let (waited_ns, begun) = (vec![0; SLICES], vec![0; SLICES]);
        Self { selection: self.selection, slices: self.slices, waited_ns, begun }
    }

    fn add(&mut self, _: usize, sinks: Vec<Self>, _: &ReadOutcome) -> Result<(), AnalyzeError> {
        sinks.into_iter().for_each(|sink| self.merge(sink));
        Ok(())
    }
}

impl Sink for Activity<'_> {
    fn hold(&mut self, hold: &Hold) {
        if self.selection.selects_hold(hold) {
            self.begun[self.slices.at(hold.start_ns)] += 1;
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if self.selection.selects_wait(wait) {
            self.begun[self.slices.at(wait.start_ns)] += 1;
            let waited_ns = &mut self.waited_ns;
            self.slices.spread(wait.start_ns, wait.end_ns, |slice, ns| waited_ns[slice] += ns);
        }
    }
}

impl Sink for Levels<'_> {
    fn hold(&mut self, hold: &Hold) {
        if self.selection.selects_hold(hold) {
            self.add(hold.lock, hold.start_ns, hold.end_ns, |sums| &mut sums.held_ns);
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if self.selection.selects_wait(wait) {
            self.add(wait.lock, wait.start_ns, wait.end_ns, |sums| &mut sums.waited_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_parts_of_an_interval_add_up_to_it_and_lie_in_their_slices(
            start in 0_i64..1000, length in 0_i64..1000, span in 1_i64..2000, count in 1_usize..50,
        ) {
            let mut slices = Slices::new(0, span, count);
            let end = start + length;
            let mut sums = vec![0; count];
            slices.spread(start, end, |slice, ns| sums[slice] += ns);
            prop_assert_eq!(sums.iter().sum::<i64>(), length);
            for (slice, sum) in sums.iter().enumerate().take(count - 1) {
                let (from, to) = (slices.begin(slice), slices.begin(slice + 1));
                prop_assert_eq!(*sum, (end.min(to) - start.max(from)).max(0));
            }
        }
    }
}
