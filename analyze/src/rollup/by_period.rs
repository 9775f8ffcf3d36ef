//! Sums by period: a period enters, its sums leave.

use std::mem;

use rustc_hash::FxHashMap;

/// The sums of a key in each period, those of the last one at hand.
#[derive(Default)]
pub(super) struct ByPeriod<S> {
    /// `None` before the first period.
    period: Option<i64>,
    at_hand: S,
    others: FxHashMap<i64, S>,
}

impl<S: Default> ByPeriod<S> {
    /// Returns the sums of a period.
    #[inline]
    pub(super) fn of(&mut self, period: i64) -> &mut S {
        if self.period != Some(period) {
            self.turn_to(period);
        }
        &mut self.at_hand
    }

    #[cold]
    fn turn_to(&mut self, period: i64) {
        let next = self.others.remove(&period).unwrap_or_default();
        let last = mem::replace(&mut self.at_hand, next);
        if let Some(last_period) = self.period.replace(period) {
            self.others.insert(last_period, last);
        }
    }

    /// Returns each period and its sums.
    pub(super) fn all(self) -> impl Iterator<Item = (i64, S)> {
        self.others.into_iter().chain(self.period.map(|period| (period, self.at_hand)))
    }
}
