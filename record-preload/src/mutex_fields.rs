//! The type and the present state of a mutex, read from the structure of glibc. Nothing is written.

use core::ptr;

use crate::real::Lock;

/// Offset of the state, which is 0 if the mutex is free.
const STATE_OFFSET: usize = 0;
/// Offset of the owner's TID in glibc's `struct __pthread_mutex_s`, on every 64-bit architecture.
const OWNER_OFFSET: usize = 8;
/// Offset of the type and protocol.
const KIND_OFFSET: usize = 16;
const TYPE: u32 = 3;
const ROBUST: u32 = 16;
const PRIORITY_INHERIT: u32 = 32;
const PRIORITY_PROTECT: u32 = 64;
/// Other processes may use the mutex.
const SHARED: u32 = 128;
/// The bits of the state without those for waiters and for an owner that died, and those below a priority.
const STATE: u32 = (1 << 30) - 1;
const STATE_BELOW_PRIORITY: u32 = (1 << 19) - 1;
/// The bit of the state of a robust mutex whose owner died.
const OWNER_DIED: u32 = 1 << 30;

/// Reads a word of a mutex, which other threads may change.
#[inline(always)]
unsafe fn word(mutex: Lock, offset: usize) -> u32 {
    // SAFETY: the C library's mutex is larger than the offset, and the word is aligned.
    unsafe { ptr::read_volatile(mutex.cast::<u8>().add(offset).cast()) }
}

/// Reads the type and protocol.
#[inline(always)]
unsafe fn kind(mutex: Lock) -> u32 {
    // SAFETY: the pointer is a mutex, the caller's obligation.
    unsafe { word(mutex, KIND_OFFSET) }
}

/// Returns the owner of the mutex, 0 if it is free.
pub(crate) unsafe fn owner(mutex: Lock) -> u32 {
    // SAFETY: the pointer is a mutex, the caller's obligation.
    unsafe { word(mutex, OWNER_OFFSET) }
}

/// Whether the mutex is free, or can be taken as its owner died.
pub(crate) unsafe fn is_free(mutex: Lock) -> bool {
    // SAFETY: the pointer is a mutex, the caller's obligation.
    let (state, kind) = unsafe { (word(mutex, STATE_OFFSET), kind(mutex)) };
    let bits = if kind & PRIORITY_PROTECT == 0 { STATE } else { STATE_BELOW_PRIORITY };
    state & bits == 0 || kind & ROBUST != 0 && state & OWNER_DIED != 0
}

/// Whether the mutex is robust: the next owner learns that an owner died.
#[inline(always)]
pub(crate) unsafe fn is_robust(mutex: Lock) -> bool {
    // SAFETY: the pointer is a mutex, the caller's obligation.
    unsafe { kind(mutex) & ROBUST != 0 }
}

/// Whether other processes may use the mutex.
#[inline(always)]
pub(crate) unsafe fn is_shared(mutex: Lock) -> bool {
    // SAFETY: the pointer is a mutex, the caller's obligation.
    unsafe { kind(mutex) & SHARED != 0 }
}

/// Whether its owner inherits the priority of those who wait.
pub(crate) unsafe fn inherits_priority(mutex: Lock) -> bool {
    // SAFETY: the pointer is a mutex, the caller's obligation.
    unsafe { kind(mutex) & PRIORITY_INHERIT != 0 }
}

/// Whether its owner can lock the mutex again.
pub(crate) unsafe fn is_recursive(mutex: Lock) -> bool {
    // SAFETY: the pointer is a mutex, the caller's obligation.
    unsafe { kind(mutex) & TYPE == libc::PTHREAD_MUTEX_RECURSIVE as u32 }
}

/// Whether the C library refuses to lock the mutex again for its owner.
pub(crate) unsafe fn checks_relock(mutex: Lock) -> bool {
    // SAFETY: the pointer is a mutex, the caller's obligation.
    unsafe { kind(mutex) & TYPE == libc::PTHREAD_MUTEX_ERRORCHECK as u32 }
}

/// Whether the C library refuses to unlock the mutex for a thread that does not own it.
pub(crate) unsafe fn checks_owner(mutex: Lock) -> bool {
    // SAFETY: the pointer is a mutex, the caller's obligation.
    unsafe { checks_relock(mutex) || is_recursive(mutex) || kind(mutex) & (ROBUST | PRIORITY_INHERIT) != 0 }
}
