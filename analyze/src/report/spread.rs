//! Percentiles of hold and wait times by key, exact, in memory that does not grow with the trace.
//!
//! The trace is read twice. The first pass counts times in buckets whose width is at most a 64th of their time; that
//! tells in which bucket each percentile lies. The second counts every different time in those buckets alone. So what is
//! kept are buckets, and of few of them the times, each once. Sums that need no second pass ride along.

use rustc_hash::{FxHashMap, FxHashSet};
use trace_format::TaskId;

use super::Extra;
use crate::intervals::{Hold, HoldState};

/// Of each octave of times, so many bits tell buckets apart.
pub(crate) const BITS: u32 = 6;

/// The percentiles, in thousandths.
const RANKS: [u64; 4] = [500, 900, 990, 999];

/// By key, what the extra columns need.
#[derive(Debug, Default)]
pub(super) struct Spreads {
    by_key: FxHashMap<i64, Spread>,
    second_pass: bool,
    /// Which trace it takes holds of.
    trace: usize,
}

#[derive(Debug, Default)]
struct Spread {
    holds: Times,
    waits: Times,
    /// Of waits of which the source knows what they were spent with.
    known_wait_ns: i64,
    blocked_ns: i64,
    runq_ns: i64,
    states_known: bool,
    /// Who acquired: of which trace, and which task of it.
    tasks: FxHashSet<(usize, TaskId)>,
}

/// Times of one kind: how many, in which buckets.
#[derive(Debug, Default)]
struct Times {
    min: Option<i64>,
    count: u64,
    buckets: FxHashMap<u32, u64>,
    /// The same when all are counted, the smallest first.
    ordered: Vec<(u32, u64)>,
    /// The times in the few buckets where percentiles lie.
    wanted: Vec<(u32, FxHashMap<i64, u64>)>,
}

impl Spreads {
    /// Those of one trace of several, from 0.
    pub(super) fn of_trace(trace: usize) -> Self {
        Self { trace, ..Self::default() }
    }

    /// Takes a hold of the row `key`: each of them in the first pass, and again in the second.
    pub(super) fn push(&mut self, key: i64, hold: &Hold) {
        let second = self.second_pass;
        let spread = self.by_key.entry(key).or_default();
        if !second {
            spread.tasks.insert((self.trace, hold.task));
        }
        if hold.state == HoldState::Complete {
            spread.holds.push(hold.end_ns.saturating_sub(hold.start_ns), second);
        }
        if !hold.contended {
            return;
        }
        let Some(wait_ns) = hold.wait_ns else { return };
        spread.waits.push(wait_ns, second);
        if let (Some(blocked_ns), Some(runq_ns), false) = (hold.blocked_ns, hold.runq_ns, second) {
            spread.states_known = true;
            spread.known_wait_ns = spread.known_wait_ns.saturating_add(wait_ns);
            spread.blocked_ns = spread.blocked_ns.saturating_add(blocked_ns);
            spread.runq_ns = spread.runq_ns.saturating_add(runq_ns);
        }
    }

    /// Ends the first pass.
    pub(super) fn begin_second_pass(&mut self) {
        self.second_pass = true;
        for spread in self.by_key.values_mut() {
            spread.holds.want();
            spread.waits.want();
        }
    }

    /// As many rows, of which nothing was seen yet but what the second pass is to look at.
    pub(super) fn wanted(&self) -> Self {
        let empty = |spread: &Spread| Spread {
            holds: spread.holds.wanted(),
            waits: spread.waits.wanted(),
            ..Spread::default()
        };
        let by_key = self.by_key.iter().map(|(key, spread)| (*key, empty(spread))).collect();
        Self { by_key, second_pass: true, trace: self.trace }
    }

    /// Adds what another one has seen in the same pass; `key` says which row one of its rows is.
    pub(super) fn absorb(&mut self, other: Self, mut key: impl FnMut(i64) -> i64) {
        for (of, more) in other.by_key {
            self.by_key.entry(key(of)).or_default().absorb(more);
        }
    }

