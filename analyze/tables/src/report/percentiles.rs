//! Columns that a report computes on request: exact percentiles, what waits were spent with, and the number
//! of threads.
//!
//! The trace is read twice. The first pass counts times in buckets, which tells the bucket of each
//! percentile: of the times 1, 70 and 71 ns, the median is the first time in the bucket of 70. The second
//! pass counts every different time in those buckets alone. Memory therefore grows with the number of
//! buckets, not with the trace.

use polars::{
    frame::DataFrame,
    prelude::{IntoLazy, LazyFrame, PolarsResult, SortMultipleOptions, col, lit},
};
use rustc_hash::{FxHashMap, FxHashSet};
use trace_format::TaskId;

use super::hold_sums::Rows;
use crate::{
    buckets::{bucket, bucket_end},
    frame::{Count, Lines, failed, known, lines, sums},
    key::{By, Key, RowKey},
    rank::{Row, count, duration},
    row_ids::RowIds,
};
use intervals::{
    engine::{Hold, HoldState},
    input::Input,
    items::{Columns, Item, Needs, Sink},
};
use output::{Column, error::AnalyzeError};

/// The two kinds of times, holds and waits. Each has a column of the shortest time, and columns of
/// percentiles.
const COLUMNS: [[&str; 5]; 2] = [
    ["min_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns"],
    ["wait_min_ns", "wait_p50_ns", "wait_p90_ns", "wait_p99_ns", "wait_p999_ns"],
];

/// The percentiles of these columns, in thousandths.
const RANKS: [i64; 5] = [0, 500, 900, 990, 999];

/// A row, a kind, and a time or its bucket.
type Time = [i64; 3];

/// The number of each time.
type Times = FxHashMap<Time, i64>;

/// Declares the columns. Holds count if both of their ends were seen, waits if they ended in a hold and their
/// begin was seen. A percentile is the smallest time that this share of them does not exceed.
pub(super) fn columns() -> Vec<Column<Row<Key>>> {
    vec![
        duration("min", "The shortest hold."),
        duration("p50", "The median of the holds."),
        duration("p90", "90th percentile of the holds."),
        duration("p99", "99th percentile of the holds."),
        duration("p999", "99.9th percentile of the holds."),
        duration("wait_min", "The shortest wait."),
        duration("wait_p50", "The median of the waits, over the acquisitions that waited."),
        duration("wait_p90", "90th percentile of the waits."),
        duration("wait_p99", "99th percentile of the waits."),
        duration("wait_p999", "99.9th percentile of the waits."),
        duration("spin", "The part of the waits spent on a CPU, where the source records it.").sum(),
        duration("blocked", "The part of the waits spent asleep.").sum(),
        duration("runq", "The part of the waits spent ready to run, without a CPU.").sum(),
        count("threads", "Threads that acquired the lock."),
    ]
}

/// Adds the columns of what waits were spent with, which take no second pass.
pub(super) fn with_spent(rows: LazyFrame) -> LazyFrame {
    let spin = col("parted_wait_ns") - col("parted_blocked_ns") - col("parted_runq_ns");
    let columns =
        [("spin_ns", spin), ("blocked_ns", col("parted_blocked_ns")), ("runq_ns", col("parted_runq_ns"))];
    rows.with_columns(columns.map(|(name, of)| known(of, col("parted")).alias(name)))
}

/// Returns the times of a hold that count: its own length if both ends were seen, and the length of the wait
/// before it.
fn times(hold: &Hold) -> impl Iterator<Item = (i64, i64)> {
    let is_complete = hold.state == HoldState::Complete;
    let hold_ns = is_complete.then(|| hold.end_ns.saturating_sub(hold.start_ns));
    let times = [hold_ns, hold.wait_ns.filter(|_| hold.contended)];
    (0..).zip(times).filter_map(|(kind, ns)| Some((kind, ns?)))
}

sums! {
    /// A task of a row: 1, however many readers saw it.
    struct TaskSums {
        threads: Max,
    }
}

