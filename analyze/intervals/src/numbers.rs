//! Numbers of tasks and locks, by their ids.
//!
//! Every row of a trace is looked up by its task and its lock. Their ids are dense from 0, so they are found
//! without hashing. Ids that are larger than in any recording so far are hashed: a damaged trace costs no
//! more memory.

use std::ops::{Index, IndexMut};

use rustc_hash::FxHashMap;

/// Ids from here on are hashed.
const MAX_DENSE: usize = 1 << 20;

/// Numbers by id.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// The number of the id, plus 1; 0 without a number.
    dense: Vec<u32>,
    others: FxHashMap<i32, u32>,
}

impl Numbers {
    /// Returns the number of an id.
    #[inline]
    pub(crate) fn get(&self, id: i32) -> Option<u32> {
        match self.dense.get(id as usize) {
            Some(number) => number.checked_sub(1),
            None => self.get_other(id),
        }
    }

    #[cold]
    fn get_other(&self, id: i32) -> Option<u32> {
        self.others.get(&id).copied()
    }

    /// Gives an id this number.
    pub(crate) fn set(&mut self, id: i32, number: u32) {
        match usize::try_from(id).ok().filter(|at| *at < MAX_DENSE) {
            Some(at) => {
                if at >= self.dense.len() {
                    self.dense.resize(at + 1, 0);
                }
                self.dense[at] = number + 1;
            }
            None => drop(self.others.insert(id, number)),
        }
    }

    /// Takes the number of an id away.
    pub(crate) fn remove(&mut self, id: i32) -> Option<u32> {
        match self.dense.get_mut(id as usize) {
            Some(number) => std::mem::take(number).checked_sub(1),
            None => self.others.remove(&id),
        }
    }
}

/// A value per id, numbered in the order in which the ids were first seen.
#[derive(Debug)]
pub(crate) struct Numbered<T> {
    index: Numbers,
    ids: Vec<i32>,
    values: Vec<T>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { index: Numbers::default(), ids: Vec::new(), values: Vec::new() }
    }
}

impl<T> Numbered<T> {
    /// Returns the number of an id, whose value is `new` if it has none.
    #[inline]
    pub(crate) fn number(&mut self, id: i32, new: impl FnOnce() -> T) -> u32 {
        match self.index.get(id) {
            Some(index) => index,
            None => self.add(id, new),
        }
    }

    #[cold]
    fn add(&mut self, id: i32, new: impl FnOnce() -> T) -> u32 {
        // Ids are 32 bits wide, and all of them are never in one trace.
        let index = self.values.len() as u32;
        self.ids.push(id);
        self.values.push(new());
        self.index.set(id, index);
        index
    }

    /// Returns the number of an id that was seen.
    #[inline]
    pub(crate) fn find(&self, id: i32) -> Option<u32> {
        self.index.get(id)
    }

    pub(crate) fn id(&self, index: u32) -> i32 {
        self.ids[index as usize]
    }

    /// Returns all ids and values, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i32, &T)> {
        self.ids.iter().copied().zip(&self.values)
    }

    pub(crate) fn into_values(self) -> impl Iterator<Item = (i32, T)> {
        self.ids.into_iter().zip(self.values)
    }
}

impl<T> Index<u32> for Numbered<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: u32) -> &T {
        &self.values[index as usize]
    }
}

impl<T> IndexMut<u32> for Numbered<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.values[index as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_its_last_number_until_it_is_removed_however_large_it_is() {
        let mut numbers = Numbers::default();
        let ids = [3, 0, i32::MAX, -1, i32::MIN, MAX_DENSE as i32];
        for (number, id) in (0..).zip(ids) {
            assert_eq!(numbers.get(id), None);
            numbers.set(id, number + 10);
            numbers.set(id, number);
        }
        for (number, id) in (0..).zip(ids) {
            assert_eq!(numbers.get(id), Some(number), "{id}");
            assert_eq!((numbers.remove(id), numbers.get(id)), (Some(number), None), "{id}");
        }
        assert!(numbers.dense.len() < 10, "large ids take no room");
    }
}
