//! The locks table. It knows the present incarnation of the lock at each address.
//!
//! An address belongs to the kernel or to one incarnation of a process. Initialising or destroying a lock
//! there starts or ends an incarnation of the lock. Names are found elsewhere
//! ([`symbols`](crate::names::symbols)); [`Locks::take_new`] returns the locks that have none yet.

use std::{
    collections::BTreeMap,
    hash::{Hash, Hasher},
};

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};
use trace_format::{LockId, LockKind, LockRow, Scope, StackId};

use crate::{
    compose::{
        recent::{Recent, RecentKey},
        tasks::ProcessKey,
    },
    names::symbols::FoundLock,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Space {
    Kernel,
    /// One incarnation of a process, and its PID.
    Process(ProcessKey, u32),
}

impl Hash for Space {
    /// Hashes one integer: locks are looked up for every record, and the key of a process is unique.
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Kernel => state.write_u32(u32::MAX),
            Self::Process(process, _) => state.write_u32(process.0),
        }
    }
}

/// A lock that was seen for the first time and needs a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NewLock {
    pub id: LockId,
    pub space: Space,
    pub address: u64,
    pub kind: LockKind,
}

/// The size of a lock of this kind on x86-64, in bytes: of the C library's with glibc, of Rust's as far as
/// its futexes go; `None` if no task waits on a futex in it.
const fn bytes_of(kind: LockKind) -> Option<u64> {
    match kind {
        LockKind::PthreadMutex => Some(40),
        LockKind::PthreadRwLock => Some(56),
        LockKind::PthreadSpin => Some(4),
        LockKind::CondVar => Some(48),
        LockKind::Barrier | LockKind::UserSemaphore => Some(32),
        // The thread id in glibc's `struct pthread`, on which those who join wait, is in this part of it.
        LockKind::Thread => Some(1024),
        LockKind::RustMutex => Some(4),
        LockKind::RustRwLock => Some(8),
        _ => None,
    }
}

/// Whether the futex word at `word` is a part of the lock of this kind that begins at `start`.
pub(crate) fn has_word(kind: LockKind, start: u64, word: u64) -> bool {
    bytes_of(kind).is_some_and(|bytes| word.wrapping_sub(start) < bytes)
}

/// A lock as records name it.
type Key = (Space, u64, LockKind);

