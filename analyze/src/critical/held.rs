//! The locks that each task holds, forward and backward: rows enter, and each change is noted so that it can be undone.

use rustc_hash::FxHashMap;
use trace_format::{Event, EventKind, LockId, Mode, TaskId};

use super::log::Log;
use crate::engine::Rules;

/// A lock that a task holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) lock: LockId,
    is_shared: bool,
}

/// The held locks of all tasks.
#[derive(Debug, Default)]
pub(super) struct HeldLocks {
    /// In the order of the acquisitions.
    by_task: FxHashMap<TaskId, Vec<Held>>,
    /// The tasks that hold each lock, once for each hold.
    holders: FxHashMap<LockId, Vec<TaskId>>,
}

/// A change: an acquisition.
const ACQUIRED: u64 = 0;
/// Bits of another one: the end of a hold, whose place from the end of its task's holds is in the higher bits.
const ENDED: u64 = 1;
const OF_ANOTHER_TASK: u64 = 2;
const SHARED: u64 = 4;

impl HeldLocks {
    /// Returns the locks that a task holds.
    pub(super) fn of(&self, task: TaskId) -> &[Held] {
        self.by_task.get(&task).map_or(&[], Vec::as_slice)
    }

    /// Changes what is held by a row of a task, and returns the number of changes, which are in the log. A hold is also over once another task
    /// has the lock in a way that excludes it, as in blame.
    pub(super) fn apply(&mut self, row: &Event, rules: &Rules, log: &mut Log) -> u64 {
        let (Some(task), Some(lock)) = (row.task, row.lock) else { return 0 };
        let is_shared = row.mode == Some(Mode::Shared);
        match row.kind {
            EventKind::Acquire => {
                let mode = row.mode.unwrap_or(Mode::Exclusive);
                let others = self.others(lock, task);
                let is_over = |held: &Held| {
                    rules.excludes(lock, mode) || !held.is_shared && rules.excludes(lock, Mode::Exclusive)
                };
                let mut changes = 0;
                for other in others {
                    while self.end(other, task, log, |held| held.lock == lock && is_over(held)) {
                        changes += 1;
                    }
                }
                if rules.measures(lock, mode) {
                    self.add(task, Held { lock, is_shared });
                    log.push(ACQUIRED);
                    changes += 1;
                }
                changes
            }
            EventKind::Release => {
                let is_it = |held: &Held| held.lock == lock && held.is_shared == is_shared;
                let ended =
                    self.end(task, task, log, is_it) || self.end(task, task, log, |held| held.lock == lock);
                u64::from(ended)
            }
            EventKind::Destroy => {
                let mut changes = 0;
                for other in self.others(lock, TaskId(-1)) {
                    changes += u64::from(self.end(other, task, log, |held| held.lock == lock));
                }
                changes
            }
            _ => 0,
        }
    }

    /// Undoes the changes of a row.
    pub(super) fn undo(&mut self, row: &Event, changes: u64, log: &mut Log) {
        let (Some(task), Some(lock)) = (row.task, row.lock) else { return };
        for _ in 0..changes {
            let change = log.pop();
            if change & ENDED == 0 {
                self.by_task.get_mut(&task).map(Vec::pop);
                self.remove_holder(lock, task);
            } else {
                let of = if change & OF_ANOTHER_TASK > 0 { TaskId(log.pop_id()) } else { task };
                let held = self.by_task.entry(of).or_default();
                let behind = usize::try_from(change >> 3).unwrap_or(usize::MAX);
                held.insert(held.len().saturating_sub(behind), Held { lock, is_shared: change & SHARED > 0 });
                self.holders.entry(lock).or_default().push(of);
            }
        }
    }

    /// Ends all holds.
    pub(super) fn clear(&mut self, log: &mut Log) {
        let mut tasks = 0;
        for (task, held) in self.by_task.iter().filter(|(_, held)| !held.is_empty()) {
            for held in held {
                log.push_id(held.lock.0);
                log.push(u64::from(held.is_shared));
            }
            log.push(held.len() as u64);
            log.push_id(task.0);
            tasks += 1;
        }
        log.push(tasks);
        *self = Self::default();
    }

    /// Undoes that all holds ended.
    pub(super) fn unclear(&mut self, log: &mut Log) {
        *self = Self::default();
        for _ in 0..log.pop() {
            let (task, count) = (TaskId(log.pop_id()), log.pop());
            for _ in 0..count {
                let is_shared = log.pop() > 0;
                self.add(task, Held { lock: LockId(log.pop_id()), is_shared });
            }
            self.by_task.entry(task).or_default().reverse();
        }
    }

    fn add(&mut self, task: TaskId, held: Held) {
        self.by_task.entry(task).or_default().push(held);
        self.holders.entry(held.lock).or_default().push(task);
    }

    /// Returns the holders of a lock without one of them, in the order of their ids, once for each hold.
    fn others(&self, lock: LockId, task: TaskId) -> Vec<TaskId> {
        let holders = self.holders.get(&lock).map_or(&[][..], Vec::as_slice);
        let mut others: Vec<TaskId> = holders.iter().copied().filter(|other| *other != task).collect();
        others.sort_unstable();
        others
    }

    /// Ends the last hold of a task that `is_it`, because of a row of `by`. Returns whether there was one.
    fn end(&mut self, task: TaskId, by: TaskId, log: &mut Log, is_it: impl Fn(&Held) -> bool) -> bool {
        let Some(all) = self.by_task.get_mut(&task) else { return false };
        let Some(at) = all.iter().rposition(is_it) else { return false };
        let held = all.remove(at);
        let behind = (all.len() - at) as u64;
        self.remove_holder(held.lock, task);
        let mut change = ENDED | behind << 3;
        if task != by {
            change |= OF_ANOTHER_TASK;
            log.push_id(task.0);
        }
        log.push(change | if held.is_shared { SHARED } else { 0 });
        true
    }

    fn remove_holder(&mut self, lock: LockId, task: TaskId) {
        if let Some(holders) = self.holders.get_mut(&lock)
            && let Some(at) = holders.iter().rposition(|holder| *holder == task)
        {
            holders.swap_remove(at);
        }
    }
}
