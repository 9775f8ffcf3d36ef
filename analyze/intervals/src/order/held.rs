//! The locks that each task holds.
//!
//! The locks of a task are in the order in which it took them. A hold is also over once another task has the
//! lock in a way that excludes the hold, as in blame. That takes effect when the clock moves on, so the order
//! of rows of equal time does not matter.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use trace_format::{LockId, Mode, StackId, TaskId};

use crate::{
    engine::{
        Rules,
        open_list::{Keyed, OpenList},
    },
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

impl Keyed for Held {
    type Key = LockId;

    fn key(&self) -> LockId {
        self.lock
    }
}

/// The tasks that hold a lock.
#[derive(Debug, Default)]
struct Holders {
    /// Once for each hold.
    tasks: Vec<TaskId>,
    /// Number of holds that exclude others.
    excluding: usize,
}

/// The held locks of all tasks.
#[derive(Debug)]
pub(super) struct HeldLocks {
    rules: Arc<Rules>,
    /// A task may hold 100,000 locks.
    by_task: FxHashMap<TaskId, OpenList<Held>>,
    holders: FxHashMap<LockId, Holders>,
    /// Holds that began in the nanosecond of the clock while another task held the lock.
    fresh: Vec<(TaskId, Held)>,
}

impl HeldLocks {
    pub(super) fn new(rules: Arc<Rules>) -> Self {
        Self { rules, by_task: FxHashMap::default(), holders: FxHashMap::default(), fresh: Vec::new() }
    }

    /// Returns the locks that a task holds.
    pub(super) fn of(&self, task: TaskId) -> Option<&OpenList<Held>> {
        self.by_task.get(&task)
    }

    /// Returns the locks that a task has held exclusively since before a time.
    pub(super) fn exclusive_before(&self, task: TaskId, ns: i64) -> impl Iterator<Item = LockId> {
        let is_old = move |held: &&Held| held.mode == Mode::Exclusive && held.start_ns < ns;
        self.of(task).into_iter().flat_map(move |held| held.iter().filter(is_old)).map(|held| held.lock)
    }

    /// Returns the holds of a lock by a task, the last one first.
    fn holds(&self, task: TaskId, lock: LockId) -> impl Iterator<Item = &Held> {
        let held = self.of(task);
        held.into_iter().flat_map(move |held| held.of(lock).filter_map(|at| held.get(at)))
    }

    /// Ends the holds that acquisitions in the nanosecond of the clock exclude. Called when the clock moves
    /// on.
    pub(super) fn settle(&mut self) {
        for (task, held) in std::mem::take(&mut self.fresh) {
            let Some(holders) = self.holders.get(&held.lock) else { continue };
            if holders.excluding == 0 && !self.rules.excludes(held.lock, held.mode) {
                // A reader beside readers.
                continue;
            }
            let is_open = self.holds(task, held.lock).any(|open| *open == held);
            let others: Vec<TaskId> = holders.tasks.iter().copied().filter(|other| *other != task).collect();
            for other in others {
                let is_over = |old: &Held| {
                    let excludes =
                        self.rules.excludes(old.lock, old.mode) || self.rules.excludes(held.lock, held.mode);
                    // Of two holds that began in the same nanosecond, the one with the smaller task id is the
                    // older.
                    let is_older = old.start_ns < held.start_ns
                        || is_open && old.start_ns == held.start_ns && other < task;
                    excludes && is_older
                };
                let over: Vec<Held> =
                    self.holds(other, held.lock).filter(|old| is_over(old)).copied().collect();
                over.into_iter().rev().for_each(|old| self.remove(other, old.lock, old.mode, old.start_ns));
            }
        }
    }

    fn remove(&mut self, task: TaskId, lock: LockId, mode: Mode, start_ns: i64) {
        let Some(held) = self.by_task.get_mut(&task) else { return };
        let is_it = |held: &Held| held.mode == mode && held.start_ns == start_ns;
        let Some(at) = held.of(lock).find(|at| held.get(*at).is_some_and(is_it)) else { return };
        held.discard(at);
        if let Some(Holders { tasks, excluding }) = self.holders.get_mut(&lock)
            && let Some(at) = tasks.iter().position(|holder| *holder == task)
        {
            tasks.swap_remove(at);
            *excluding -= usize::from(self.rules.excludes(lock, mode));
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
        // A reader that acquires a lock again at the same site goes on with its hold.
        if self.holds(task, lock).any(|held| (held.mode, held.start_ns) == (mode, start_ns)) {
            return;
        }
        self.by_task.entry(task).or_default().push(new);
        let Holders { tasks, excluding } = self.holders.entry(lock).or_default();
        if tasks.iter().any(|holder| *holder != task) {
            self.fresh.push((task, new));
        }
        tasks.push(task);
        *excluding += usize::from(self.rules.excludes(lock, mode));
    }
}
