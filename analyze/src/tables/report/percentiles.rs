//! Columns that a report computes on request: exact percentiles, what waits were spent with, and the number of threads.
//!
//! The trace is read twice. The first pass counts times in buckets, which tells the bucket of each percentile. The second pass
//! counts every different time in those buckets alone. Memory therefore grows with the number of buckets, not with the trace.
//! Counts leave the readers as frames; cumulative sums over them find the percentiles.

use std::{collections::hash_map::Entry, hash::Hash};

use polars::{
    frame::DataFrame,
    prelude::{
        Expr, IntoLazy, JoinArgs, JoinType, LazyFrame, PolarsResult, SortMultipleOptions, UnionArgs, col,
        concat, lit,
    },
};
use rustc_hash::{FxHashMap, FxHashSet};
use trace_format::TaskId;

use crate::{
    engine::{Hold, HoldState},
    tables::{
        buckets::bucket,
        frame::{Lines, Sums as _, lines, masked, sums},
        key::RowKey,
    },
};

/// The percentiles, in thousandths.
const RANKS: [i64; 4] = [500, 900, 990, 999];

/// The names of their columns, of holds and of waits.
const NAMES: [[&str; 4]; 2] =
    [["p50", "p90", "p99", "p999"], ["wait_p50", "wait_p90", "wait_p99", "wait_p999"]];

/// The two kinds of times.
const HOLD: usize = 0;
const WAIT: usize = 1;

sums! {
    /// The sums of the first pass.
    pub(super) struct ExtraSums {
        min_hold_ns: Min,
        min_wait_ns: Min,
        /// Waits that the source divides into spinning, sleep and run queue.
        known_waits: Sum,
        known_wait_ns: Sum,
        blocked_ns: Sum,
        runq_ns: Sum,
        threads: Sum,
    }
}

/// The number of occurrences of each time or bucket: of holds, and of waits.
type Counts<K> = [FxHashMap<K, i64>; 2];

/// Adds the counts of another reader or trace.
fn merge_counts<K: Eq + Hash>(all: &mut Counts<K>, other: Counts<K>) {
    for (all, other) in all.iter_mut().zip(other) {
        other.into_iter().for_each(|(key, count)| *all.entry(key).or_default() += count);
    }
}

/// Counts the holds and waits of a row by bucket.
#[derive(Debug)]
pub(super) struct FirstPass {
    sums: ExtraSums,
    buckets: Counts<u32>,
    /// With the index of their trace.
    tasks: FxHashSet<(usize, TaskId)>,
}

impl Default for FirstPass {
    fn default() -> Self {
        let sums = ExtraSums { min_hold_ns: i64::MAX, min_wait_ns: i64::MAX, ..ExtraSums::default() };
        Self { sums, buckets: Default::default(), tasks: FxHashSet::default() }
    }
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
        let Some(wait_ns) = wait_ns else { return };
        self.count(WAIT, wait_ns);
        self.add_spent(hold);
    }

    /// Adds what the wait before a hold was spent with.
    pub(super) fn add_spent(&mut self, hold: &Hold) {
        let [_, Some(wait_ns)] = times(hold) else { return };
        if let (Some(blocked_ns), Some(runq_ns)) = (hold.blocked_ns, hold.runq_ns) {
            let sums = &mut self.sums;
            sums.known_waits += 1;
            sums.known_wait_ns = sums.known_wait_ns.saturating_add(wait_ns);
            sums.blocked_ns = sums.blocked_ns.saturating_add(blocked_ns);
            sums.runq_ns = sums.runq_ns.saturating_add(runq_ns);
        }
    }

    fn count(&mut self, kind: usize, ns: i64) {
        *self.buckets[kind].entry(bucket(ns)).or_default() += 1;
        let min = if kind == HOLD { &mut self.sums.min_hold_ns } else { &mut self.sums.min_wait_ns };
        *min = ns.min(*min);
    }
}

/// Counts every different time in the buckets of percentiles.
#[derive(Debug)]
pub(super) struct SecondPass<'a> {
    wanted: &'a FxHashMap<RowKey, [Vec<u32>; 2]>,
    times: FxHashMap<RowKey, Counts<i64>>,
}

impl<'a> SecondPass<'a> {
    pub(super) fn new(wanted: &'a FxHashMap<RowKey, [Vec<u32>; 2]>) -> Self {
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
        if self.wanted.get(&row).is_some_and(|wanted| wanted[kind].contains(&bucket(ns))) {
            *self.times.entry(row).or_default()[kind].entry(ns).or_default() += 1;
        }
    }
}

