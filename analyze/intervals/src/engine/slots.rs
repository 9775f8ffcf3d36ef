//! The table of idle locks, by lock id. An idle lock costs 32 bytes.

use rustc_hash::FxHashMap;
use trace_format::LockId;

use super::lock_state::Idle;

/// The state of each lock, by id. Most locks are idle most of the time, so a slot is small.
#[derive(Debug)]
pub(super) struct Slots {
    /// The engine sees the locks whose ids are equal in this many low bits.
    shard_bits: u32,
    locks: u32,
    dense: Vec<Slot>,
    /// Locks that the side table does not have.
    others: FxHashMap<LockId, Slot>,
    /// The number of times that everything was forgotten.
    age: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) idle: Idle,
    /// The index of the lock's state, while anything is open on it.
    pub(super) open: Option<u32>,
    age: u32,
}

impl Slots {
    pub(super) fn new(locks: usize, shard_bits: u32) -> Self {
        let locks = u32::try_from(locks).unwrap_or(u32::MAX);
        Self { shard_bits, locks, dense: Vec::new(), others: FxHashMap::default(), age: 0 }
    }

    /// Sets the number of locks of the trace, which grows while it is recorded.
    pub(super) fn set_locks(&mut self, locks: usize) {
        self.locks = u32::try_from(locks).unwrap_or(u32::MAX);
    }

    #[inline]
    pub(super) fn of(&mut self, lock: LockId) -> &mut Slot {
        // Ids below 0 are larger than any number of locks.
        let (id, age) = (lock.0.cast_unsigned(), self.age);
        let at = if id < self.locks { (id >> self.shard_bits) as usize } else { usize::MAX };
        if self.dense.get(at).is_some_and(|slot| slot.age == age) {
            return &mut self.dense[at];
        }
        self.of_unseen(lock, at)
    }

    /// Returns the slot of a lock that has none, or an old one, or is not in the side table.
    #[cold]
    fn of_unseen(&mut self, lock: LockId, at: usize) -> &mut Slot {
        let unseen = Slot { idle: Idle::UNSEEN, open: None, age: self.age };
        let slot = if at == usize::MAX {
            self.others.entry(lock).or_insert(unseen)
        } else {
            self.dense.resize(self.dense.len().max(at + 1), unseen);
            &mut self.dense[at]
        };
        if slot.age != self.age {
            *slot = unseen;
        }
        slot
    }

    /// Forgets all locks.
    pub(super) fn clear(&mut self) {
        self.others.clear();
        self.age = self.age.wrapping_add(1);
        if self.age == 0 {
            self.dense.clear();
        }
    }
}
