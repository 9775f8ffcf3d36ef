//! The first rows by one column: rows go in as they are read; those with the best keys come out, sorted.

use std::{borrow::Cow, cmp::Ordering};

use output::{Cell, Order};

/// Keeps the best rows, at most twice as many as wanted.
#[derive(Debug)]
pub(super) struct Ranking {
    order: Order,
    limit: Option<usize>,
    /// The rows with their keys, in the order in which they came, after the sorted ones.
    kept: Vec<(Cell<'static>, Vec<Cell<'static>>)>,
    /// Whether the first `limit` rows are sorted, so that later ones must beat the last of them.
    is_full: bool,
    count: u64,
}

impl Ranking {
    /// Returns an empty ranking of `limit` rows; `None` is all.
    pub(super) fn new(order: Order, limit: Option<u64>) -> Self {
        let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        Self { order, limit, kept: Vec::new(), is_full: false, count: 0 }
    }

    /// Adds a row with this key. Makes its cells only if it can be among the first.
    pub(super) fn push<'a>(&mut self, key: &Cell<'_>, cells: impl FnOnce() -> Vec<Cell<'a>>) {
        self.count += 1;
        let Some(limit) = self.limit else {
            self.kept.push((owned(key), cells().iter().map(owned).collect()));
            return;
        };
        let last = limit.checked_sub(1).filter(|_| self.is_full).map(|last| &self.kept[last].0);
        if limit == 0 || last.is_some_and(|last| self.order.compare(key, last) != Ordering::Less) {
            return;
        }
        self.kept.push((owned(key), cells().iter().map(owned).collect()));
        if self.kept.len() >= limit.saturating_mul(2) {
            self.sort();
            self.kept.truncate(limit);
            self.is_full = true;
        }
    }

    /// Returns the number of rows that were added.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the first rows in order; rows of one key in the order in which they came.
    pub(super) fn into_rows(mut self) -> Vec<Vec<Cell<'static>>> {
        self.sort();
        self.kept.truncate(self.limit.unwrap_or(usize::MAX));
        self.kept.into_iter().map(|(_, cells)| cells).collect()
    }

    fn sort(&mut self) {
        let order = self.order;
        self.kept.sort_by(|(one, _), (other, _)| order.compare(one, other));
    }
}

fn owned(cell: &Cell<'_>) -> Cell<'static> {
    match cell {
        Cell::Null => Cell::Null,
        Cell::Int(number) => Cell::Int(*number),
        Cell::Text(text) => Cell::Text(Cow::Owned(text.clone().into_owned())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, option, prelude::*};

    use super::*;

    proptest! {
        #[test]
        fn the_first_rows_are_those_of_a_whole_sort(
            keys in vec(option::of(0..20_i64), 0..200),
            limit in option::of(0..30_u64),
            descending: bool,
        ) {
            let order = if descending { Order::Descending } else { Order::Ascending };
            let mut ranking = Ranking::new(order, limit);
            let mut rows: Vec<(Cell<'_>, i64)> = keys.into_iter().map(Cell::from).zip(0..).collect();
            for (key, at) in &rows {
                ranking.push(key, || vec![key.clone(), Cell::Int(*at)]);
            }
            prop_assert_eq!(ranking.count(), rows.len() as u64);
            rows.sort_by(|(one, _), (other, _)| order.compare(one, other));
            rows.truncate(limit.map_or(usize::MAX, |limit| limit as usize));
            let expected: Vec<Vec<Cell<'_>>> = rows.into_iter().map(|(key, at)| vec![key, Cell::Int(at)]).collect();
            prop_assert_eq!(ranking.into_rows(), expected);
        }
    }
}
