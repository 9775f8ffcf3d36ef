//! Cuts time into slices of equal length, and intervals into their parts in each slice.

/// Time cut into slices of equal length; the last one may end after the trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slices {
    pub(super) from_ns: i64,
    pub(super) length_ns: i64,
    count: usize,
    /// The slice of the last time that was asked for, its begin and its end. Intervals come in the order of
    /// their ends, and a division takes as long as the rest of a sum.
    last: (usize, i64, i64),
}

impl Slices {
    pub(super) fn new(from_ns: i64, to_ns: i64, count: usize) -> Self {
        let span_ns = to_ns.saturating_sub(from_ns).max(1);
        let length_ns = (span_ns - 1) / i64::try_from(count).unwrap_or(i64::MAX) + 1;
        Self { from_ns, length_ns, count, last: (0, from_ns, from_ns) }
    }

    #[inline]
    pub(super) fn at(&mut self, ns: i64) -> usize {
        if self.is_in_last(ns) {
            return self.last.0;
        }
        let slice = ns.saturating_sub(self.from_ns).max(0) / self.length_ns;
        let slice = usize::try_from(slice).map_or(self.count - 1, |slice| slice.min(self.count - 1));
        self.last = (slice, self.begin(slice), self.begin(slice + 1));
        slice
    }

    /// Whether a time is in the slice of the last time that was asked for.
    #[inline]
    pub(super) fn is_in_last(&self, ns: i64) -> bool {
        let (_, begin_ns, end_ns) = self.last;
        begin_ns <= ns && ns < end_ns
    }

    pub(super) fn begin(&self, slice: usize) -> i64 {
        self.from_ns.saturating_add(self.length_ns.saturating_mul(i64::try_from(slice).unwrap_or(i64::MAX)))
    }

    /// Calls `each` with every slice that the interval touches and the ns in it.
    #[inline]
    pub(super) fn spread(&mut self, start_ns: i64, end_ns: i64, mut each: impl FnMut(usize, i64)) {
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
