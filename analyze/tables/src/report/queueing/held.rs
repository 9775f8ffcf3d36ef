//! Hold time by lock and task: holds enter, the times leave.
//!
//! Every hold of a trace is added. Pairs without a place in the [`Grid`], and those of ids that the side tables do not have, are in a map.

use rustc_hash::FxHashMap;
use trace_format::{LockId, TaskId};

use crate::grid::Grid;
use intervals::{engine::Hold, input::names::Names};

/// A place without holds.
const NONE: i64 = -1;

/// The hold time of each task, by lock.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// Locks by tasks.
    grid: Grid,
    places: Vec<i64>,
    /// All other pairs.
    others: FxHashMap<(LockId, TaskId), i64>,
}

impl Held {
    pub fn new(names: &Names) -> Self {
        Self::of_size(names.locks().len(), names.tasks().len())
    }

    fn of_size(locks: usize, tasks: usize) -> Self {
        let grid = Grid::new(locks, tasks);
        Self { grid, places: vec![NONE; grid.places()], others: FxHashMap::default() }
    }

    #[inline]
    pub fn add(&mut self, hold: &Hold) {
        self.add_ns(hold.lock, hold.task, hold.end_ns.saturating_sub(hold.start_ns));
    }

    #[inline]
    fn add_ns(&mut self, lock: LockId, task: TaskId, ns: i64) {
        // Negative ids are too large for any table.
        let place = self.grid.place(lock.0.cast_unsigned() as usize, task.0.cast_unsigned() as usize);
        let sum = match place {
            Some(at) => &mut self.places[at],
            None => self.others.entry((lock, task)).or_default(),
        };
        *sum = (*sum).max(0).saturating_add(ns);
    }

    /// Returns the time of each task that held a lock, those of a lock together where the grid has it.
    pub fn into_times(self) -> impl Iterator<Item = (LockId, TaskId, i64)> {
        let Self { grid, places, others } = self;
        let places = places.into_iter().enumerate().filter(|(_, ns)| *ns != NONE);
        let of_place = move |(at, ns)| {
            let (lock, task) = grid.pair(at);
            // Ids of the side tables are 31 bits wide.
            (LockId(lock as i32), TaskId(task as i32), ns)
        };
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
