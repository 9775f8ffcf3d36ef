//! A window of time in columns of equal width.
//!
//! The parts of an interval in the columns add up to its length.

/// A window of time, cut into columns. No column is narrower than 1 ns, so that a short window has fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    from_ns: i64,
    to_ns: i64,
    columns: usize,
}

/// The most columns of a grid: more than the pixels of any screen, and few enough for 40 lanes to take a few
/// megabytes.
pub const MAX_COLUMNS: usize = 4096;

impl Grid {
    /// Returns the window from `from_ns` to `to_ns`, exclusive, in at most `columns` columns. An empty window
    /// is widened to 1 ns.
    pub fn new(from_ns: i64, to_ns: i64, columns: usize) -> Self {
        let from_ns = from_ns.min(i64::MAX - 1);
        // Every length within the window must fit into an i64.
        let to_ns = to_ns.clamp(from_ns + 1, from_ns.saturating_add(i64::MAX));
        let span = usize::try_from(to_ns.abs_diff(from_ns)).unwrap_or(usize::MAX);
        Self { from_ns, to_ns, columns: columns.clamp(1, span) }
    }

    /// Returns the start of the window, in ns.
    pub fn from_ns(&self) -> i64 {
        self.from_ns
    }

    /// Returns the end of the window, in ns.
    pub fn to_ns(&self) -> i64 {
        self.to_ns
    }

    /// Returns the number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Returns the length of the window, in ns.
    pub fn span_ns(&self) -> i128 {
        i128::from(self.to_ns) - i128::from(self.from_ns)
    }

    /// Returns the start of a column, in ns; for the number of columns, the end of the last one.
    pub fn begin_of(&self, column: usize) -> i64 {
        let offset = self.span_ns() * column.min(self.columns) as i128 / self.columns as i128;
        i64::try_from(i128::from(self.from_ns) + offset).unwrap_or(self.to_ns)
    }

    /// Returns the column of a time. Times outside of the window belong to the first or last column.
    pub fn column_of(&self, ts_ns: i64) -> usize {
        let offset = i128::from(ts_ns.clamp(self.from_ns, self.to_ns - 1)) - i128::from(self.from_ns);
        // Column i begins at floor(span * i / columns): the last i that begins at or before the offset.
        let column = ((offset + 1) * self.columns as i128 - 1) / self.span_ns();
        usize::try_from(column).unwrap_or(0).min(self.columns - 1)
    }

    /// Returns the part of an interval that lies in the window. An empty interval is in it if its begin is.
    pub fn clip(&self, start_ns: i64, end_ns: i64) -> Option<(i64, i64)> {
        let (start, end) = (start_ns.max(self.from_ns), end_ns.max(start_ns).min(self.to_ns));
        let inside = start < end || (start_ns == end_ns && start == start_ns && start < self.to_ns);
        inside.then_some((start, end))
    }

    /// Whether an interval is at least as wide as a column.
    pub fn is_wide(&self, start_ns: i64, end_ns: i64) -> bool {
        (i128::from(end_ns) - i128::from(start_ns)) * self.columns as i128 >= self.span_ns()
    }

    /// Calls `each` with every column that an interval touches and the ns in it.
    pub fn spread(&self, start_ns: i64, end_ns: i64, mut each: impl FnMut(usize, i64)) {
        if start_ns >= end_ns {
            return;
        }
        for column in self.column_of(start_ns)..=self.column_of(end_ns - 1) {
            let begin = self.begin_of(column).max(start_ns);
            let end = self.begin_of(column + 1).min(end_ns);
            if end > begin {
                each(column, end - begin);
            }
        }
    }
}

/// Returns every gap that `taken` leaves between `from_ns` and `to_ns`. `taken` is in the order of begins;
/// `cursor` is the position in it, for calls with ascending times.
pub(super) fn gaps(from_ns: i64, to_ns: i64, taken: &[(i64, i64)], cursor: &mut usize) -> Vec<(i64, i64)> {
    while taken.get(*cursor).is_some_and(|(_, end)| *end <= from_ns) {
        *cursor += 1;
    }
    let mut gaps = Vec::new();
    let mut at = from_ns;
    for (start, end) in taken[*cursor..].iter().take_while(|(start, _)| *start < to_ns) {
        if *start > at {
            gaps.push((at, *start));
        }
        at = at.max(*end);
    }
    if at < to_ns {
        gaps.push((at, to_ns));
    }
    gaps
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_time_is_in_the_column_that_begins_at_or_before_it(
            from in -1_000i64..1_000, span in 1i64..5_000, columns in 1usize..200, offset in 0i64..5_000,
        ) {
            let grid = Grid::new(from, from + span, columns);
            let ts = from + offset.min(span - 1);
            let column = grid.column_of(ts);
            prop_assert!(grid.begin_of(column) <= ts && ts < grid.begin_of(column + 1));
        }

        #[test]
        fn an_interval_spread_over_columns_keeps_its_length(
            span in 1i64..5_000, columns in 1usize..200, start in 0i64..5_000, length in 0i64..5_000,
        ) {
            let grid = Grid::new(0, span, columns);
            let mut sum = 0;
            if let Some((start, end)) = grid.clip(start, start + length) {
                grid.spread(start, end, |_, ns| sum += ns);
            }
            prop_assert_eq!(sum, (span.min(start + length) - start).max(0));
        }
    }

    #[test]
    fn a_grid_accepts_the_extremes_of_i64() {
        let grid = Grid::new(i64::MIN, i64::MAX, 1_000);
        assert_eq!((grid.column_of(i64::MIN), grid.column_of(i64::MAX)), (0, 999));
        assert_eq!(Grid::new(i64::MAX, i64::MAX, 10).columns(), 1);
    }

    #[test]
    fn gaps_lie_between_the_taken_intervals() {
        assert_eq!(gaps(0, 100, &[(-5, 10), (20, 30), (25, 40)], &mut 0), [(10, 20), (40, 100)]);
    }
}
