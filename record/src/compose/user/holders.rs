//! The present holders of each lock, according to its acquisitions and releases.
//!
//! Either one task holds a lock exclusively, or any number of tasks share it; each of them as many times as
//! it took it. A task that gets the lock in a mode that excludes another holder proves that this hold is
//! over, whether its release was recorded or not.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use trace_format::{LockId, Mode, TaskId};

use crate::compose::header::{Header, Source, TaskKey};

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Holders {
    /// An entry stays, empty, until its lock is destroyed: most locks are taken again.
    by_lock: FxHashMap<LockId, Vec<Holder>>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Holder {
    source: Source,
    key: TaskKey,
    task: TaskId,
    mode: Mode,
    /// The number of times: more than 1 for a recursive mutex, or a lock for reading.
    depth: u32,
}

impl Holders {
    /// The record's task acquired the lock `depth` times.
    pub(crate) fn acquired(&mut self, at: &Header, lock: LockId, mode: Mode, depth: u32) {
        let holders = self.by_lock.entry(lock).or_default();
        holders.retain(|holder| holder.key == at.key || mode == Mode::Shared && holder.mode == Mode::Shared);
        match holders.iter_mut().find(|holder| holder.key == at.key && holder.mode == mode) {
            Some(holder) => holder.depth += depth,
            None => {
                holders.retain(|holder| holder.key != at.key);
                holders.push(Holder { source: at.source, key: at.key, task: at.task, mode, depth });
            }
        }
    }

    /// The record's task released the lock once. Returns the mode in which it held it, if it did.
    pub(crate) fn released(&mut self, at: &Header, lock: LockId) -> Option<Mode> {
        let holders = self.by_lock.get_mut(&lock)?;
        let index = holders.iter().position(|holder| holder.key == at.key)?;
        let Holder { mode, depth, .. } = holders[index];
        if depth > 1 {
            holders[index].depth -= 1;
        } else {
            holders.swap_remove(index);
        }
        Some(mode)
    }

    /// The record's task released the lock completely. Returns how many times it held it.
    pub(crate) fn released_completely(&mut self, at: &Header, lock: LockId) -> Option<u32> {
        let holders = self.by_lock.get_mut(&lock)?;
        let index = holders.iter().position(|holder| holder.key == at.key)?;
        Some(holders.swap_remove(index).depth)
    }

    /// Whether the records so far show who holds the lock, even if no task does.
    pub(crate) fn are_known(&self, lock: LockId) -> bool {
        self.by_lock.contains_key(&lock)
    }

    /// Whether the record's task holds the lock.
    pub(crate) fn has(&self, at: &Header, lock: LockId) -> bool {
        self.by_lock.get(&lock).into_iter().flatten().any(|holder| holder.key == at.key)
    }

    /// Returns another holder that keeps the record's task from taking the lock in this mode; `None` if the
    /// record's task holds the lock itself.
    pub(crate) fn blocker(&self, at: &Header, lock: LockId, mode: Mode) -> Option<TaskId> {
        if self.has(at, lock) {
            return None;
        }
        let excludes = |holder: &&Holder| mode == Mode::Exclusive || holder.mode == Mode::Exclusive;
        self.by_lock.get(&lock)?.iter().find(excludes).map(|holder| holder.task)
    }

    /// Forgets a lock that was destroyed or initialised again.
    pub(crate) fn forget(&mut self, lock: LockId) {
        self.by_lock.remove(&lock);
    }

    /// Forgets the holds of a task whose records are missing. Returns the number of locks that were examined.
    pub(crate) fn forget_task(&mut self, key: TaskKey) -> usize {
        for holders in self.by_lock.values_mut() {
            holders.retain(|holder| holder.key != key);
        }
        self.by_lock.len()
    }

    /// Forgets all holds that the kernel side reported: records of it are missing.
    pub(crate) fn lost(&mut self) {
        self.by_lock.retain(|_, holders| {
            holders.retain(|holder| holder.source == Source::Library);
            !holders.is_empty()
        });
    }
}
