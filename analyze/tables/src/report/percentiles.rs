//! Columns that a report computes on request: exact percentiles, what waits were spent with, and the number of threads.
//!
//! The trace is read twice. The first pass counts times in buckets, which tells the bucket of each percentile: of the times 1, 70 and 71 ns, the
//! median is the first time in the bucket of 70. The second pass counts every different time in those buckets alone. Memory therefore grows with
//! the number of buckets, not with the trace.

use std::{collections::hash_map::Entry, hash::Hash};

use rustc_hash::{FxHashMap, FxHashSet};
use trace_format::TaskId;

use super::columns::Extra;
use crate::{buckets::bucket, key::RowKey};
use intervals::engine::{Hold, HoldState};

/// The percentiles, in thousandths.
const RANKS: [i64; 4] = [500, 900, 990, 999];

/// The two kinds of times.
const HOLD: usize = 0;
const WAIT: usize = 1;

/// The number of occurrences of each time or bucket: of holds, and of waits.
type Counts<K> = [FxHashMap<K, i64>; 2];

/// Adds the counts of another reader or trace.
fn merge_counts<K: Eq + Hash>(all: &mut Counts<K>, other: Counts<K>) {
    for (all, other) in all.iter_mut().zip(other) {
        other.into_iter().for_each(|(key, count)| *all.entry(key).or_default() += count);
    }
}

/// The bucket of a percentile, and its position among the times of that bucket, from 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    bucket: u32,
    position: i64,
}

/// The places of the percentiles of each row: of its holds, and of its waits.
pub(super) type Places = FxHashMap<i64, [Vec<Place>; 2]>;

/// Returns the places of the percentiles of times with these counts by bucket; none of no times.
fn places(counts: &FxHashMap<u32, i64>) -> Vec<Place> {
    let mut counts: Vec<(u32, i64)> = counts.iter().map(|(bucket, count)| (*bucket, *count)).collect();
    counts.sort_unstable();
    let all: i64 = counts.iter().map(|(_, count)| count).sum();
    let place = |rank: i64| {
        // The nearest rank: the smallest time that `rank` thousandths of all times do not exceed.
        let mut position = (all * rank + 999) / 1000;
        for (bucket, count) in &counts {
            if position <= *count {
                return Some(Place { bucket: *bucket, position });
            }
            position -= count;
        }
        None
    };
    RANKS.into_iter().filter_map(place).collect()
}

/// Counts the holds and waits of a row by bucket.
#[derive(Debug, Default)]
pub(super) struct FirstPass {
    shortest_ns: [Option<i64>; 2],
    /// The time of waits that the source divides into spinning, sleep and run queue, and the last two of these parts.
    spent_ns: Option<[i64; 3]>,
    buckets: Counts<u32>,
    /// With the index of their trace.
    tasks: FxHashSet<(usize, TaskId)>,
}

/// Returns the times of a hold: its own if both ends were seen, and that of the wait before it.
fn times(hold: &Hold) -> [Option<i64>; 2] {
    let is_complete = hold.state == HoldState::Complete;
    [is_complete.then(|| hold.end_ns.saturating_sub(hold.start_ns)), hold.wait_ns.filter(|_| hold.contended)]
}

impl FirstPass {
    pub(super) fn add(&mut self, trace: usize, hold: &Hold) {
        self.tasks.insert((trace, hold.task));
        let [hold_ns, wait_ns] = times(hold);
        if let Some(ns) = hold_ns {
            self.count(HOLD, ns);
        }
        if let Some(ns) = wait_ns {
            self.count(WAIT, ns);
            self.add_spent(hold);
        }
    }

    /// Adds what the wait before a hold was spent with.
    pub(super) fn add_spent(&mut self, hold: &Hold) {
        let [_, wait_ns] = times(hold);
        if let (Some(wait_ns), Some(blocked_ns), Some(runq_ns)) = (wait_ns, hold.blocked_ns, hold.runq_ns) {
            self.merge_spent([wait_ns, blocked_ns, runq_ns]);
        }
    }

