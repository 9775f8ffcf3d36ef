//! Plain holds of a key within one span of time: [plain](Hold::is_plain) holds enter, which nearly all are, and their sums leave.

use std::mem;

use super::counts::Counts;
use crate::{
    engine::Hold,
    tables::{buckets::bucket, report::PlainSums, spans::Periods},
};

/// A span of time in which the period and the long period are the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// Its start, by which its periods are found again.
    pub(super) id_ns: i64,
    /// Its first and its last time in the window; `from_ns` is later if there is none.
    from_ns: i64,
    last_ns: i64,
}

impl Span {
    /// A span without any time.
    pub(super) const EMPTY: Self = Self { id_ns: 0, from_ns: i64::MAX, last_ns: i64::MIN };

    /// Returns the span that has this time.
    pub(super) fn of(ns: i64, periods: [Periods; 2], (from_ns, to_ns): (i64, i64)) -> Self {
        let [numbers, starts, ends] = [
            periods.map(|periods| periods.number(ns)),
            periods.map(|periods| periods.start_ns(periods.number(ns))),
            periods.map(|periods| periods.start_ns(periods.number(ns).saturating_add(1))),
        ];
        let id_ns = starts[0].max(starts[1]);
        // Times too far from the origin for 64 bits, as in a damaged trace, have no start.
        if periods.map(|periods| periods.number(id_ns)) != numbers {
            return Self::EMPTY;
        }
        let last_ns = ends[0].min(ends[1]).saturating_sub(1).min(to_ns);
        Self { id_ns, from_ns: id_ns.max(from_ns), last_ns }
    }

    /// Whether a time is in the span.
    #[inline]
    pub(super) fn has(&self, ns: i64) -> bool {
        self.from_ns <= ns && ns <= self.last_ns
    }

    /// Whether all of a hold that is not empty is in the span.
    #[inline]
    pub(super) fn has_all(&self, hold: &Hold) -> bool {
        self.from_ns <= hold.start_ns && hold.start_ns < hold.end_ns && hold.end_ns <= self.last_ns
    }
}

/// The plain holds of one key in one span.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// The start of the span.
    span_ns: i64,
    pub(super) sums: PlainSums,
    /// Their lengths, in the long period of the span.
    pub(super) lengths: Counts,
}

impl Recent {
    /// Whether holds of this span can be added.
    #[inline]
    pub(super) fn is_of(&self, span: &Span) -> bool {
        self.span_ns == span.id_ns
    }

    /// Adds a plain hold of the span.
    #[inline]
    pub(super) fn add(&mut self, hold: &Hold) {
        self.sums.add(hold);
        self.lengths.count(bucket(hold.end_ns - hold.start_ns));
    }

    /// Begins another span. Returns the start of the one before, and the sums of its holds.
    pub(super) fn turn_to(&mut self, span: Span) -> (i64, PlainSums) {
        (mem::replace(&mut self.span_ns, span.id_ns), mem::take(&mut self.sums))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn periods(length_ns: i64) -> Periods {
        Periods { origin_ns: -7, length_ns }
    }

    proptest! {
        #[test]
        fn a_span_has_the_times_of_the_window_that_are_in_both_periods(
            ns in -60..60_i64,
            other_ns in -80..80_i64,
            lengths in [1..30_i64, 1..30_i64],
            window in (-50..50_i64, -50..50_i64),
        ) {
            let periods = lengths.map(periods);
            let span = Span::of(ns, periods, window);
            let is_same = |ns: i64| periods.iter().all(|periods| periods.number(ns) == periods.number(span.id_ns));
            prop_assert!(is_same(ns));
            prop_assert_eq!(span.has(other_ns), is_same(other_ns) && window.0 <= other_ns && other_ns <= window.1);
        }

        #[test]
        fn a_span_far_from_the_origin_has_only_times_of_its_periods(
            ns in prop_oneof![Just(i64::MAX), Just(i64::MIN), any::<i64>()],
            length_ns in prop_oneof![1..3_i64, Just(i64::MAX), 1..i64::MAX],
        ) {
            let periods = [Periods { origin_ns: -1 << 60, length_ns }, periods(1 << 40)];
            let span = Span::of(ns, periods, (i64::MIN, i64::MAX));
            for near_ns in [ns, ns.saturating_add(1), ns.saturating_sub(1), ns / 2] {
                let numbers = |ns| periods.map(|periods| periods.number(ns));
                prop_assert!(!span.has(near_ns) || numbers(near_ns) == numbers(span.id_ns));
            }
        }
    }
}
