//! Concurrent waits by column.
//!
//! Counts for each column the time of waits and the largest number of concurrent waits. Waits come in the
//! order of their ends, as the engine emits them. The largest number is exact, although no wait is kept: each
//! wait takes the slot that became free last before its begin, or a new one (a greedy colouring of
//! intervals). So a column needs as many slots as it has concurrent waits. Waits that cover a whole column
//! are only counted.
//!
//! A wait that arrives out of order may take one slot too many.

use super::{chart::Waiters, grid::Grid};

/// Counts concurrent waits on a grid.
#[derive(Debug)]
pub(super) struct WaiterCount {
    grid: Grid,
    columns: Vec<Column>,
    /// By column: waits that cover it as a whole, minus those that cover the previous one.
    covering: Vec<i64>,
}

#[derive(Clone, Debug, Default)]
struct Column {
    wait_ns: i64,
    /// The time at which each slot becomes free, in order.
    slots: Vec<i64>,
}

impl WaiterCount {
    pub(super) fn new(grid: Grid) -> Self {
        let columns = vec![Column::default(); grid.columns()];
        Self { grid, columns, covering: vec![0; grid.columns() + 1] }
    }

    /// Adds a wait that lies in the window.
    pub(super) fn add(&mut self, start_ns: i64, end_ns: i64) {
        if start_ns >= end_ns {
            return;
        }
        let Self { grid, columns, covering } = self;
        grid.spread(start_ns, end_ns, |column, ns| {
            columns[column].wait_ns = columns[column].wait_ns.saturating_add(ns);
        });
        let (first, last) = (grid.column_of(start_ns), grid.column_of(end_ns - 1));
        let mut covered = first..last + 1;
        if start_ns > grid.begin_of(first) {
            columns[first].add(start_ns, end_ns.min(grid.begin_of(first + 1)));
            covered.start += 1;
        }
        if end_ns < grid.begin_of(last + 1) {
            // A wait within one column has its slot already.
            if covered.contains(&last) {
                columns[last].add(start_ns.max(grid.begin_of(last)), end_ns);
            }
            covered.end -= 1;
        }
        if !covered.is_empty() {
            covering[covered.start] += 1;
            covering[covered.end] -= 1;
        }
    }

    pub(super) fn finish(self) -> Vec<Waiters> {
        let mut covering = 0;
        let column = |(column, change): (Column, i64)| {
            covering += change;
            let taken = i64::try_from(column.slots.len()).unwrap_or(i64::MAX);
            let peak = u32::try_from(taken.saturating_add(covering)).unwrap_or(u32::MAX);
            Waiters { peak, wait_ns: column.wait_ns }
        };
        self.columns.into_iter().zip(self.covering).map(column).collect()
    }
}

impl Column {
    /// Puts a wait from `start_ns` to `end_ns` into the slot that became free last.
    fn add(&mut self, start_ns: i64, end_ns: i64) {
        let free = self.slots.partition_point(|end| *end <= start_ns);
        if let Some(last) = free.checked_sub(1) {
            self.slots.remove(last);
        }
        let at = self.slots.partition_point(|end| *end <= end_ns);
        self.slots.insert(at, end_ns);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Counts at every nanosecond of every column.
    fn slow(grid: &Grid, waits: &[(i64, i64)]) -> Vec<Waiters> {
        let column = |column| {
            let times = grid.begin_of(column)..grid.begin_of(column + 1);
            let count = |ts: i64| waits.iter().filter(|(start, end)| *start <= ts && ts < *end).count();
            let counts: Vec<u32> = times.map(|ts| u32::try_from(count(ts)).unwrap()).collect();
            let wait_ns = counts.iter().map(|count| i64::from(*count)).sum();
            Waiters { peak: counts.into_iter().max().unwrap(), wait_ns }
        };
        (0..grid.columns()).map(column).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(crate::testing::cases(2_000)))]
        #[test]
        fn the_peak_is_that_of_a_count_at_every_nanosecond(
            span in 1i64..120,
            columns in 1usize..12,
            waits in prop::collection::vec((0i64..120, 0i64..60), 0..30),
        ) {
            let grid = Grid::new(0, span, columns);
            let inside = |&(start, length): &(i64, i64)| grid.clip(start, start + length);
            let mut waits: Vec<(i64, i64)> = waits.iter().filter_map(inside).collect();
            waits.sort_by_key(|(_, end)| *end);
            let mut fast = WaiterCount::new(grid);
            waits.iter().for_each(|(start, end)| fast.add(*start, *end));
            prop_assert_eq!(fast.finish(), slow(&grid, &waits));
        }
    }

    #[test]
    fn a_million_short_waits_of_one_task_need_one_slot_per_column() {
        let mut count = WaiterCount::new(Grid::new(0, 3_000_000, 10));
        (0..1_000_000).for_each(|i| count.add(3 * i, 3 * i + 2));
        assert!(count.columns.iter().all(|column| column.slots.len() <= 1));
        assert!(count.finish().iter().all(|column| column.peak == 1));
    }
}