/// The counts of one reader in the first pass, by the index of a row.
#[derive(Debug, Default)]
pub(super) struct FirstPass {
    buckets: FxHashMap<(u32, i64, u32), i64>,
    tasks: FxHashSet<(u32, TaskId)>,
}

impl FirstPass {
    pub(super) fn add(&mut self, row: u32, hold: &Hold) {
        self.tasks.insert((row, hold.task));
        for (kind, ns) in times(hold) {
            *self.buckets.entry((row, kind, bucket(ns))).or_default() += 1;
        }
    }
}

/// The counts of all readers and traces.
#[derive(Debug)]
pub(super) struct Percentiles {
    buckets: Lines<Count, 3>,
    tasks: Lines<TaskSums, 3>,
}

impl Default for Percentiles {
    fn default() -> Self {
        Self { buckets: Lines::new(["row", "kind", "ns"]), tasks: Lines::new(["row", "trace", "task"]) }
    }
}

impl Percentiles {
    /// Adds what a reader counted in the first pass over a trace. `rows` are the ids of its rows.
    pub(super) fn add(&mut self, trace: usize, rows: &[i64], pass: FirstPass) {
        for ((row, kind, bucket), count) in pass.buckets {
            self.buckets.push([rows[row as usize], kind, bucket.into()], &Count { count });
        }
        for (row, task) in pass.tasks {
            self.tasks.push([rows[row as usize], trace as i64, task.0.into()], &TaskSums { threads: 1 });
        }
    }

    /// Adds the columns to the rows that were found, for which every trace is read again.
    pub(super) fn join(
        self,
        rows: LazyFrame,
        (by, readers): (By, usize),
        inputs: &[Input<'_>],
        ids: &RowIds,
    ) -> Result<LazyFrame, AnalyzeError> {
        let buckets = self.buckets.merge().and_then(LazyFrame::collect).map_err(failed)?;
        let wanted = buckets_of_percentiles(&buckets).map_err(failed)?;
        let mut times = Lines::new(["row", "kind", "ns"]);
        for (trace, input) in inputs.iter().enumerate() {
            let (rows, ids) = (Rows::new(input, by), ids.of_trace(trace));
            let sink = || SecondPass { rows, ids, wanted: &wanted, times: Times::default() };
            for sink in input.run_apart(readers, sink)?.0 {
                sink.times.into_iter().for_each(|(time, count)| times.push(time, &Count { count }));
            }
        }
        let threads = self.tasks.merge().map_err(failed)?.group_by([col("row")]);
        let rows = rows.left_join(threads.agg([col("threads").sum()]), col("row"), col("row"));
        // A row without an acquisition has no thread that acquired the lock.
        let rows = rows.with_columns([col("threads").fill_null(lit(0))]);
        add_percentiles(rows, &buckets, &wanted, times).map_err(failed)
    }
}

/// Returns the row, the kind and the bucket of every percentile.
fn buckets_of_percentiles(buckets: &DataFrame) -> PolarsResult<FxHashSet<Time>> {
    let mut wanted = FxHashSet::default();
    for (kind, [min, p50, p90, p99, p999]) in (0..).zip(COLUMNS) {
        let ranked = ranked(buckets, kind).collect()?;
        for [row, of_row @ ..] in lines::<6>(&ranked, ["row", min, p50, p90, p99, p999])? {
            wanted.extend(of_row.map(|bucket| [row, kind, bucket]));
        }
    }
    Ok(wanted)
}

/// Adds the percentiles to the rows. All times of a bucket without a percentile count as its longest.
fn add_percentiles(
    rows: LazyFrame,
    buckets: &DataFrame,
    wanted: &FxHashSet<Time>,
    mut times: Lines<Count, 3>,
) -> PolarsResult<LazyFrame> {
    for [row, kind, bucket, count] in lines(buckets, ["row", "kind", "ns", "count"])? {
        if !wanted.contains(&[row, kind, bucket]) {
            times.push([row, kind, bucket_end(bucket as u32)], &Count { count });
        }
    }
    let times = times.merge()?.collect()?;
    let join = |rows: LazyFrame, kind| rows.left_join(ranked(&times, kind), col("row"), col("row"));
    Ok((0..).take(COLUMNS.len()).fold(rows, join))
}

/// Returns the percentiles of each row, of times of one kind. The nearest rank is the smallest time that
/// `rank` thousandths of all times do not exceed.
fn ranked(times: &DataFrame, kind: i64) -> LazyFrame {
    let time = |(name, rank): (&str, i64)| {
        let position = (col("count").sum() * lit(rank) + lit(999)) / lit(1000);
        col("ns").filter(col("count").cum_sum(false).gt_eq(position)).min().alias(name)
    };
    let of_kind = times.clone().lazy().filter(col("kind").eq(lit(kind)));
    let sorted = of_kind.sort(["ns"], SortMultipleOptions::default());
    sorted
        .group_by([col("row")])
        .agg(COLUMNS[kind as usize].into_iter().zip(RANKS).map(time).collect::<Vec<_>>())
}

/// Counts every different time in the buckets of percentiles.
struct SecondPass<'a> {
    rows: Rows<'a>,
    ids: &'a FxHashMap<RowKey, i64>,
    wanted: &'a FxHashSet<Time>,
    times: Times,
}

