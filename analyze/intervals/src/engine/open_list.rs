//! The open holds or waits of one lock, or the locks that one task holds, in the order in which they began.
//!
//! Most locks have one or two holds, which are found by looking at each. A lock may also have 100,000
//! readers: then they are found by their task, and an entry that ends leaves an empty place, so that no event
//! costs a look at all of them.

use std::{fmt::Debug, hash::Hash};

use rustc_hash::FxHashMap;

/// Number of places from which entries are found by an index.
const MANY: usize = 32;

/// An entry of an [`OpenList`].
pub(crate) trait Keyed {
    /// The task of a hold or wait of a lock; the lock that a task holds.
    type Key: Copy + Debug + Eq + Hash;
    fn key(&self) -> Self::Key;
}

/// A list of entries in order.
#[derive(Debug)]
pub(crate) struct OpenList<T: Keyed> {
    /// The last place is not empty.
    places: Vec<Option<T>>,
    count: usize,
    /// The entries before this place do not count any more, as [`skip`](Self::skip) found.
    skipped: usize,
    /// The places of each key in ascending order, if there are many places.
    by_key: FxHashMap<T::Key, Vec<usize>>,
}

impl<T: Keyed> Default for OpenList<T> {
    fn default() -> Self {
        Self { places: Vec::new(), count: 0, skipped: 0, by_key: FxHashMap::default() }
    }
}

