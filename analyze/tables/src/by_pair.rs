//! Numbers by lock and stack: a pair enters, the number that was stored for it leaves.
//!
//! Pairs without a place in the [`Grid`], and those of ids that the side tables do not have, are in a map.

use rustc_hash::FxHashMap;
use trace_format::{LockId, StackId};

use super::grid::Grid;
use intervals::input::names::Names;

/// A number for each pair of a lock and a stack.
pub(crate) struct ByPair {
    /// Locks by stacks; the first place of a lock is for intervals without a stack.
    grid: Grid,
    /// The numbers plus one, 0 where there is none.
    places: Vec<u32>,
    /// All other pairs.
    others: FxHashMap<(LockId, Option<StackId>), u32>,
}

impl ByPair {
    pub(crate) fn new(names: &Names) -> Self {
        Self::of_size(names.locks().len(), names.stacks())
    }

    fn of_size(locks: usize, stacks: usize) -> Self {
        let grid = Grid::new(locks, stacks.saturating_add(1));
        Self { grid, places: vec![0; grid.places()], others: FxHashMap::default() }
    }

    /// Returns the place of a pair. Negative ids are too large for any table.
    #[inline]
    fn place(&self, lock: LockId, stack: Option<StackId>) -> Option<usize> {
        let stack = stack.map_or(0, |stack| stack.0.cast_unsigned() as usize + 1);
        self.grid.place(lock.0.cast_unsigned() as usize, stack)
    }

    #[inline]
    pub(crate) fn get(&self, lock: LockId, stack: Option<StackId>) -> Option<u32> {
        match self.place(lock, stack) {
            Some(at) => self.places[at].checked_sub(1),
            None => self.others.get(&(lock, stack)).copied(),
        }
    }

    pub(crate) fn set(&mut self, lock: LockId, stack: Option<StackId>, number: u32) {
        match self.place(lock, stack) {
            Some(at) => self.places[at] = number + 1,
            None => drop(self.others.insert((lock, stack), number)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn id() -> impl Strategy<Value = i32> {
        prop_oneof![0..6_i32, Just(-1), Just(i32::MAX), Just(i32::MIN)]
    }

    proptest! {
        #[test]
        fn every_pair_has_the_number_that_was_stored_for_it(
            pairs in prop::collection::vec((id(), prop::option::of(id())), 0..60),
            locks in prop_oneof![0..8_usize, Just(usize::MAX)],
            stacks in prop_oneof![0..8_usize, Just(usize::MAX)],
        ) {
            let (mut by_pair, mut expected) = (ByPair::of_size(locks, stacks), HashMap::new());
            for (number, (lock, stack)) in (0..).zip(pairs) {
                let (lock, stack) = (LockId(lock), stack.map(StackId));
                prop_assert_eq!(by_pair.get(lock, stack), expected.get(&(lock, stack)).copied());
                by_pair.set(lock, stack, number);
                expected.insert((lock, stack), number);
            }
            for ((lock, stack), number) in expected {
                prop_assert_eq!(by_pair.get(lock, stack), Some(number));
            }
        }
    }
}
