//! The places of a table with one for each pair of two numbers: a pair enters, its place leaves.
//!
//! Every interval of a trace asks for such places. They are found without hashing, where the table is small enough to stay in a processor's
//! cache; for other pairs its owner has a map.

/// The most places of a table: 2 MiB with values of 8 bytes.
const MOST_PLACES: usize = 1 << 18;

/// The size of a table.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Grid {
    rows: usize,
    columns: usize,
}

impl Grid {
    /// Returns a grid of this size, or one without places if it would be large.
    pub(crate) fn new(rows: usize, columns: usize) -> Self {
        let is_small = rows.checked_mul(columns).is_some_and(|places| places <= MOST_PLACES);
        if is_small { Self { rows, columns } } else { Self::default() }
    }

    /// Returns the number of places.
    pub(crate) fn places(self) -> usize {
        self.rows * self.columns
    }

    /// Returns the place of a pair, if it has one. The places of a row follow each other.
    #[inline]
    pub(crate) fn place(self, row: usize, column: usize) -> Option<usize> {
        (row < self.rows && column < self.columns).then(|| row * self.columns + column)
    }

    /// Returns the pair of a place.
    pub(crate) fn pair(self, place: usize) -> (usize, usize) {
        (place / self.columns, place % self.columns)
    }
}
