//! Values by key: the lock, the task and the stack of an interval lead to the value of its row.
//!
//! Every interval of a trace asks for the value of its row. The ids of an interval decide its key, so a value
//! is found without hashing by the place of its ids, if the table of places is small enough to stay in a
//! processor's cache. Locks are numbered from 0, as are tasks and stacks.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::key::{Ids, RowKey, Subject};
use intervals::input::names::Names;

/// The most places of a table of pairs: 1 MiB.
const MOST_PLACES: usize = 1 << 18;

/// A value per key, in the order in which the keys were first seen.
#[derive(Debug)]
pub struct Cells<V, K = RowKey> {
    ids: Ids,
    rows: usize,
    columns: usize,
    /// By place: the number of values when the value was found there first, with it; 0 if it was not.
    places: Vec<u32>,
    /// The index of each value.
    index: FxHashMap<K, u32>,
    values: Vec<(K, V)>,
}

impl<V: Default, K: Copy + Eq + Hash> Cells<V, K> {
    /// Returns values of keys that these ids decide, in a trace with these names.
    pub fn new(ids: Ids, names: &Names) -> Self {
        Self::of_size(ids, [names.locks().len(), names.tasks().len(), names.stacks()])
    }

    fn of_size(ids: Ids, [locks, tasks, stacks]: [usize; 3]) -> Self {
        let (rows, columns) = match ids {
            Ids::None => (1, 1),
            Ids::Lock => (1, locks),
            Ids::Task => (1, tasks),
            // The first place of a lock is for intervals without a stack.
            Ids::LockAndStack => (locks, stacks.saturating_add(1)),
            Ids::TaskAndLock => (tasks, locks),
            Ids::All => (usize::MAX, usize::MAX),
        };
        let is_small = matches!(ids, Ids::Lock | Ids::Task)
            || rows.checked_mul(columns).is_some_and(|places| places <= MOST_PLACES);
        let (rows, columns) = if is_small { (rows, columns) } else { (0, 0) };
        let (places, index, values) = (vec![0; rows * columns], FxHashMap::default(), Vec::new());
        Self { ids, rows, columns, places, index, values }
    }

    /// Returns the place of an interval, if it has one. Negative ids are too large for any table.
    #[inline(always)]
    fn place(&self, subject: &Subject) -> Option<usize> {
        let (lock, task) = (subject.lock.0.cast_unsigned() as usize, subject.task.0.cast_unsigned() as usize);
        let (row, column) = match self.ids {
            Ids::None => (0, 0),
            Ids::Lock => (0, lock),
            Ids::Task => (0, task),
            Ids::LockAndStack => {
                (lock, subject.stack.map_or(0, |stack| stack.0.cast_unsigned() as usize + 1))
            }
            Ids::TaskAndLock => (task, lock),
            Ids::All => return None,
        };
        (row < self.rows && column < self.columns).then(|| row * self.columns + column)
    }

    /// Returns the index of the value of an interval, whose key is made if it is not found by its ids. A new
    /// key has the default value.
    #[inline(always)]
    pub fn index(&mut self, subject: impl Into<Subject>, key: impl FnOnce(Subject) -> K) -> u32 {
        let subject = subject.into();
        let place = self.place(&subject);
        let known = place.and_then(|at| self.places[at].checked_sub(1));
        known.unwrap_or_else(|| self.add(place, key(subject)))
    }

    fn add(&mut self, place: Option<usize>, key: K) -> u32 {
        let next = self.values.len() as u32;
        let index = *self.index.entry(key).or_insert(next);
        if index == next {
            self.values.push((key, V::default()));
        }
        place.into_iter().for_each(|at| self.places[at] = index + 1);
        index
    }

    /// Returns the index of the value of an interval, if it was added. No other ids have this key.
    #[inline(always)]
    pub fn find(&self, subject: impl Into<Subject>, key: K) -> Option<u32> {
        match self.place(&subject.into()) {
            Some(at) => self.places[at].checked_sub(1),
            None => self.index.get(&key).copied(),
        }
    }

    /// Returns the number of values.
    pub fn count(&self) -> usize {
        self.values.len()
    }

    /// Returns the value of an interval.
    #[inline(always)]
    pub fn of(&mut self, subject: impl Into<Subject>, key: impl FnOnce(Subject) -> K) -> &mut V {
        let at = self.index(subject, key);
        self.at(at)
    }

    /// Returns the value with this index.
    #[inline]
    pub fn at(&mut self, index: u32) -> &mut V {
        &mut self.values[index as usize].1
    }

    /// Returns the key of the value with this index.
    #[inline]
    pub fn key(&self, index: u32) -> K {
        self.values[index as usize].0
    }

    /// Returns the keys and their values, in the order in which the keys were first seen.
    pub fn into_values(self) -> Vec<(K, V)> {
        self.values
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::{prelude::*, sample::select};
    use trace_format::{LockId, StackId, TaskId};

    use super::*;

    fn id() -> impl Strategy<Value = i32> {
        prop_oneof![0..6_i32, Just(-1), Just(i32::MAX), Just(i32::MIN)]
    }

    proptest! {
        #[test]
        fn every_key_has_one_value_whatever_its_ids(
            intervals in prop::collection::vec((id(), id(), prop::option::of(id())), 0..60),
            sizes in prop::array::uniform3(prop_oneof![0..8_usize, Just(usize::MAX)]),
            ids in select(vec![Ids::None, Ids::Lock, Ids::LockAndStack, Ids::Task, Ids::TaskAndLock, Ids::All]),
        ) {
            // A table of one row has a place for each id of the trace, of which there are fewer.
            let sizes = sizes.map(|size| if matches!(ids, Ids::Lock | Ids::Task) { size.min(8) } else { size });
            let key = |subject: Subject| match ids {
                Ids::None => (0, 0),
                // Several locks, or tasks, can have one key.
                Ids::Lock => (subject.lock.0 / 2, 0),
                Ids::Task => (subject.task.0 / 2, 0),
                Ids::LockAndStack => (subject.lock.0, subject.stack.map_or(i32::MIN, |stack| stack.0 / 2)),
                Ids::TaskAndLock => (subject.task.0, subject.lock.0),
                Ids::All => (subject.task.0 ^ subject.lock.0, subject.stack.map_or(-1, |stack| stack.0)),
            };
            let mut cells = Cells::<u32, (i32, i32)>::of_size(ids, sizes);
            let (mut counts, mut order) = (HashMap::new(), Vec::new());
            for (lock, task, stack) in intervals {
                let subject = Subject { lock: LockId(lock), task: TaskId(task), stack: stack.map(StackId) };
                let at = cells.index(subject, key);
                *cells.at(at) += 1;
                let key = key(subject);
                prop_assert_eq!(cells.key(at), key);
                if !order.contains(&key) {
                    order.push(key);
                }
                *counts.entry(key).or_insert(0) += 1;
            }
            let expected: Vec<_> = order.into_iter().map(|key| (key, counts[&key])).collect();
            prop_assert_eq!(cells.into_values(), expected);
        }
    }
}