sums! {
    /// The number of occurrences of a time or bucket, and its bucket.
    struct TimeCount {
        count: Sum,
        bucket: Max,
    }
}

/// The number of lines that polars gets at a time, so that memory does not grow with the rows.
const CHUNK: usize = 1 << 16;

/// Computes a frame from the counts of some rows at a time.
fn in_chunks<K: Into<i64>>(
    rows: impl Iterator<Item = (i64, Counts<K>)>,
    bucket_of: impl Fn(i64) -> i64,
    compute: impl Fn(DataFrame) -> PolarsResult<DataFrame>,
) -> PolarsResult<DataFrame> {
    let new = || Lines::<TimeCount, 3>::new(["row", "kind", "ns"]);
    let (mut frames, mut lines) = (Vec::new(), new());
    for (row, kinds) in rows {
        for (kind, counts) in (0..).zip(kinds) {
            for (ns, count) in counts {
                let ns = ns.into();
                lines.push([row, kind, ns], &TimeCount { count, bucket: bucket_of(ns) });
            }
        }
        if lines.len() >= CHUNK {
            frames.push(compute(std::mem::replace(&mut lines, new()).frame()?)?.lazy());
        }
    }
    frames.push(compute(lines.frame()?)?.lazy());
    concat(frames, UnionArgs::default())?.collect()
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
            Entry::Occupied(entry) => {
                let all = entry.into_mut();
                all.sums.merge(&pass.sums);
                all.tasks.extend(pass.tasks);
                merge_counts(&mut all.buckets, pass.buckets);
            }
        }
    }

    /// Adds what a reader counted in the second pass over a trace.
    pub(super) fn add_second(&mut self, pass: SecondPass<'_>, ids: &FxHashMap<RowKey, i64>) {
        for (key, counts) in pass.times {
            merge_counts(self.times.entry(ids[&key]).or_default(), counts);
        }
    }

    /// Finds the bucket of each percentile, and its position among the times of that bucket, from 1.
    pub(super) fn wanted(&mut self) -> PolarsResult<DataFrame> {
        let rows = self.rows.iter_mut().map(|(row, pass)| (*row, std::mem::take(&mut pass.buckets)));
        in_chunks(rows, |bucket| bucket, positions)
    }

    /// Returns a line per row with what waits were spent with; the other columns are null.
    pub(super) fn spent(&self) -> PolarsResult<LazyFrame> {
        let mut sums = Lines::new(["row"]);
        self.rows.iter().for_each(|(row, pass)| sums.push([*row], &pass.sums));
        let others = NAMES.into_iter().flatten().chain(["min", "wait_min", "threads"]);
        // No count is below 0.
        let null = |name: &str| masked(col("row"), col("known_waits").lt(lit(0))).alias(name);
        let columns = std::iter::once(col("row")).chain(spent()).chain(others.map(null));
        Ok(sums.frame()?.lazy().select(columns.collect::<Vec<_>>()))
    }

    /// Returns a line per row with all columns on request.
    pub(super) fn extra(self, wanted: DataFrame) -> PolarsResult<LazyFrame> {
        let ranks = wanted.lazy();
        let percentiles = in_chunks(
            self.times.into_iter(),
            |ns| bucket(ns).into(),
            |times| {
                let of_bucket = ["row", "kind", "bucket"].map(col);
                times
                    .lazy()
                    .sort(["row", "kind", "ns"], SortMultipleOptions::default())
                    .with_columns([col("count").cum_sum(false).over(&of_bucket)?.alias("up_to")])
                    .join(ranks.clone(), &of_bucket, &of_bucket, JoinArgs::new(JoinType::Inner))
                    .filter(col("up_to").gt_eq(col("position")))
                    .group_by(["row", "kind", "rank"].map(col))
                    .agg([col("ns").min()])
                    .collect()
            },
        )?;
        let column = |(kind, names): (usize, [&'static str; 4])| {
            let is_kind = col("kind").eq(lit(kind as i64));
            RANKS.into_iter().zip(names).map(move |(rank, name)| {
                let is_here = is_kind.clone().and(col("rank").eq(lit(rank)));
                col("ns").filter(is_here).min().alias(name)
            })
        };
        let columns: Vec<Expr> = NAMES.into_iter().enumerate().flat_map(column).collect();
        let percentiles = percentiles.lazy().group_by([col("row")]).agg(columns);
        let mut sums = Lines::new(["row"]);
        for (row, FirstPass { sums: of_row, tasks, .. }) in self.rows {
            sums.push([row], &ExtraSums { threads: tasks.len() as i64, ..of_row });
        }
        let seen = |name: &str| masked(col(name), col(name).neq(lit(i64::MAX)));
        let own = [
            col("row"),
            col("threads"),
            seen("min_hold_ns").alias("min"),
            seen("min_wait_ns").alias("wait_min"),
        ];
        let sums = sums.frame()?.lazy().select(own.into_iter().chain(spent()).collect::<Vec<_>>());
        Ok(sums.left_join(percentiles, col("row"), col("row")))
    }
}

