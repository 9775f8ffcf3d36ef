//! Divides an interval over the periods that it spans: a hold from 80 to 230 ns has 20, 100 and 30 ns in
//! three periods of 100 ns.

use std::iter;

/// Periods of equal length, numbered from 0 at their origin; negative before it.
#[derive(Clone, Copy, Debug)]
pub struct Periods {
    /// The start of period 0, on the clock of the trace.
    pub origin_ns: i64,
    /// At least 1.
    pub length_ns: i64,
}

impl Periods {
    /// Returns the number of the period that has this time.
    pub fn number(self, ns: i64) -> i64 {
        ns.saturating_sub(self.origin_ns).div_euclid(self.length_ns)
    }

    /// Returns the start of a period, since the origin.
    pub fn offset_ns(self, number: i64) -> i64 {
        number.saturating_mul(self.length_ns)
    }

    /// Returns the start of a period.
    pub fn start_ns(self, number: i64) -> i64 {
        self.origin_ns.saturating_add(self.offset_ns(number))
    }

    /// Returns the period and the length of each part of an interval. An empty interval has none. Times that
    /// are too far from the origin for 64 bits, as in a damaged trace, are in one period.
    pub fn parts(self, start_ns: i64, end_ns: i64) -> impl Iterator<Item = (i64, i64)> {
        let mut at_ns = start_ns;
        iter::from_fn(move || {
            (at_ns < end_ns).then(|| {
                let number = self.number(at_ns);
                let next_ns = self.start_ns(number.saturating_add(1));
                let until_ns = if next_ns > at_ns { next_ns.min(end_ns) } else { end_ns };
                let ns = until_ns - at_ns;
                at_ns = until_ns;
                (number, ns)
            })
        })
    }
}

/// Periods, of which the last one is remembered: intervals come in the order in which they end, and a
/// division takes as long as the rest of a sum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastPeriod {
    periods: Periods,
    number: i64,
    start_ns: i64,
    end_ns: i64,
}

impl LastPeriod {
    pub(crate) fn new(periods: Periods) -> Self {
        Self { periods, number: 0, start_ns: 0, end_ns: 0 }
    }

    /// Returns the number of the period that has this time.
    #[inline]
    pub(crate) fn number(&mut self, ns: i64) -> i64 {
        if !self.is_last(ns) {
            self.number = self.periods.number(ns);
            self.start_ns = self.periods.start_ns(self.number);
            self.end_ns = self.start_ns.saturating_add(self.periods.length_ns);
        }
        self.number
    }

    /// Whether the last period has this time.
    #[inline]
    pub(crate) fn is_last(&self, ns: i64) -> bool {
        self.start_ns <= ns && ns < self.end_ns
    }

    /// Returns the start of the period that has this time.
    #[inline]
    pub(crate) fn start(&mut self, ns: i64) -> i64 {
        self.number(ns);
        self.start_ns
    }

    /// Returns the length of an interval, if it is not empty and all of it is in the last period.
    #[inline]
    pub(crate) fn inside(&self, start_ns: i64, end_ns: i64) -> Option<i64> {
        let is_inside = self.start_ns <= start_ns && start_ns < end_ns && end_ns <= self.end_ns;
        is_inside.then(|| end_ns - start_ns)
    }

    /// Returns the period and the length of each part of an interval. An empty interval has none.
    #[inline]
    pub(crate) fn parts(&self, start_ns: i64, end_ns: i64) -> impl Iterator<Item = (i64, i64)> + use<> {
        let one = self.inside(start_ns, end_ns).map(|ns| (self.number, ns));
        let (start_ns, end_ns) = if one.is_some() { (0, 0) } else { (start_ns, end_ns) };
        one.into_iter().chain(self.periods.parts(start_ns, end_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_period_changes_nothing() {
        let periods = Periods { origin_ns: -25, length_ns: 10 };
        let mut last = LastPeriod::new(periods);
        for ns in [-40, -26, -25, -16, -15, 0, 3, -7, i64::MAX, i64::MIN, 5] {
            assert_eq!(last.number(ns), periods.number(ns), "{ns}");
            for start_ns in [-30, -6, -5, 0, 4, 5, 6] {
                for end_ns in start_ns - 1..start_ns + 12 {
                    let parts: Vec<_> = periods.parts(start_ns, end_ns).collect();
                    assert_eq!(
                        last.parts(start_ns, end_ns).collect::<Vec<_>>(),
                        parts,
                        "{ns} {start_ns} {end_ns}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_parts_of_an_interval_add_up_to_it() {
        let periods = Periods { origin_ns: -25, length_ns: 10 };
        assert_eq!(periods.parts(-28, 7).collect::<Vec<_>>(), [(-1, 3), (0, 10), (1, 10), (2, 10), (3, 2)]);
        assert_eq!(periods.parts(5, 5).count(), 0);
        assert_eq!((periods.number(-25), periods.start_ns(3), periods.offset_ns(3)), (0, 5, 30));
    }

    #[test]
    fn times_too_far_from_the_origin_end() {
        let periods = Periods { origin_ns: -1 << 60, length_ns: 1 << 50 };
        let (start_ns, end_ns) = (i64::MAX - (1 << 55), i64::MAX);
        assert_eq!(periods.parts(start_ns, end_ns).map(|(_, ns)| ns).sum::<i64>(), end_ns - start_ns);
        let single = Periods { origin_ns: i64::MIN, length_ns: 1 };
        assert_eq!(single.parts(5, 9).map(|(_, ns)| ns).sum::<i64>(), 4);
    }
}
