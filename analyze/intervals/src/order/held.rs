//! The locks that each task holds.
//!
//! The locks of a task are in the order in which it took them. A hold is also over once another task has the lock in a way that excludes the
//! hold, as in blame. That takes effect when the clock moves on, so the order of rows of equal time does not matter.

use std::{collections::hash_map::Entry, sync::Arc};

use rustc_hash::FxHashMap;
use trace_format::{LockId, Mode, StackId, TaskId};

use crate::{
    engine::Rules,
    items::{Hold, Item, Needs, Sink},
};

/// A lock that a task holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) lock: LockId,
    pub(super) mode: Mode,
    pub(super) stack: Option<StackId>,
    start_ns: i64,
}

/// The held locks of all tasks.
#[derive(Debug)]
pub(super) struct HeldLocks {
    rules: Arc<Rules>,
    by_task: FxHashMap<TaskId, Vec<Held>>,
    /// The number of holds of a task and a lock. A task may hold thousands of locks.
    counts: FxHashMap<(TaskId, LockId), u32>,
    /// The tasks that hold each lock, once for each hold.
    holders: FxHashMap<LockId, Vec<TaskId>>,
    /// Holds that began in the nanosecond of the clock while another task held the lock.
    fresh: Vec<(TaskId, Held)>,
}

impl HeldLocks {
    pub(super) fn new(rules: Arc<Rules>) -> Self {
        let (by_task, counts, holders) = (FxHashMap::default(), FxHashMap::default(), FxHashMap::default());
        Self { rules, by_task, counts, holders, fresh: Vec::new() }
    }

    /// Returns the locks that a task holds.
    pub(super) fn of(&self, task: TaskId) -> &[Held] {
        self.by_task.get(&task).map_or(&[], Vec::as_slice)
    }

    /// Returns whether a task holds a lock.
    pub(super) fn has(&self, task: TaskId, lock: LockId) -> bool {
        self.counts.contains_key(&(task, lock))
    }

    /// Ends the holds that acquisitions in the nanosecond of the clock exclude. Called when the clock moves on.
    pub(super) fn settle(&mut self) {
        for (task, held) in std::mem::take(&mut self.fresh) {
            let is_open = self.of(task).contains(&held);
            let others = self.holders.get(&held.lock).map_or(&[][..], Vec::as_slice);
            let others: Vec<TaskId> = others.iter().copied().filter(|other| *other != task).collect();
            for other in others {
                let is_over = |old: &Held| {
                    let excludes =
                        self.rules.excludes(old.lock, old.mode) || self.rules.excludes(held.lock, held.mode);
                    // Of two holds that began in the same nanosecond, the one with the smaller task id is the older.
                    let is_older = old.start_ns < held.start_ns
                        || is_open && old.start_ns == held.start_ns && other < task;
                    old.lock == held.lock && excludes && is_older
                };
                let over: Vec<Held> = self.of(other).iter().copied().filter(is_over).collect();
                over.into_iter().for_each(|old| self.remove(other, old.lock, old.mode, old.start_ns));
            }
        }
    }

    fn remove(&mut self, task: TaskId, lock: LockId, mode: Mode, start_ns: i64) {
        let Some(held) = self.by_task.get_mut(&task) else { return };
        let is_it = |held: &Held| held.lock == lock && held.mode == mode && held.start_ns == start_ns;
        let Some(at) = held.iter().rposition(is_it) else { return };
        held.remove(at);
        if let Entry::Occupied(mut count) = self.counts.entry((task, lock)) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        if let Some(holders) = self.holders.get_mut(&lock)
            && let Some(at) = holders.iter().position(|holder| *holder == task)
        {
            holders.swap_remove(at);
        }
    }
}

impl Sink for HeldLocks {
    fn needs(&self) -> Needs {
        Needs { acquired: true, ..Needs::default() }
    }

    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Acquired(hold) => self.acquired(hold),
            Item::Hold(hold) => self.remove(hold.task, hold.lock, hold.mode, hold.start_ns),
            Item::Lost { .. } => {
                self.by_task.clear();
                self.counts.clear();
                self.holders.clear();
                self.fresh.clear();
            }
            _ => {}
        }
    }
}

impl HeldLocks {
    fn acquired(&mut self, hold: &Hold) {
        let Hold { lock, task, mode, stack, start_ns, .. } = *hold;
        if !self.rules.measures(lock, mode) {
            return;
        }
        let new = Held { lock, mode, stack, start_ns };
        let has_it = self.has(task, lock);
        let held = self.by_task.entry(task).or_default();
        // A reader that acquires a lock again at the same site goes on with its hold.
        let is_same = |held: &Held| (held.lock, held.mode, held.start_ns) == (lock, mode, start_ns);
        if has_it && held.iter().any(is_same) {
            return;
        }
        held.push(new);
        *self.counts.entry((task, lock)).or_default() += 1;
        let holders = self.holders.entry(lock).or_default();
        if holders.iter().any(|holder| *holder != task) {
            self.fresh.push((task, new));
        }
        holders.push(task);
    }
}