    /// What the row `key` has, after both passes.
    pub(super) fn extra(&self, key: i64) -> Extra {
        let none = Spread::default();
        let spread = self.by_key.get(&key).unwrap_or(&none);
        let [p50_ns, p90_ns, p99_ns, p999_ns] = RANKS.map(|rank| spread.holds.percentile(rank));
        let [wait_p50_ns, wait_p90_ns, wait_p99_ns, wait_p999_ns] =
            RANKS.map(|rank| spread.waits.percentile(rank));
        let known = |ns: i64| spread.states_known.then_some(ns);
        let spin_ns = spread.known_wait_ns.saturating_sub(spread.blocked_ns).saturating_sub(spread.runq_ns);
        Extra {
            min_ns: spread.holds.min,
            p50_ns,
            p90_ns,
            p99_ns,
            p999_ns,
            wait_min_ns: spread.waits.min,
            wait_p50_ns,
            wait_p90_ns,
            wait_p99_ns,
            wait_p999_ns,
            spin_ns: known(spin_ns),
            blocked_ns: known(spread.blocked_ns),
            runq_ns: known(spread.runq_ns),
            threads: Some(i64::try_from(spread.tasks.len()).unwrap_or(i64::MAX)),
        }
    }
}

impl Spread {
    fn absorb(&mut self, other: Self) {
        self.holds.absorb(other.holds);
        self.waits.absorb(other.waits);
        self.known_wait_ns = self.known_wait_ns.saturating_add(other.known_wait_ns);
        self.blocked_ns = self.blocked_ns.saturating_add(other.blocked_ns);
        self.runq_ns = self.runq_ns.saturating_add(other.runq_ns);
        self.states_known |= other.states_known;
        self.tasks.extend(other.tasks);
    }
}

impl Times {
    fn wanted(&self) -> Self {
        let wanted = self.wanted.iter().map(|(bucket, _)| (*bucket, FxHashMap::default())).collect();
        Self { wanted, ..Self::default() }
    }

    fn absorb(&mut self, other: Self) {
        self.min = [self.min, other.min].into_iter().flatten().min();
        self.count += other.count;
        for (bucket, count) in other.buckets {
            *self.buckets.entry(bucket).or_default() += count;
        }
        for (bucket, times) in other.wanted {
            let all = self.wanted.iter_mut().find(|(wanted, _)| *wanted == bucket);
            if let Some((_, all)) = all {
                times.into_iter().for_each(|(ns, count)| *all.entry(ns).or_default() += count);
            }
        }
    }

    fn push(&mut self, ns: i64, second_pass: bool) {
        let bucket = bucket(ns);
        if !second_pass {
            self.count += 1;
            self.min = Some(self.min.map_or(ns, |min| min.min(ns)));
            *self.buckets.entry(bucket).or_default() += 1;
        } else if let Some((_, times)) = self.wanted.iter_mut().find(|(wanted, _)| *wanted == bucket) {
            *times.entry(ns).or_default() += 1;
        }
    }

    /// Where the percentile lies: its bucket, and the how-manieth of that it is, from 0.
    fn find(&self, rank: u64) -> Option<(u32, u64)> {
        // The nearest rank: the smallest time that so many thousandths of all do not exceed.
        let mut before = (self.count.saturating_mul(rank)).div_ceil(1000).checked_sub(1)?;
        for (bucket, count) in &self.ordered {
            if before < *count {
                return Some((*bucket, before));
            }
            before -= count;
        }
        None
    }

    /// All are counted: what lies where percentiles do is to be looked at.
    fn want(&mut self) {
        self.ordered = std::mem::take(&mut self.buckets).into_iter().collect();
        self.ordered.sort_unstable();
        let mut buckets: Vec<u32> =
            RANKS.iter().filter_map(|rank| self.find(*rank)).map(|(bucket, _)| bucket).collect();
        buckets.dedup();
        self.wanted = buckets.into_iter().map(|bucket| (bucket, FxHashMap::default())).collect();
    }

