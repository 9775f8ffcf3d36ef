//! Values by row: a [`RowKey`] enters, the value of its row leaves.
//!
//! A table finds the row of every hold of a trace. Most tables have a row per lock, and the locks of a trace are numbered from 0, so
//! their rows are found without hashing.

use rustc_hash::FxHashMap;
use trace_format::LockId;

use super::key::RowKey;

/// A value per row, in the order in which the rows were first seen.
#[derive(Debug)]
pub struct ByRow<V> {
    /// By lock id: the number of values when the value of the lock was added, with it; 0 if it has none.
    locks: Vec<u32>,
    /// The locks in the side table. An id beyond them may be any number.
    known_locks: usize,
    /// The same as `locks`, for all other keys.
    others: FxHashMap<RowKey, u32>,
    values: Vec<(RowKey, V)>,
}

impl<V: Default> ByRow<V> {
    /// Returns values for the rows of a trace with `known_locks` locks in its side table.
    pub fn new(known_locks: usize) -> Self {
        Self { locks: Vec::new(), known_locks, others: FxHashMap::default(), values: Vec::new() }
    }

    /// Returns the value of a row, the default if the row is new.
    #[inline(always)]
    pub fn of(&mut self, key: RowKey) -> &mut V {
        let at = self.index(key);
        self.at(at)
    }

    /// Returns the value of the row with this index.
    #[inline]
    pub fn at(&mut self, index: u32) -> &mut V {
        &mut self.values[index as usize].1
    }

    /// Returns the index of a row. A new row has the default value.
    #[inline(always)]
    pub fn index(&mut self, key: RowKey) -> u32 {
        self.number(key).checked_sub(1).unwrap_or_else(|| self.of_unnumbered(key))
    }

    /// Returns the index of a row that was added.
    #[inline(always)]
    pub fn find_index(&self, key: RowKey) -> Option<u32> {
        let number = match self.number(key) {
            // A lock that the side table does not have.
            0 if !self.others.is_empty() => self.others.get(&key).copied().unwrap_or(0),
            number => number,
        };
        number.checked_sub(1)
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.values.len()
    }

    /// Returns the number of a row that is in the table meant for its key; 0 if it has none there.
    #[inline(always)]
    fn number(&self, key: RowKey) -> u32 {
        match key {
            RowKey::Lock(LockId(id)) => self.locks.get(id as usize).copied().unwrap_or(0),
            _ => self.others.get(&key).copied().unwrap_or(0),
        }
    }

    /// Returns the index of a row that has no number in `locks`, or none at all.
    #[cold]
    fn of_unnumbered(&mut self, key: RowKey) -> u32 {
        let next = self.values.len() as u32 + 1;
        let number = match key {
            RowKey::Lock(LockId(id)) if usize::try_from(id).is_ok_and(|id| id < self.known_locks) => {
                let at = id as usize;
                self.locks.resize(self.locks.len().max(at + 1), 0);
                self.locks[at] = next;
                next
            }
            _ => *self.others.entry(key).or_insert(next),
        };
        if number == next {
            self.values.push((key, V::default()));
        }
        number - 1
    }

    /// Returns the rows and their values, in the order in which the rows were first seen.
    pub fn into_values(self) -> Vec<(RowKey, V)> {
        self.values
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use trace_format::TaskId;

    use super::*;

    fn key() -> impl Strategy<Value = RowKey> {
        let lock = prop_oneof![0..6_i32, Just(-1), Just(i32::MAX), Just(i32::MIN)];
        prop_oneof![
            lock.prop_map(|id| RowKey::Lock(LockId(id))),
            (0..4).prop_map(|id| RowKey::Task(TaskId(id))),
            Just(RowKey::Host),
        ]
    }

    proptest! {
        #[test]
        fn every_row_has_one_value_whatever_its_lock(keys in prop::collection::vec(key(), 0..60), known in 0..8_usize) {
            let (mut by_row, mut counts, mut order) = (ByRow::<u32>::new(known), HashMap::new(), Vec::new());
            for key in keys {
                let found = by_row.find_index(key).map(|at| *by_row.at(at));
                prop_assert_eq!(found, counts.get(&key).copied());
                *by_row.of(key) += 1;
                if !order.contains(&key) {
                    order.push(key);
                }
                *counts.entry(key).or_insert(0) += 1;
            }
            let expected: Vec<_> = order.into_iter().map(|key| (key, counts[&key])).collect();
            prop_assert_eq!(by_row.into_values(), expected);
        }
    }
}