    fn merge_spent(&mut self, other: [i64; 3]) {
        let all = self.spent_ns.get_or_insert_default();
        all.iter_mut().zip(other).for_each(|(sum, ns)| *sum = sum.saturating_add(ns));
    }

    fn count(&mut self, kind: usize, ns: i64) {
        *self.buckets[kind].entry(bucket(ns)).or_default() += 1;
        let shortest_ns = &mut self.shortest_ns[kind];
        *shortest_ns = Some(shortest_ns.map_or(ns, |shortest| shortest.min(ns)));
    }

    fn merge(&mut self, other: Self) {
        let Self { shortest_ns, spent_ns, buckets, tasks } = other;
        for (all, of) in self.shortest_ns.iter_mut().zip(shortest_ns) {
            *all = all.iter().copied().chain(of).min();
        }
        spent_ns.into_iter().for_each(|spent| self.merge_spent(spent));
        merge_counts(&mut self.buckets, buckets);
        self.tasks.extend(tasks);
    }

    /// Returns what waits were spent with, where the source knows it.
    fn spent(&self) -> Extra {
        let [wait_ns, blocked_ns, runq_ns] = self.spent_ns.map_or([None; 3], |ns| ns.map(Some));
        let spin_ns = wait_ns.zip(blocked_ns).zip(runq_ns);
        let spin_ns = spin_ns.map(|((wait_ns, blocked_ns), runq_ns)| wait_ns - blocked_ns - runq_ns);
        Extra { spin_ns, blocked_ns, runq_ns, ..Extra::default() }
    }
}

/// The buckets to look at in the second pass over a trace: of holds, and of waits.
pub(super) type Wanted = FxHashMap<RowKey, [Vec<Place>; 2]>;

/// Returns the buckets to look at in the second pass over a trace with these row ids.
pub(super) fn wanted_of(places: &Places, ids: &FxHashMap<RowKey, i64>) -> Wanted {
    ids.iter().filter_map(|(key, id)| Some((*key, places.get(id)?.clone()))).collect()
}

/// Counts every different time in the buckets of percentiles.
#[derive(Debug)]
pub(super) struct SecondPass<'a> {
    wanted: &'a Wanted,
    times: FxHashMap<RowKey, Counts<i64>>,
}

impl<'a> SecondPass<'a> {
    pub(super) fn new(wanted: &'a Wanted) -> Self {
        Self { wanted, times: FxHashMap::default() }
    }

    pub(super) fn add(&mut self, row: RowKey, hold: &Hold) {
        for (kind, ns) in times(hold).into_iter().enumerate() {
            if let Some(ns) = ns {
                self.count(row, kind, ns);
            }
        }
    }

    fn count(&mut self, row: RowKey, kind: usize, ns: i64) {
        let bucket = bucket(ns);
        if self.wanted.get(&row).is_some_and(|wanted| wanted[kind].iter().any(|of| of.bucket == bucket)) {
            *self.times.entry(row).or_default()[kind].entry(ns).or_default() += 1;
        }
    }
}

/// The counts of both passes over all traces, by row id.
#[derive(Debug, Default)]
pub(super) struct Percentiles {
    rows: FxHashMap<i64, FirstPass>,
    times: FxHashMap<i64, Counts<i64>>,
}

impl Percentiles {
    /// Adds what a reader counted for a row in the first pass over a trace.
    pub(super) fn add_first(&mut self, row: i64, pass: FirstPass) {
        match self.rows.entry(row) {
            Entry::Vacant(entry) => drop(entry.insert(pass)),
            Entry::Occupied(mut entry) => entry.get_mut().merge(pass),
        }
    }

    /// Adds what a reader counted in the second pass over a trace.
    pub(super) fn add_second(&mut self, pass: SecondPass<'_>, ids: &FxHashMap<RowKey, i64>) {
        for (key, counts) in pass.times {
            merge_counts(self.times.entry(ids[&key]).or_default(), counts);
        }
    }

    /// Finds the places of the percentiles, and forgets the counts of buckets.
    pub(super) fn places(&mut self) -> Places {
        let of = |pass: &mut FirstPass| std::mem::take(&mut pass.buckets).map(|counts| places(&counts));
        self.rows.iter_mut().map(|(row, pass)| (*row, of(pass))).collect()
    }

