//! Who holds which lock right now, as far as the records tell: acquisitions and releases in, holders out.
//!
//! One task holds a lock exclusively, or any number of tasks share it; each of them as often as it took it. Who gets it in
//! a way that excludes another task has seen the end of that one's hold, whether there was a record of it or not.

use rustc_hash::FxHashMap;
use trace_format::{Mode, TaskId};

use crate::{
    compose::{Moment, TaskKey},
    locks::Space,
};

/// All locks that are held.
#[derive(Debug, Default)]
pub(super) struct Holders {
    /// An entry stays, empty, until its lock is destroyed: most locks are taken again.
    by_lock: FxHashMap<(Space, u64), Vec<Holder>>,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    key: TaskKey,
    task: TaskId,
    mode: Mode,
    /// How often: a recursive mutex, or a lock for reading.
    depth: u32,
}

impl Holders {
    /// The moment's task has the lock, as often as that.
    pub(super) fn acquired(&mut self, moment: &Moment, address: u64, mode: Mode, depth: u32) {
        let holders = self.by_lock.entry((moment.space, address)).or_default();
        holders
            .retain(|holder| holder.key == moment.key || mode == Mode::Shared && holder.mode == Mode::Shared);
        match holders.iter_mut().find(|holder| holder.key == moment.key && holder.mode == mode) {
            Some(holder) => holder.depth += depth,
            None => {
                holders.retain(|holder| holder.key != moment.key);
                holders.push(Holder { key: moment.key, task: moment.task, mode, depth });
            }
        }
    }

    /// The moment's task gives the lock back once. Returns how it held it, if that is known.
    pub(super) fn released(&mut self, moment: &Moment, address: u64) -> Option<Mode> {
        let holders = self.by_lock.get_mut(&(moment.space, address))?;
        let index = holders.iter().position(|holder| holder.key == moment.key)?;
        let Holder { mode, depth, .. } = holders[index];
        if depth > 1 {
            holders[index].depth -= 1;
        } else {
            holders.swap_remove(index);
        }
        Some(mode)
    }

    /// The moment's task gives the lock back altogether. Returns how often it had it.
    pub(super) fn put_down(&mut self, moment: &Moment, address: u64) -> Option<u32> {
        let holders = self.by_lock.get_mut(&(moment.space, address))?;
        let index = holders.iter().position(|holder| holder.key == moment.key)?;
        Some(holders.swap_remove(index).depth)
    }

    /// Whether the records so far tell who holds the lock, even if it is nobody.
    pub(super) fn are_known(&self, moment: &Moment, address: u64) -> bool {
        self.by_lock.contains_key(&(moment.space, address))
    }

    /// Whether the moment's task holds the lock.
    pub(super) fn is_mine(&self, moment: &Moment, address: u64) -> bool {
        let holders = self.by_lock.get(&(moment.space, address)).into_iter().flatten();
        holders.into_iter().any(|holder| holder.key == moment.key)
    }

    /// Another task whose hold keeps the moment's task from having the lock in this mode; `None` too if that task holds it
    /// itself.
    pub(super) fn in_the_way(&self, moment: &Moment, address: u64, mode: Mode) -> Option<TaskId> {
        let holders = self.by_lock.get(&(moment.space, address))?;
        if holders.iter().any(|holder| holder.key == moment.key) {
            return None;
        }
        let excludes = |holder: &&Holder| mode == Mode::Exclusive || holder.mode == Mode::Exclusive;
        holders.iter().find(excludes).map(|holder| holder.task)
    }

    /// What is at this address from now on is another lock, or none.
    pub(super) fn forget(&mut self, space: Space, address: u64) {
        self.by_lock.remove(&(space, address));
    }

    /// Events are missing: any lock may have another holder by now.
    pub(super) fn lost(&mut self) {
        self.by_lock.clear();
    }
}
