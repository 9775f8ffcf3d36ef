//! The equal periods into which a recording is cut: times enter, the indexes of their periods leave.

use super::PERIODS;

/// The periods of a recording. The last one that was found is remembered: holds come in the order of their ends, and the division takes
/// longer than the rest of a sum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    from_ns: i64,
    span_ns: i64,
    /// A period, its begin and its end.
    last: (usize, i64, i64),
}

impl Cut {
    /// Cuts the time from `from_ns` on, `span_ns` long and at least 1.
    pub(super) const fn new(from_ns: i64, span_ns: i64) -> Self {
        Self { from_ns, span_ns, last: (0, i64::MAX, i64::MIN) }
    }

    /// Returns the index of the period that has this time. Times outside of the recording are in the nearest one.
    #[inline]
    pub(super) fn period(&mut self, ns: i64) -> usize {
        let (period, begin_ns, end_ns) = self.last;
        if begin_ns <= ns && ns < end_ns { period } else { self.find(ns) }
    }

    fn find(&mut self, ns: i64) -> usize {
        let (periods, span_ns) = (PERIODS as i128, i128::from(self.span_ns));
        let at = i128::from(ns.saturating_sub(self.from_ns)) * periods / span_ns;
        let period = usize::try_from(at.clamp(0, periods - 1)).unwrap_or(0);
        // The first nanosecond of a period; the first and the last one are open.
        let begin_ns = |period: usize| match period {
            0 => i64::MIN,
            PERIODS.. => i64::MAX,
            _ => {
                let since_ns = (period as i128 * span_ns + periods - 1) / periods;
                i64::try_from(i128::from(self.from_ns) + since_ns).unwrap_or(i64::MAX)
            }
        };
        self.last = (period, begin_ns(period), begin_ns(period + 1));
        period
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_last_period_changes_nothing(
            from_ns in prop_oneof![-100..100_i64, Just(i64::MIN), Just(i64::MAX - 50)],
            span_ns in prop_oneof![1..200_i64, Just(i64::MAX)],
            times in prop::collection::vec(prop_oneof![-300..300_i64, any::<i64>()], 1..50),
        ) {
            let mut cut = Cut::new(from_ns, span_ns);
            for ns in times {
                prop_assert_eq!(cut.period(ns), Cut::new(from_ns, span_ns).find(ns), "{}", ns);
            }
        }
    }
}