    /// Returns what waits were spent with, by row; the other columns are null.
    pub(super) fn spent(&self) -> impl Iterator<Item = (i64, Extra)> {
        self.rows.iter().map(|(row, pass)| (*row, pass.spent()))
    }

    /// Returns all columns on request, by row.
    pub(super) fn extra(mut self, places: &Places) -> impl Iterator<Item = (i64, Extra)> {
        self.rows.into_iter().map(move |(row, pass)| {
            let times = self.times.remove(&row).unwrap_or_default();
            let [hold, wait] = [HOLD, WAIT].map(|kind| percentiles(&times[kind], &places[&row][kind]));
            let [min_ns, wait_min_ns] = pass.shortest_ns;
            let [p50_ns, p90_ns, p99_ns, p999_ns] = hold;
            let [wait_p50_ns, wait_p90_ns, wait_p99_ns, wait_p999_ns] = wait;
            let (threads, spent) = (Some(pass.tasks.len() as i64), pass.spent());
            let holds = Extra { min_ns, p50_ns, p90_ns, p99_ns, p999_ns, threads, ..spent };
            (row, Extra { wait_min_ns, wait_p50_ns, wait_p90_ns, wait_p99_ns, wait_p999_ns, ..holds })
        })
    }
}

/// Returns the times at these places; null of no times.
fn percentiles(times: &FxHashMap<i64, i64>, places: &[Place]) -> [Option<i64>; 4] {
    let mut sorted: Vec<(i64, i64)> = times.iter().map(|(ns, count)| (*ns, *count)).collect();
    sorted.sort_unstable();
    let time = |place: &Place| {
        let in_bucket = sorted.iter().filter(|(ns, _)| bucket(*ns) == place.bucket);
        let mut up_to = in_bucket.scan(0, |sum, (ns, count)| {
            *sum += count;
            Some((*ns, *sum))
        });
        up_to.find(|(_, up_to)| *up_to >= place.position).map(|(ns, _)| ns)
    };
    std::array::from_fn(|at| places.get(at).and_then(time))
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, test_runner::Config};

    use super::*;

    fn of(times: &[i64]) -> [Option<i64>; 4] {
        let ids = FxHashMap::from_iter([(RowKey::Host, 0)]);
        let mut first = FirstPass::default();
        times.iter().for_each(|ns| first.count(HOLD, *ns));
        let mut all = Percentiles::default();
        all.add_first(0, first);
        let places = all.places();
        let wanted = wanted_of(&places, &ids);
        let mut second = SecondPass::new(&wanted);
        times.iter().for_each(|ns| second.count(RowKey::Host, HOLD, *ns));
        all.add_second(second, &ids);
        let (_, extra) = all.extra(&places).next().unwrap();
        [extra.p50_ns, extra.p90_ns, extra.p99_ns, extra.p999_ns]
    }

    #[test]
    fn percentiles_of_few_times_are_among_them() {
        assert_eq!(of(&[]), [None; 4]);
        assert_eq!(of(&[7]), [Some(7); 4]);
        assert_eq!(of(&[1_000_000, 2]), [Some(2), Some(1_000_000), Some(1_000_000), Some(1_000_000)]);
        let thousand: Vec<i64> = (1..=1000).map(|i| i * 1001).rev().collect();
        assert_eq!(of(&thousand), [500, 900, 990, 999].map(|rank| Some(rank * 1001)));
    }

    proptest! {
        #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(crate::testing::cases(500)) })]

        #[test]
        fn percentiles_are_those_of_the_sorted_times(
            times in vec(prop_oneof![0..100i64, 10_000..11_000i64, 0..=i64::MAX], 1..300),
        ) {
            let mut sorted = times.clone();
            sorted.sort_unstable();
            let at = |rank: i64| sorted[(sorted.len() * rank as usize).div_ceil(1000) - 1];
            prop_assert_eq!(of(&times), RANKS.map(|rank| Some(at(rank))));
        }
    }
}
