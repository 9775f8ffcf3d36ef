//! Decodes the kernel side's records of pthread functions and of slow paths of other locks into facts.
//!
//! The kernel side reads the lock's words at the call. Their meaning follows from glibc's
//! `sysdeps/nptl/internaltypes.h`, `nptl/pthreadP.h` and `nptl/pthread_rwlock_common.c`, unchanged since
//! 2.25. Calls that the words show to be refused make no fact.

use trace_format::{
    Mode,
    user_functions::is_slow_path,
    wire::{WireEvent, api, code, flag, lock_words, mutex_state},
};

use crate::compose::user::fact::{Action, Begin, Fact, LockWord, Outcome, mode_of};

/// The fact that a record reports; `None` if nothing happened.
pub(crate) fn fact(event: &WireEvent) -> Option<Fact> {
    let object = api::object(event.detail);
    let action = match event.code {
        code::CALL if object == api::GO_MUTEX => Action::GoroutineWaits(event.extra),
        code::RETURN if object == api::GO_MUTEX => Action::GoroutineAcquired(event.extra),
        code::POST if object == api::GO_MUTEX => Action::GoroutineReleased(event.extra),
        // The fast path failed before.
        code::CALL if is_slow_path(event.detail) => Action::Waits { owner: None },
        code::CALL if object == api::CONDITION => Action::ConditionWait(event.extra),
        code::CALL => Action::Called { word: lock_word(event), is_refused: event.extra != 0 },
        code::RETURN if object == api::CONDITION => Action::ConditionReturned(None, returned(event)),
        code::RETURN => Action::Returned(Begin::Reported, outcome(event)),
        code::TAKEN => Action::Returned(Begin::ReportedIfContended, outcome(event)),
        code::UNLOCK if object == api::SPIN_UNLOCK_OR_INIT => {
            Action::ReleasedOrInitialised { is_free: is_free_spin(event) }
        }
        code::UNLOCK => Action::Released { mode: released_mode(event), only_owner: only_owner(event) },
        code::INIT if !is_refused_count(event) => Action::Initialised,
        code::DESTROY if !is_in_use(event) => Action::Destroyed,
        code::POST if !is_full(event) => Action::Posted,
        _ => return None,
    };
    Some(Fact { function: event.detail, address: event.address, action })
}

/// The result of a function that takes a lock.
fn outcome(event: &WireEvent) -> Outcome {
    match api::object(event.detail) {
        // One of the callers gets `PTHREAD_BARRIER_SERIAL_THREAD`, which is -1.
        api::BARRIER if matches!(event.value, 0 | -1) => Outcome::Acquired(None),
        // The errno is the thread's own.
        api::SEMAPHORE if event.value != 0 => Outcome::Failed(None),
        // These functions return nothing.
        api::RUST_MUTEX | api::RUST_RWLOCK_READ | api::RUST_RWLOCK_WRITE => Outcome::Acquired(None),
        _ => Outcome::of_errno(returned(event)),
    }
}

/// The value that the function returned, if it is not 0: an errno, except for semaphores and barriers.
fn returned(event: &WireEvent) -> Option<i32> {
    Some(event.value as i32).filter(|&value| value != 0)
}

/// `FUTEX_TID_MASK` and `FUTEX_OWNER_DIED` (`include/uapi/linux/futex.h`).
const TID_MASK: u32 = 0x3fff_ffff;
const OWNER_DIED: u32 = 0x4000_0000;
/// `PTHREAD_RWLOCK_WRPHASE`, `PTHREAD_RWLOCK_WRLOCKED` and `PTHREAD_RWLOCK_READER_SHIFT`.
const WRITE_PHASE: u32 = 1;
const WRITE_LOCKED: u32 = 2;
const READER_SHIFT: u32 = 3;

/// The state of the lock of a [`code::CALL`].
fn lock_word(event: &WireEvent) -> LockWord {
    if event.flags & flag::LOCK_WORDS == 0 {
        return LockWord::Unknown;
    }
    let (first, owner) = (lock_words::first(event.value as u64), lock_words::owner(event.value as u64));
    let taken = match api::object(event.detail) {
        api::MUTEX if first & OWNER_DIED != 0 => return LockWord::OwnerDied,
        api::MUTEX => first != 0,
        // In a write phase without a writer, the next reader starts a read phase.
        api::RWLOCK_READ => first & (WRITE_PHASE | WRITE_LOCKED) == WRITE_PHASE | WRITE_LOCKED,
        api::RWLOCK_WRITE => first & WRITE_LOCKED != 0 || first >> READER_SHIFT != 0,
        // On x86, 1 is free, and everything below is taken.
        api::SPIN => first.cast_signed() <= 0,
        api::SEMAPHORE => first == 0,
        _ => return LockWord::Unknown,
    };
    if taken { LockWord::Taken(owner) } else { LockWord::Free }
}

/// The mode in which a lock was held that is released: a writer leaves its thread id in an rwlock, readers do
/// not.
fn released_mode(event: &WireEvent) -> Option<Mode> {
    match api::object(event.detail) {
        api::RWLOCK if lock_words::owner(event.value as u64) == 0 => Some(Mode::Shared),
        api::RWLOCK => Some(Mode::Exclusive),
        object => mode_of(object),
    }
}

/// `PTHREAD_MUTEX_KIND_MASK_NP`, the types `RECURSIVE_NP` and `ERRORCHECK_NP`, and the flags
/// `ROBUST_NORMAL_NP` and `PRIO_INHERIT_NP`.
const TYPE: u32 = 3;
const RECURSIVE: u32 = 1;
const ERRORCHECK: u32 = 2;
const ROBUST: u32 = 16;
const INHERITS: u32 = 32;

/// The only thread that can release this mutex, as its process sees it, 0 if no thread holds it; `None` if
/// the mutex does not check that, or could not be read.
fn only_owner(event: &WireEvent) -> Option<u32> {
    if event.flags & flag::LOCK_WORDS == 0 {
        return None;
    }
    let kind = mutex_state::kind(event.extra);
    if kind & (ROBUST | INHERITS) != 0 {
        return Some(lock_words::first(event.value as u64) & TID_MASK);
    }
    matches!(kind & TYPE, RECURSIVE | ERRORCHECK).then_some(lock_words::owner(event.value as u64))
}

/// Whether a mutex cannot be destroyed because it is in use.
fn is_in_use(event: &WireEvent) -> bool {
    api::object(event.detail) == api::MUTEX
        && mutex_state::kind(event.extra) & ROBUST == 0
        && mutex_state::users(event.extra) != 0
}

/// `SEM_VALUE_MAX`, and the maximum number of threads of a barrier.
const MAX_COUNT: u32 = i32::MAX.cast_unsigned();

/// Whether the initialisation of a barrier or a semaphore refuses its count.
fn is_refused_count(event: &WireEvent) -> bool {
    let count = event.extra as u32;
    match api::object(event.detail) {
        api::BARRIER => count == 0 || count > MAX_COUNT,
        api::SEMAPHORE => count > MAX_COUNT,
        _ => false,
    }
}

/// Whether a semaphore cannot be posted because its count would overflow.
fn is_full(event: &WireEvent) -> bool {
    event.flags & flag::LOCK_WORDS != 0 && lock_words::first(event.value as u64) >= MAX_COUNT
}

/// Whether the lock of a function that both initialises and releases is free: then it is not a release.
fn is_free_spin(event: &WireEvent) -> bool {
    event.flags & flag::LOCK_WORDS != 0 && lock_words::first(event.value as u64) == 1
}

#[cfg(test)]
mod tests;