/// Returns what waits were spent with, where the source knows it.
fn spent() -> [Expr; 3] {
    let known = |of: Expr| masked(of, col("known_waits").gt(lit(0)));
    let spin = col("known_wait_ns") - col("blocked_ns") - col("runq_ns");
    [
        known(spin).alias("spin"),
        known(col("blocked_ns")).alias("blocked"),
        known(col("runq_ns")).alias("runq"),
    ]
}

/// Returns the bucket and the position in it of each percentile, from the counts of some rows by bucket.
fn positions(counts: DataFrame) -> PolarsResult<DataFrame> {
    let of_row = ["row", "kind"].map(col);
    let counts = counts
        .lazy()
        .sort(["row", "kind", "ns"], SortMultipleOptions::default())
        .with_columns([
            col("count").cum_sum(false).over(&of_row)?.alias("up_to"),
            col("count").sum().over(&of_row)?.alias("all"),
        ])
        .collect()?;
    let of_rank = |rank: i64| {
        // The nearest rank: the smallest time that `rank` thousandths of all times do not exceed.
        let target = (col("all") * lit(rank) + lit(999)) / lit(1000);
        let position = target - col("up_to") + col("count");
        let is_here = col("position").gt(lit(0)).and(col("position").lt_eq(col("count")));
        let columns = ["row", "kind", "bucket", "position", "rank"].map(col);
        let positions = [position.alias("position"), lit(rank).alias("rank")];
        counts.clone().lazy().with_columns(positions).filter(is_here).select(columns)
    };
    concat(RANKS.map(of_rank), UnionArgs::default())?.collect()
}

/// Returns the buckets to look at in the second pass over a trace with these row ids.
pub(super) fn wanted_of(
    wanted: &DataFrame,
    ids: &FxHashMap<RowKey, i64>,
) -> PolarsResult<FxHashMap<RowKey, [Vec<u32>; 2]>> {
    let mut by_row: FxHashMap<i64, [Vec<u32>; 2]> = FxHashMap::default();
    for [row, kind, bucket] in lines(wanted, ["row", "kind", "bucket"])? {
        by_row.entry(row).or_default()[kind as usize].push(bucket as u32);
    }
    let of_key = |(key, id): (&RowKey, &i64)| Some((*key, by_row.get(id)?.clone()));
    Ok(ids.iter().filter_map(of_key).collect())
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, test_runner::Config};

    use super::*;
    use crate::tables::frame::values;

    fn percentiles(times: &[i64]) -> [Option<i64>; 4] {
        let ids = FxHashMap::from_iter([(RowKey::Host, 0)]);
        let mut first = FirstPass::default();
        times.iter().for_each(|ns| first.count(HOLD, *ns));
        let mut all = Percentiles::default();
        all.add_first(0, first);
        let wanted = all.wanted().unwrap();
        let of_trace = wanted_of(&wanted, &ids).unwrap();
        let mut second = SecondPass::new(&of_trace);
        times.iter().for_each(|ns| second.count(RowKey::Host, HOLD, *ns));
        all.add_second(second, &ids);
        let frame = all.extra(wanted).unwrap().collect().unwrap();
        NAMES[HOLD].map(|name| values(&frame, name).unwrap()[0])
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
        #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(crate::testing::cases(500)) })]

        #[test]
        fn percentiles_are_those_of_the_sorted_times(
            times in vec(prop_oneof![0..100i64, 10_000..11_000i64, 0..=i64::MAX], 1..300),
        ) {
            let mut sorted = times.clone();
            sorted.sort_unstable();
            let at = |rank: i64| sorted[(sorted.len() * rank as usize).div_ceil(1000) - 1];
            prop_assert_eq!(percentiles(&times), RANKS.map(|rank| Some(at(rank))));
        }
    }
}
