//! The most waits whose holder was not seen at one time.
//!
//! Such a wait may be known only from its end, so its start comes to light when later waits have begun. The
//! times are added in the order of their ends. A time adds to all instants since its start, so of two
//! instants the earlier one is forgotten unless more waits were open then. What is left is no longer than the
//! greatest number of waits.

use rustc_hash::FxHashMap;
use trace_format::LockId;

use crate::items::Waiters;

/// The waits of all locks, at any depth and at each.
#[derive(Debug, Default)]
pub(super) struct UnseenWaits(FxHashMap<(LockId, Option<u32>), Overlaps>);

impl UnseenWaits {
    /// Adds `waits` waits that lasted for `time` (begin, end). Calls come in the order of their ends. Returns
    /// the most waits at one time so far.
    pub(super) fn add(&mut self, lock: LockId, depth: u32, time: (i64, i64), waits: i64) -> Waiters {
        let mut of = |depth| self.0.entry((lock, depth)).or_default().add(time, waits);
        Waiters { all: of(None), of_depth: of(Some(depth)) }
    }
}

/// Instants just before the end of a wait, in the order of time, with the number of waits: each has fewer
/// than the one before.
#[derive(Debug, Default)]
struct Overlaps(Vec<(i64, i64)>);

impl Overlaps {
    fn add(&mut self, (from_ns, until_ns): (i64, i64), waits: i64) -> i64 {
        let Self(ends) = self;
        ends.iter_mut().filter(|(end_ns, _)| *end_ns > from_ns).for_each(|(_, open)| *open += waits);
        if ends.last().is_none_or(|(end_ns, _)| *end_ns < until_ns) {
            ends.push((until_ns, waits));
        }
        let mut most = 0;
        for at in (0..ends.len()).rev() {
            if ends[at].1 > most {
                most = ends[at].1;
            } else {
                ends.remove(at);
            }
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, test_runner::Config};

    use super::*;
    use crate::testing::cases;

    proptest! {
        #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(cases(10_000)) })]

        #[test]
        fn the_most_waits_are_those_of_the_fullest_nanosecond(waits in vec((1..20i64, 0..4i64, 1..3i64), 1..20)) {
            let (mut overlaps, mut until_ns, mut open) = (Overlaps::default(), 20, [0; 100]);
            for (ns, later, waits) in waits {
                until_ns += later;
                (until_ns - ns..until_ns).for_each(|at| open[at as usize] += waits);
                prop_assert_eq!(overlaps.add((until_ns - ns, until_ns), waits), *open.iter().max().unwrap());
            }
        }
    }
}