impl Sink for SecondPass<'_> {
    fn needs(&self) -> Needs {
        Needs::columns(Columns::Times)
    }

    fn push(&mut self, item: Item<'_>) {
        if let Item::Hold(hold) = item
            && let Some(row) = self.rows.of_credited(hold)
        {
            let row = self.ids[&row];
            for (kind, ns) in times(hold) {
                if self.wanted.contains(&[row, kind, bucket(ns).into()]) {
                    *self.times.entry([row, kind, ns]).or_default() += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, test_runner::Config};

    use super::*;
    use crate::frame::ints;

    /// Returns the percentiles of holds of this length, as two passes find them.
    fn of(times: &[i64]) -> [i64; 5] {
        let mut buckets = Lines::new(["row", "kind", "ns"]);
        times.iter().for_each(|ns| buckets.push([7, 0, bucket(*ns).into()], &Count { count: 1 }));
        let buckets = buckets.merge().unwrap().collect().unwrap();
        let wanted = buckets_of_percentiles(&buckets).unwrap();
        let mut second = Lines::new(["row", "kind", "ns"]);
        for ns in times.iter().filter(|ns| wanted.contains(&[7, 0, bucket(**ns).into()])) {
            second.push([7, 0, *ns], &Count { count: 1 });
        }
        let rows = DataFrame::new(1, vec![ints("row", vec![7])]).unwrap().lazy();
        let rows = add_percentiles(rows, &buckets, &wanted, second).unwrap().collect().unwrap();
        lines(&rows, COLUMNS[0]).unwrap()[0]
    }

    #[test]
    fn percentiles_of_few_times_are_among_them() {
        assert_eq!(of(&[7]), [7; 5]);
        assert_eq!(of(&[1_000_000, 2]), [2, 2, 1_000_000, 1_000_000, 1_000_000]);
        let thousand: Vec<i64> = (1..=1000).map(|i| i * 1001).rev().collect();
        assert_eq!(of(&thousand), [1, 500, 900, 990, 999].map(|rank| rank * 1001));
    }

    proptest! {
        #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(crate::testing::cases(500)) })]

        #[test]
        fn percentiles_are_those_of_the_sorted_times(
            times in vec(prop_oneof![0..100i64, 10_000..11_000i64, 0..=i64::MAX], 1..300),
        ) {
            let mut sorted = times.clone();
            sorted.sort_unstable();
            let at = |rank: i64| sorted[(sorted.len() * rank as usize).div_ceil(1000).max(1) - 1];
            prop_assert_eq!(of(&times), RANKS.map(at));
        }
    }
}
