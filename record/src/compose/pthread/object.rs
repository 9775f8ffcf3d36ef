//! What a lock of the C library is, and what the words say that the kernel side read in it: a record's numbers in, plain
//! answers out. The meaning of the words is that of glibc's `sysdeps/nptl/internaltypes.h`, `nptl/pthreadP.h` and
//! `nptl/pthread_rwlock_common.c`, unchanged since 2.25.

use trace_format::{
    LockKind, Mode,
    wire::{WireEvent, api, code, flag, mutex, words},
};

/// The kind of lock that these functions are for.
pub(super) fn kind_of(object: u8) -> LockKind {
    match object {
        api::RWLOCK | api::RWLOCK_READ | api::RWLOCK_WRITE => LockKind::PthreadRwLock,
        api::SPIN | api::SPIN_UNLOCK_OR_INIT => LockKind::PthreadSpin,
        api::CONDITION => LockKind::CondVar,
        api::BARRIER => LockKind::Barrier,
        api::SEMAPHORE => LockKind::UserSemaphore,
        _ => LockKind::PthreadMutex,
    }
}

/// How these functions take the lock, or want it; `None` if nobody holds such a thing.
pub(super) fn mode_of(object: u8) -> Option<Mode> {
    match object {
        api::RWLOCK_READ => Some(Mode::Shared),
        api::CONDITION | api::BARRIER | api::SEMAPHORE => None,
        _ => Some(Mode::Exclusive),
    }
}

/// What a lock said of itself when a call began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    /// Nothing: it could not be read, or it is of a kind that says nothing.
    Nothing,
    /// The call can have it.
    Free,
    /// The call can have it from its owner, who died.
    Orphaned,
    /// The call can't have it. With it the owner's thread id, as the owner's process knows it; 0 if it names none.
    Taken(u32),
}

/// `FUTEX_TID_MASK` and `FUTEX_OWNER_DIED` (`include/uapi/linux/futex.h`).
const TID_MASK: u32 = 0x3fff_ffff;
const OWNER_DIED: u32 = 0x4000_0000;
/// `PTHREAD_RWLOCK_WRPHASE`, `PTHREAD_RWLOCK_WRLOCKED` and `PTHREAD_RWLOCK_READER_SHIFT`.
const WRITE_PHASE: u32 = 1;
const WRITE_LOCKED: u32 = 2;
const READER_SHIFT: u32 = 3;

/// What the lock of a [`code::CALL`] says.
pub(super) fn says(event: &WireEvent) -> Says {
    if event.flags & flag::WORDS == 0 {
        return Says::Nothing;
    }
    let (first, owner) = (words::first(event.value as u64), words::owner(event.value as u64));
    let taken = match api::object(event.detail) {
        api::MUTEX if first & OWNER_DIED != 0 => return Says::Orphaned,
        api::MUTEX => first != 0,
        // In a phase of writing with nobody who writes, the next reader begins one of reading.
        api::RWLOCK_READ => first & (WRITE_PHASE | WRITE_LOCKED) == WRITE_PHASE | WRITE_LOCKED,
        api::RWLOCK_WRITE => first & WRITE_LOCKED != 0 || first >> READER_SHIFT != 0,
        // 1 is free on x86, and everything below is not.
        api::SPIN => first.cast_signed() <= 0,
        api::SEMAPHORE => first == 0,
        _ => return Says::Nothing,
    };
    if taken { Says::Taken(owner) } else { Says::Free }
}

/// `PTHREAD_MUTEX_KIND_MASK_NP`, of the types `RECURSIVE_NP` and `ERRORCHECK_NP`, and the flags `ROBUST_NORMAL_NP` and
/// `PRIO_INHERIT_NP`.
const TYPE: u32 = 3;
const RECURSIVE: u32 = 1;
const ERRORCHECK: u32 = 2;
const ROBUST: u32 = 16;
const INHERITS: u32 = 32;

/// The thread that alone can give this mutex back, as its process knows it, 0 if nobody holds it; `None` if the mutex does not
/// look, or could not be read.
pub(super) fn only_owner(event: &WireEvent) -> Option<u32> {
    if event.flags & flag::WORDS == 0 || event.code != code::UNLOCK {
        return None;
    }
    let kind = mutex::kind(event.extra);
    if kind & (ROBUST | INHERITS) != 0 {
        return Some(words::first(event.value as u64) & TID_MASK);
    }
    matches!(kind & TYPE, RECURSIVE | ERRORCHECK).then_some(words::owner(event.value as u64))
}

/// Whether a mutex can't be destroyed because somebody has it.
pub(super) fn is_in_use(event: &WireEvent) -> bool {
    api::object(event.detail) == api::MUTEX
        && mutex::kind(event.extra) & ROBUST == 0
        && mutex::users(event.extra) != 0
}

/// `SEM_VALUE_MAX`, and the most threads that a barrier is for.
const MOST: u32 = i32::MAX.cast_unsigned();

/// Whether the count of a barrier or a semaphore is one that its initialisation refuses.
pub(super) fn is_refused_count(event: &WireEvent) -> bool {
    let count = event.extra as u32;
    match api::object(event.detail) {
        api::BARRIER => count == 0 || count > MOST,
        api::SEMAPHORE => count > MOST,
        _ => false,
    }
}

/// Whether a semaphore can't be posted, because it would count too far.
pub(super) fn is_full(event: &WireEvent) -> bool {
    event.flags & flag::WORDS != 0 && words::first(event.value as u64) >= MOST
}

/// Whether the lock of a function that initialises and gives back alike is free: nobody gives it back, then.
pub(super) fn is_free_spin(event: &WireEvent) -> bool {
    event.flags & flag::WORDS != 0 && words::first(event.value as u64) == 1
}
