//! The lengths of the holds and waits of a lock, and its waits over time.
//!
//! The holds and waits are the same as in a report: holds of which both ends were seen, waits that ended with
//! the lock and whose begin was seen. So counts, sums and percentiles equal the report's.

use std::collections::BTreeMap;

use super::grid::Grid;
use crate::charges::add;
use intervals::items::{HoldState, Item, Sink};
use tables::buckets::{Bucket, bucket, bucket_end};

/// The percentiles, in thousandths.
pub const RANKS: [u64; 4] = [500, 900, 990, 999];

/// Times are kept until there are this many; beyond that, a percentile is the end of its bucket, at most 1.6
/// % more.
const MAX_EXACT: usize = 1 << 20;
/// Columns of the waits over time.
const COLUMNS: usize = 160;
/// Buckets that are one in a distribution: there are four per power of two.
const COARSE: u32 = 4;
/// Buckets that are one in the waits over time: there are eight per power of two.
const FINE: u32 = 3;

/// Lengths of holds and waits, and waits over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Overall {
    /// Lengths of holds.
    pub holds: Distribution,
    /// Lengths of waits.
    pub waits: Distribution,
    /// Waits by the time at which the lock was acquired.
    pub latencies: Latencies,
}

/// The distribution of times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// The number of times.
    pub count: u64,
    /// Their sum, in ns.
    pub total_ns: i64,
    /// The longest, in ns.
    pub max_ns: i64,
    /// Counts by length, ascending. Empty bands are left out.
    pub bands: Vec<Bucket>,
    /// The percentiles of [`RANKS`], in ns; `None` without times.
    pub percentiles: Option<[i64; RANKS.len()]>,
}

/// Waits over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Latencies {
    /// The columns.
    pub grid: Grid,
    /// Counts by column and length. Empty ones are left out.
    pub cells: Vec<LatencyCell>,
    /// By column: the median and the 99th percentile, in ns; `None` without waits.
    pub percentiles: Vec<Option<(i64, i64)>>,
}

/// Waits of similar length in one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyCell {
    /// The column.
    pub column: usize,
    /// The lengths and the number of waits.
    pub band: Bucket,
}

/// Counts times.
#[derive(Debug, Default)]
struct Counter {
    count: u64,
    total_ns: i64,
    max_ns: i64,
    buckets: BTreeMap<u32, u64>,
    exact: Vec<i64>,
}

impl Counter {
    fn add(&mut self, ns: i64) {
        self.count += 1;
        add(&mut self.total_ns, ns);
        self.max_ns = self.max_ns.max(ns);
        *self.buckets.entry(bucket(ns)).or_default() += 1;
        if self.exact.len() < MAX_EXACT {
            self.exact.push(ns);
        }
    }

    fn finish(&self) -> Distribution {
        let mut exact = self.exact.clone();
        exact.sort_unstable();
        let percentile = |permille: u64| match exact.len() as u64 {
            kept if kept == self.count => exact[rank(self.count, permille) as usize - 1],
            _ => percentile(self.buckets.iter().map(|(at, n)| (bucket_end(*at), *n)), permille).unwrap_or(0),
        };
        let percentiles = (self.count > 0).then(|| RANKS.map(percentile));
        let mut coarse: BTreeMap<u32, u64> = BTreeMap::new();
        for (at, count) in &self.buckets {
            *coarse.entry(at >> COARSE).or_default() += count;
        }
        let bands = coarse.into_iter().map(|(at, count)| band(at, COARSE, count)).collect();
        let Self { count, total_ns, max_ns, .. } = *self;
        Distribution { count, total_ns, max_ns, bands, percentiles }
    }
}

/// Returns the times of buckets whose numbers begin with the same bits.
fn band(at: u32, bits: u32, count: u64) -> Bucket {
    let first = at << bits;
    let from_ns = first.checked_sub(1).map_or(0, |before| bucket_end(before).saturating_add(1));
    Bucket { from_ns, to_ns: bucket_end(first + (1 << bits) - 1), count }
}

/// Returns the index, from 1, of the smallest time that this share of the times does not exceed.
fn rank(count: u64, permille: u64) -> u64 {
    u64::try_from((u128::from(count) * u128::from(permille)).div_ceil(1000)).unwrap_or(count).max(1)
}

/// Returns a percentile of ascending times and their counts.
fn percentile(times: impl Iterator<Item = (i64, u64)> + Clone, permille: u64) -> Option<i64> {
    let wanted = rank(times.clone().map(|(_, n)| n).sum(), permille);
    let mut seen = 0;
    times.into_iter().find_map(|(ns, n)| {
        seen += n;
        (seen >= wanted).then_some(ns)
    })
}

/// Counts the holds of one lock.
#[derive(Debug)]
pub(super) struct Counting {
    least_ns: i64,
    grid: Grid,
    holds: Counter,
    waits: Counter,
    cells: BTreeMap<(usize, u32), u64>,
}

impl Counting {
    /// Counts holds that end at `least_ns` or later; their waits over time have columns between `from_ns` and
    /// `to_ns`.
    pub(super) fn new(least_ns: i64, from_ns: i64, to_ns: i64) -> Self {
        let (holds, waits) = (Counter::default(), Counter::default());
        Self { least_ns, grid: Grid::new(from_ns, to_ns, COLUMNS), holds, waits, cells: BTreeMap::new() }
    }

    pub(super) fn finish(&self) -> Overall {
        let grid = self.grid;
        let cell = |(&(column, at), count): (&(usize, u32), &u64)| {
            let band = band(at, FINE, *count);
            LatencyCell { column, band }
        };
        let cells: Vec<LatencyCell> = self.cells.iter().map(cell).collect();
        let mut percentiles = vec![None; grid.columns()];
        for of_column in cells.chunk_by(|a, b| a.column == b.column) {
            let times = of_column.iter().map(|cell| (cell.band.to_ns, cell.band.count));
            percentiles[of_column[0].column] = percentile(times.clone(), 500).zip(percentile(times, 990));
        }
        let latencies = Latencies { grid, cells, percentiles };
        Overall { holds: self.holds.finish(), waits: self.waits.finish(), latencies }
    }
}

impl Sink for Counting {
    fn push(&mut self, item: Item<'_>) {
        let Item::Hold(hold) = item else { return };
        if hold.end_ns < self.least_ns {
            return;
        }
        if hold.state == HoldState::Complete {
            self.holds.add(hold.end_ns.saturating_sub(hold.start_ns));
        }
        if let Some(ns) = hold.wait_ns.filter(|_| hold.contended && hold.is_credited()) {
            self.waits.add(ns);
            let cell = (self.grid.column_of(hold.start_ns), bucket(ns) >> FINE);
            *self.cells.entry(cell).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_smallest_time_that_its_share_does_not_exceed() {
        let mut counter = Counter::default();
        (1..=1_000).rev().for_each(|ns| counter.add(ns));
        let counted = counter.finish();
        assert_eq!(counted.percentiles, Some([500, 900, 990, 999]));
        assert_eq!((counted.count, counted.total_ns, counted.max_ns), (1_000, 500_500, 1_000));
        assert_eq!(counted.bands.iter().map(|band| band.count).sum::<u64>(), 1_000);
        assert!(counted.bands.windows(2).all(|pair| pair[0].to_ns < pair[1].from_ns));
    }

    #[test]
    fn no_times_have_no_percentiles() {
        assert_eq!(Counter::default().finish(), Distribution::default());
    }
}