impl<T: Keyed> OpenList<T> {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the entries in order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.places.iter().flatten()
    }

    /// Returns the entries in order.
    pub(crate) fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> {
        self.places.iter_mut().flatten()
    }

    /// Returns the only entry, if there is one.
    #[inline]
    pub(crate) fn only(&mut self) -> Option<&mut T> {
        if self.count == 1 { self.places.last_mut()?.as_mut() } else { None }
    }

    /// Returns the places of a key's entries, the last one first.
    pub(crate) fn of(&self, key: T::Key) -> impl Iterator<Item = usize> {
        let (all, indexed) = if self.places.len() < MANY {
            (&self.places[..], &[][..])
        } else {
            (&[][..], self.by_key.get(&key).map_or(&[][..], Vec::as_slice))
        };
        let has_key = move |entry: &Option<T>| entry.as_ref().is_some_and(|entry| entry.key() == key);
        let all = all.iter().enumerate().rev().filter(move |(_, entry)| has_key(entry));
        all.map(|(at, _)| at).chain(indexed.iter().rev().copied())
    }

    /// Whether a key has an entry.
    #[inline]
    pub(crate) fn has(&self, key: T::Key) -> bool {
        self.count > 0 && self.last_of(key).is_some()
    }

    /// Returns the place of a key's last entry.
    pub(crate) fn last_of(&self, key: T::Key) -> Option<usize> {
        self.of(key).next()
    }

    /// Adds an entry behind the others.
    #[inline]
    pub(crate) fn push(&mut self, entry: T) {
        let key = entry.key();
        self.places.push(Some(entry));
        self.count += 1;
        if self.places.len() >= MANY {
            self.index_last(key);
        }
    }

    #[cold]
    fn index_last(&mut self, key: T::Key) {
        if self.by_key.is_empty() {
            self.index();
        } else {
            self.by_key.entry(key).or_default().push(self.places.len() - 1);
        }
    }

    fn index(&mut self) {
        self.by_key.clear();
        for (at, entry) in self.places.iter().enumerate() {
            if let Some(entry) = entry {
                self.by_key.entry(entry.key()).or_default().push(at);
            }
        }
    }

    /// Removes the entry at a place.
    #[inline]
    pub(crate) fn remove(&mut self, at: usize) -> Option<T> {
        let removed = self.places.get_mut(at)?.take()?;
        self.unlink(at, removed.key());
        self.tidy();
        Some(removed)
    }

    /// Drops the entry at a place, which is not moved: a hold is large.
    #[inline]
    pub(crate) fn discard(&mut self, at: usize) {
        if let Some(entry) = self.get(at) {
            let key = entry.key();
            self.places[at] = None;
            self.unlink(at, key);
            self.tidy();
        }
    }

    #[inline]
    fn unlink(&mut self, at: usize, key: T::Key) {
        self.count -= 1;
        if !self.by_key.is_empty() {
            self.remove_from_index(at, key);
        }
    }

    /// Removes empty places at the end, or all of them if they are many.
    #[inline]
    fn tidy(&mut self) {
        while let Some(None) = self.places.last() {
            self.places.pop();
        }
        self.skipped = self.skipped.min(self.places.len());
        if self.places.len() > 2 * self.count {
            self.close_gaps();
        } else if self.places.len() < MANY && !self.by_key.is_empty() {
            self.by_key.clear();
        }
    }

    fn remove_from_index(&mut self, at: usize, key: T::Key) {
        let Some(places) = self.by_key.get_mut(&key) else { return };
        if let Ok(index) = places.binary_search(&at) {
            places.remove(index);
        }
        if places.is_empty() {
            self.by_key.remove(&key);
        }
    }

    /// Removes the empty places, which are more than half of all.
    fn close_gaps(&mut self) {
        self.places.retain(Option::is_some);
        self.skipped = 0;
        self.by_key.clear();
        if self.places.len() >= MANY {
            self.index();
        }
    }

    /// Removes those entries of a key that `is_over` selects, and returns them in order.
    pub(crate) fn extract(&mut self, key: T::Key, is_over: impl Fn(&T) -> bool) -> Vec<T> {
        let is_selected = |at: &usize| self.get(*at).is_some_and(&is_over);
        let places: Vec<usize> = self.of(key).filter(is_selected).collect();
        let mut taken = Vec::with_capacity(places.len());
        for at in places.into_iter().rev() {
            taken.extend(self.places[at].take());
            self.unlink(at, key);
        }
        if !taken.is_empty() {
            self.tidy();
        }
        taken
    }

    /// Removes all entries, and returns them in order.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = T> {
        std::mem::take(self).places.into_iter().flatten()
    }

    /// Returns the place of the first entry that counts. What `is_over` selects never counts again.
    pub(crate) fn skip(&mut self, is_over: impl Fn(&T) -> bool) -> usize {
        while self.places.get(self.skipped).is_some_and(|entry| entry.as_ref().is_none_or(&is_over)) {
            self.skipped += 1;
        }
        self.skipped
    }

    /// Returns the places from the first one that counts, as the last [`skip`](Self::skip) found.
    pub(crate) fn counting(&self) -> impl Iterator<Item = (usize, &T)> {
        self.places
            .iter()
            .enumerate()
            .skip(self.skipped)
            .filter_map(|(at, entry)| Some((at, entry.as_ref()?)))
    }

    /// Sorts the entries behind the last one that `is_before` selects. Returns the first place behind that
    /// one.
    pub(crate) fn sort_last<K: Ord>(
        &mut self,
        is_before: impl Fn(&T) -> bool,
        key: impl Fn(&T) -> K,
    ) -> usize {
        let last = self.places.iter().rposition(|entry| entry.as_ref().is_some_and(&is_before));
        let first = last.map_or(0, |last| last + 1);
        let of = |entry: &Option<T>| entry.as_ref().map(&key);
        if !self.places[first..].is_sorted_by_key(of) {
            self.places[first..].sort_by_key(of);
            if self.places.len() >= MANY {
                self.index();
            }
        }
        first
    }

    /// Returns the number of places.
    pub(crate) fn end(&self) -> usize {
        self.places.len()
    }

    /// Returns the entry at a place, if it is not empty.
    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        self.places.get(at)?.as_ref()
    }

    /// Returns the entry at a place, if it is not empty.
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.places.get_mut(at)?.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use trace_format::TaskId;

    use super::*;

    /// A task, a number in the order of begin, and whether it does not count any more.
    type Entry = (TaskId, usize, bool);

    impl Keyed for Entry {
        type Key = TaskId;

        fn key(&self) -> TaskId {
            self.0
        }
    }

    proptest! {
        #[test]
        fn a_list_of_any_length_is_as_a_plain_one(
            steps in prop::collection::vec((0..10_u8, 0..4_i32, 0..200_usize), 0..600),
        ) {
            let (mut list, mut model) = (OpenList::default(), Vec::<Entry>::new());
            for (number, (step, task, at)) in steps.into_iter().enumerate() {
                let task = TaskId(task);
                let places: Vec<usize> = (0..list.end()).filter(|at| list.get(*at).is_some()).collect();
                let chosen = if places.is_empty() { None } else { Some(at % places.len()) };
                match (step, chosen) {
                    (0..6, _) => {
                        list.push((task, number, false));
                        model.push((task, number, false));
                    }
                    (6, Some(at)) => prop_assert_eq!(list.remove(places[at]), Some(model.remove(at))),
                    (7, Some(at)) => {
                        list.discard(places[at]);
                        model.remove(at);
                    }
                    (8, Some(at)) => {
                        // Holds are superseded from the oldest on.
                        list.iter_mut().take(at / 2).for_each(|entry| entry.2 = true);
                        model.iter_mut().take(at / 2).for_each(|entry| entry.2 = true);
                        list.skip(|entry| entry.2);
                    }
                    (9, _) => {
                        let taken = list.extract(task, |entry| entry.2);
                        let expected: Vec<Entry> =
                            model.extract_if(.., |entry| entry.0 == task && entry.2).collect();
                        prop_assert_eq!(taken, expected);
                    }
                    _ => {}
                }
                prop_assert_eq!((list.len(), list.is_empty()), (model.len(), model.is_empty()));
                prop_assert_eq!(list.iter().collect::<Vec<_>>(), model.iter().collect::<Vec<_>>());
                let counting = list.counting().map(|(_, entry)| entry).filter(|entry| !entry.2);
                let expected = model.iter().filter(|entry| !entry.2);
                prop_assert_eq!(counting.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
                let own = list.of(task).map(|at| *list.get(at).unwrap());
                let expected = model.iter().rev().filter(|entry| entry.0 == task).copied();
                prop_assert_eq!(own.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
                prop_assert_eq!(list.only().copied(), model.first().copied().filter(|_| model.len() == 1));
                prop_assert!(list.end() <= 2 * model.len() && (list.by_key.is_empty() || list.end() >= MANY));
            }
            prop_assert_eq!(list.take().collect::<Vec<_>>(), model);
        }
    }
}
