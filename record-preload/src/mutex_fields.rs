//! The type and the present state of a mutex, read from the structure of glibc. Nothing is written.

use core::ptr;

use crate::real::Lock;

/// A mutex of glibc, whose type and present state are read from its structure. Nothing is written.
#[derive(Clone, Copy)]
pub(crate) struct MutexFields(Lock);

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

impl MutexFields {
    /// # Safety
    /// The pointer is a mutex that exists while its fields are read.
    #[inline(always)]
    pub(crate) unsafe fn of(mutex: Lock) -> Self {
        Self(mutex)
    }

    /// Reads a word, which other threads may change.
    #[inline(always)]
    fn word(self, offset: usize) -> u32 {
        // SAFETY: the C library's mutex is larger than the offset, and the word is aligned.
        unsafe { ptr::read_volatile(self.0.cast::<u8>().add(offset).cast()) }
    }

    /// Reads the type and protocol.
    #[inline(always)]
    fn kind(self) -> u32 {
        self.word(KIND_OFFSET)
    }

    /// Returns the owner of the mutex, 0 if it is free.
    pub(crate) fn owner(self) -> u32 {
        self.word(OWNER_OFFSET)
    }

    /// Whether the mutex is free, or can be taken as its owner died.
    pub(crate) fn is_free(self) -> bool {
        let (state, kind) = (self.word(STATE_OFFSET), self.kind());
        let bits = if kind & PRIORITY_PROTECT == 0 { STATE } else { STATE_BELOW_PRIORITY };
        state & bits == 0 || kind & ROBUST != 0 && state & OWNER_DIED != 0
    }

    /// Whether the mutex is robust, so that the next owner learns that an owner died, or has a priority
    /// ceiling.
    #[inline(always)]
    pub(crate) fn is_special(self) -> bool {
        self.kind() & (ROBUST | PRIORITY_PROTECT) != 0
    }

    /// Whether its owner gets the priority of its ceiling.
    pub(crate) fn has_ceiling(self) -> bool {
        self.kind() & PRIORITY_PROTECT != 0
    }

    /// Whether other processes may use the mutex.
    #[inline(always)]
    pub(crate) fn is_shared(self) -> bool {
        self.kind() & SHARED != 0
    }

    /// Whether its owner inherits the priority of those who wait.
    pub(crate) fn inherits_priority(self) -> bool {
        self.kind() & PRIORITY_INHERIT != 0
    }

    /// Whether its owner can lock the mutex again.
    pub(crate) fn is_recursive(self) -> bool {
        self.kind() & TYPE == libc::PTHREAD_MUTEX_RECURSIVE as u32
    }

    /// Whether the C library refuses to lock the mutex again for its owner.
    pub(crate) fn checks_relock(self) -> bool {
        self.kind() & TYPE == libc::PTHREAD_MUTEX_ERRORCHECK as u32
    }

    /// Whether the C library refuses to unlock the mutex for a thread that does not own it.
    pub(crate) fn checks_owner(self) -> bool {
        self.checks_relock() || self.is_recursive() || self.kind() & (ROBUST | PRIORITY_INHERIT) != 0
    }
}