    fn percentile(&self, rank: u64) -> Option<i64> {
        let (bucket, mut before) = self.find(rank)?;
        let (_, times) = self.wanted.iter().find(|(wanted, _)| *wanted == bucket)?;
        let mut times: Vec<(i64, u64)> = times.iter().map(|(ns, count)| (*ns, *count)).collect();
        times.sort_unstable();
        for (ns, count) in times {
            if before < count {
                return Some(ns);
            }
            before -= count;
        }
        None
    }
}

/// The bucket of a time: those of smaller times come first, and times below 64 have one each.
pub(crate) fn bucket(ns: i64) -> u32 {
    let ns = u64::try_from(ns).unwrap_or(0);
    let octave = (u64::BITS - ns.leading_zeros()).saturating_sub(BITS + 1);
    // At most 63 << 6 and 127.
    (octave << BITS) + (ns >> octave) as u32
}

/// The longest time of a bucket.
pub(crate) fn bucket_end(bucket: u32) -> i64 {
    // The first octave that is split begins at 64; before it, buckets are times.
    let octave = (bucket >> BITS).saturating_sub(1);
    let at = u64::from(bucket - (octave << BITS));
    i64::try_from(((at + 1) << octave) - 1).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, test_runner::Config};

    use super::*;

    fn percentiles(times: &[i64]) -> [Option<i64>; 4] {
        let mut found = Times::default();
        times.iter().for_each(|ns| found.push(*ns, false));
        found.want();
        times.iter().for_each(|ns| found.push(*ns, true));
        RANKS.map(|rank| found.percentile(rank))
    }

    #[test]
    fn a_bucket_is_a_64th_of_its_time_at_most_and_buckets_are_in_order() {
        for ns in 0..10_000 {
            let (at, next) = (bucket(ns), bucket(ns + 1));
            assert!(next == at || next == at + 1, "{ns}");
            if ns < 64 {
                assert_eq!(i64::from(at), ns);
            }
        }
        for bit in 6..63 {
            let ns = 1_i64 << bit;
            assert_eq!(bucket(ns), bucket(ns - 1) + 1, "{ns}");
            assert_eq!(bucket(ns + (ns >> 6)), bucket(ns) + 1, "{ns}");
        }
        for ns in (0..5_000).chain([i64::MAX, i64::MAX - 1, 1 << 40]) {
            let end = bucket_end(bucket(ns));
            assert!(end >= ns && bucket(end) == bucket(ns), "{ns} {end}");
            assert!(end == i64::MAX || bucket(end + 1) == bucket(ns) + 1, "{ns} {end}");
        }
        assert!(bucket(i64::MAX) > bucket(i64::MAX / 2));
        assert_eq!(bucket(128 + 2), bucket(128 + 3));
        assert_ne!(bucket(128 + 1), bucket(128 + 2));
    }

    #[test]
    fn percentiles_of_few_times_are_among_them() {
        assert_eq!(percentiles(&[]), [None; 4]);
        assert_eq!(percentiles(&[7]), [Some(7); 4]);
        assert_eq!(
            percentiles(&[1_000_000, 2]),
            [Some(2), Some(1_000_000), Some(1_000_000), Some(1_000_000)]
        );
        let thousand: Vec<i64> = (1..=1000).map(|i| i * 1001).rev().collect();
        assert_eq!(percentiles(&thousand), [500, 900, 990, 999].map(|rank| Some(rank * 1001)));
    }

    proptest! {
        #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(500) })]

        #[test]
        fn percentiles_are_those_of_the_sorted_times(
            times in vec(prop_oneof![0..100i64, 10_000..11_000i64, 0..=i64::MAX], 1..300),
        ) {
            let mut sorted = times.clone();
            sorted.sort_unstable();
            let at = |rank: u64| sorted[(sorted.len() as u64 * rank).div_ceil(1000) as usize - 1];
            prop_assert_eq!(percentiles(&times), RANKS.map(|rank| Some(at(rank))));
        }
    }
}
