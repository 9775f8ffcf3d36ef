//! Hold time by lock and task: holds enter, the times leave.
//!
//! Every hold of a trace is added. A table with a place for each pair finds its sum without hashing, where it is small enough to stay in
//! a processor's cache; otherwise, and for ids that the side tables do not have, a map does.

use rustc_hash::FxHashMap;
use trace_format::{LockId, TaskId};

use crate::{engine::Hold, input::names::Names};

/// The most places of a table: 2 MiB.
const MOST_PLACES: usize = 1 << 18;
/// A place without holds.
const NONE: i64 = -1;

/// The hold time of each task, by lock.
#[derive(Clone, Debug, Default)]
pub(in crate::tables) struct Held {
    /// The numbers of locks and tasks with places; 0 if the table would be large.
    locks: usize,
    tasks: usize,
    /// The times of the first lock by task, then those of the second.
    places: Vec<i64>,
    /// All other pairs.
    others: FxHashMap<(LockId, TaskId), i64>,
}

impl Held {
    pub(in crate::tables) fn new(names: &Names) -> Self {
        Self::of_size(names.locks().len(), names.tasks().len())
    }

    fn of_size(locks: usize, tasks: usize) -> Self {
        let places = locks.checked_mul(tasks).filter(|places| *places <= MOST_PLACES);
        let (locks, tasks) = if places.is_some() { (locks, tasks) } else { (0, 0) };
        Self { locks, tasks, places: vec![NONE; places.unwrap_or(0)], others: FxHashMap::default() }
    }

    #[inline]
    pub(in crate::tables) fn add(&mut self, hold: &Hold) {
        self.add_ns(hold.lock, hold.task, hold.end_ns.saturating_sub(hold.start_ns));
    }

    #[inline]
    fn add_ns(&mut self, lock: LockId, task: TaskId, ns: i64) {
        // Negative ids are too large for any table.
        let (at_lock, at_task) = (lock.0.cast_unsigned() as usize, task.0.cast_unsigned() as usize);
        let sum = if at_lock < self.locks && at_task < self.tasks {
            &mut self.places[at_lock * self.tasks + at_task]
        } else {
            self.others.entry((lock, task)).or_default()
        };
        *sum = (*sum).max(0).saturating_add(ns);
    }

    /// Returns the time of each task that held a lock, those of a lock together where the table has it.
    pub(in crate::tables) fn into_times(self) -> impl Iterator<Item = (LockId, TaskId, i64)> {
        let Self { tasks, places, others, .. } = self;
        let places = places.into_iter().enumerate().filter(|(_, ns)| *ns != NONE);
        // Ids of the side tables are 31 bits wide.
        let id = |at: usize| at as i32;
        let of_place = move |(at, ns)| (LockId(id(at / tasks)), TaskId(id(at % tasks)), ns);
        places.map(of_place).chain(others.into_iter().map(|((lock, task), ns)| (lock, task, ns)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn id() -> impl Strategy<Value = i32> {
        prop_oneof![0..6_i32, Just(-1), Just(i32::MAX), Just(i32::MIN)]
    }

    proptest! {
        #[test]
        fn every_pair_has_the_sum_of_its_times(
            times in prop::collection::vec((id(), id(), 0..50_i64), 0..60),
            locks in prop_oneof![0..8_usize, Just(usize::MAX)],
            tasks in prop_oneof![0..8_usize, Just(usize::MAX)],
        ) {
            let (mut held, mut expected) = (Held::of_size(locks, tasks), BTreeMap::new());
            for (lock, task, ns) in times {
                held.add_ns(LockId(lock), TaskId(task), ns);
                *expected.entry((LockId(lock), TaskId(task))).or_insert(0) += ns;
            }
            let found: BTreeMap<_, _> = held.into_times().map(|(lock, task, ns)| ((lock, task), ns)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