impl RecentKey for Key {
    fn number(&self) -> usize {
        // Locks are aligned to 8 bytes, and often lie in objects of some cache lines.
        (self.1 >> 3 ^ self.1 >> 9) as usize
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Locks {
    live: FxHashMap<Key, LockId>,
    #[serde(skip)]
    recent: Recent<Key, LockId, 256>,
    /// The last reported kind of each kernel lock: the end of a wait does not report it.
    kernel_kinds: FxHashMap<u64, LockKind>,
    /// The locks of the C library, to find the one that contains a futex word.
    pthread: BTreeMap<(Space, u64), LockKind>,
    rows: Vec<LockRow>,
    new: Vec<NewLock>,
}

impl Locks {
    /// Returns the present incarnation of a lock, seen at `ts_ns`.
    pub(crate) fn id(&mut self, space: Space, address: u64, kind: LockKind, ts_ns: i64) -> LockId {
        let key = (space, address, kind);
        if let Some(id) = self.recent.get_or(key, || self.live.get(&key).copied()) {
            self.touch(id, ts_ns);
            return id;
        }
        let id = LockId(self.rows.len() as i32);
        let (scope, pid) = match space {
            Space::Kernel => (Scope::Kernel, None),
            Space::Process(_, pid) => (Scope::Process, Some(pid as i32)),
        };
        self.rows.push(LockRow {
            id,
            address: Some(address),
            kind,
            scope,
            pid,
            name: None,
            shared: None,
            init_stack: None,
            first_ns: ts_ns,
            last_ns: ts_ns,
        });
        self.new.push(NewLock { id, space, address, kind });
        self.live.insert(key, id);
        if bytes_of(kind).is_some() {
            self.pthread.insert((space, address), kind);
        } else if kind.is_kernel() {
            self.kernel_kinds.insert(address, kind);
        }
        id
    }

    /// Starts a new incarnation of a lock that was initialised at `ts_ns`.
    pub(crate) fn start(
        &mut self,
        space: Space,
        address: u64,
        kind: LockKind,
        ts_ns: i64,
        init_stack: Option<StackId>,
    ) -> LockId {
        self.live.remove(&(space, address, kind));
        self.recent.forget(&(space, address, kind));
        self.started(space, address, kind, ts_ns, init_stack)
    }

    /// Adds the initialisation of a lock whose present incarnation may have been seen before.
    pub(crate) fn started(
        &mut self,
        space: Space,
        address: u64,
        kind: LockKind,
        ts_ns: i64,
        init_stack: Option<StackId>,
    ) -> LockId {
        let id = self.id(space, address, kind, ts_ns);
        self.rows[id.0 as usize].init_stack = init_stack;
        id
    }

    /// Ends the incarnation of a lock that was destroyed.
    pub(crate) fn end(&mut self, space: Space, address: u64, kind: LockKind) {
        self.live.remove(&(space, address, kind));
        self.recent.forget(&(space, address, kind));
        self.pthread.remove(&(space, address));
    }

    /// Notes that the lock was used at `ts_ns`.
    pub(crate) fn touch(&mut self, id: LockId, ts_ns: i64) {
        if let Some(row) = self.rows.get_mut(id.0 as usize) {
            row.last_ns = row.last_ns.max(ts_ns);
        }
    }

    /// The last reported kind of the kernel lock at this address.
    pub(crate) fn kernel_kind(&self, address: u64) -> Option<LockKind> {
        self.kernel_kinds.get(&address).copied()
    }

    /// The lock of this kind that is at the address now, if it was seen.
    pub(crate) fn known(&self, space: Space, address: u64, kind: LockKind) -> Option<LockId> {
        self.live.get(&(space, address, kind)).copied()
    }

    /// The lock of the C library that contains the futex word at `word`: its address and kind.
    pub(crate) fn pthread_around(&self, space: Space, word: u64) -> Option<(u64, LockKind)> {
        let (&(found, address), &kind) = self.pthread.range(..=(space, word)).next_back()?;
        (found == space && has_word(kind, address, word)).then_some((address, kind))
    }

    /// Adds to pthread locks what the processes that share their memory call them.
    pub(crate) fn add_shared(&self, locks: &mut FxHashSet<(Space, u64)>) {
        let shared = |at: &(Space, u64), &kind: &LockKind| {
            let id = self.known(at.0, at.1, kind)?;
            self.rows[id.0 as usize].shared.as_deref()
        };
        let own = |at: &(Space, u64)| shared(at, self.pthread.get(at)?);
        let wanted: FxHashSet<&str> = locks.iter().filter_map(own).collect();
        if !wanted.is_empty() {
            let all = self.pthread.iter();
            let same = all.filter(|(at, kind)| shared(at, kind).is_some_and(|place| wanted.contains(place)));
            locks.extend(same.map(|(at, _)| *at));
        }
    }

    /// Takes the locks that were first seen since the last call.
    pub(crate) fn take_new(&mut self) -> Vec<NewLock> {
        std::mem::take(&mut self.new)
    }

    pub(crate) fn describe(&mut self, found: FoundLock) {
        if let Some(row) = self.rows.get_mut(found.lock.0 as usize) {
            row.name = found.name.or_else(|| row.name.take());
            row.shared = found.shared.or_else(|| row.shared.take());
        }
    }

    /// Returns the rows, by id.
    pub(crate) fn into_rows(self) -> Vec<LockRow> {
        self.rows
    }

    pub(crate) fn rows(&self) -> &[LockRow] {
        &self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Space = Space::Process(ProcessKey(0), 10);
    const B: Space = Space::Process(ProcessKey(1), 10);

    #[test]
    fn the_same_address_in_two_incarnations_of_a_process_is_two_locks() {
        let mut locks = Locks::default();
        let before = locks.id(A, 0x40, LockKind::PthreadMutex, 1);
        let after = locks.id(B, 0x40, LockKind::PthreadMutex, 2);
        assert_ne!(before, after);
        assert_eq!(locks.id(A, 0x40, LockKind::PthreadMutex, 9), before);
        assert_eq!(
            (locks.rows()[0].first_ns, locks.rows()[0].last_ns, locks.rows()[0].pid),
            (1, 9, Some(10))
        );
    }

    #[test]
    fn a_lock_that_is_initialised_again_is_another_lock() {
        let mut locks = Locks::default();
        let first = locks.start(A, 0x40, LockKind::PthreadMutex, 1, Some(StackId(3)));
        let second = locks.start(A, 0x40, LockKind::PthreadMutex, 5, None);
        assert_ne!(first, second);
        assert_eq!(locks.id(A, 0x40, LockKind::PthreadMutex, 6), second);
        assert_eq!(locks.rows()[0].init_stack, Some(StackId(3)));
    }

    #[test]
    fn a_futex_word_belongs_to_the_lock_around_it() {
        let mut locks = Locks::default();
        locks.id(A, 1000, LockKind::PthreadMutex, 1);
        locks.id(A, 1040, LockKind::CondVar, 1);
        assert_eq!(locks.pthread_around(A, 1000), Some((1000, LockKind::PthreadMutex)));
        assert_eq!(locks.pthread_around(A, 1039), Some((1000, LockKind::PthreadMutex)));
        assert_eq!(locks.pthread_around(A, 1080), Some((1040, LockKind::CondVar)));
        assert_eq!(locks.pthread_around(A, 1088), None);
        assert_eq!(locks.pthread_around(A, 999), None);
        assert_eq!(locks.pthread_around(B, 1000), None);
        locks.end(A, 1000, LockKind::PthreadMutex);
        assert_eq!(locks.pthread_around(A, 1000), None);
    }

    #[test]
    fn a_lock_in_shared_memory_is_the_same_in_each_process() {
        let mut locks = Locks::default();
        for (space, address, shared) in
            [(A, 8, Some("m+8")), (B, 16, Some("m+8")), (B, 24, Some("m+16")), (B, 32, None)]
        {
            let lock = locks.id(space, address, LockKind::PthreadMutex, 1);
            locks.describe(FoundLock { lock, name: None, shared: shared.map(str::to_owned) });
        }
        let mut awaited = FxHashSet::from_iter([(A, 8), (B, 32)]);
        locks.add_shared(&mut awaited);
        assert_eq!(awaited, FxHashSet::from_iter([(A, 8), (B, 16), (B, 32)]));
    }

    #[test]
    fn the_rows_contain_what_was_found_about_them() {
        let mut locks = Locks::default();
        let id = locks.id(Space::Kernel, 0xffff_8000, LockKind::Mutex, 1);
        let new = NewLock { id, space: Space::Kernel, address: 0xffff_8000, kind: LockKind::Mutex };
        assert_eq!(locks.take_new(), [new]);
        assert_eq!(locks.take_new(), []);
        let found = |name: Option<&str>, shared: Option<&str>| FoundLock {
            lock: id,
            name: name.map(str::to_owned),
            shared: shared.map(str::to_owned),
        };
        locks.describe(found(Some("cgroup_mutex"), None));
        locks.describe(found(None, Some("00:01:7+0x40")));
        let rows = locks.into_rows();
        assert_eq!(
            (rows[0].name.as_deref(), rows[0].shared.as_deref()),
            (Some("cgroup_mutex"), Some("00:01:7+0x40"))
        );
    }
}
