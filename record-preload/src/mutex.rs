//! `pthread_mutex_*`. Tries first, so that a call whose mutex is free reads the clock once, and a call that waits is known to
//! wait. Reads the state, the owner and the type of the mutex, and never writes to it.
//!
//! If another interposer is behind this library, a try would be a call that the program did not make. Then the state of the mutex
//! decides whether the call waits; if another thread changes it in between, a wait is recorded as none or as a very short one.

use core::{
    ffi::{c_int, c_void},
    mem,
    ptr::{self, null_mut},
    sync::atomic::{AtomicBool, AtomicPtr, Ordering},
};

use libc::{clockid_t, timespec};
use trace_format::preload::{api::MUTEX, call::TIMED, op};

use crate::{
    call::{Call, acquire, initialize, release, try_acquire},
    clock,
    real::{self, Lock, LockOnly},
    thread,
    walk::Caller,
};

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

/// The function that tries to lock a mutex: that of the C library, or [`look`].
static ATTEMPT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// Whether it is [`look`].
static IS_INTERPOSED: AtomicBool = AtomicBool::new(false);
/// The result of [`look`] if the call will not wait.
const NOT_TRIED: c_int = -1;

/// Reads a word of a mutex, which other threads may change.
unsafe fn word(mutex: Lock, offset: usize) -> u32 {
    // SAFETY: the C library's mutex is larger than the offset, and the word is aligned.
    unsafe { ptr::read_volatile(mutex.cast::<u8>().add(offset).cast()) }
}

/// Returns the owner of the mutex, 0 if it is free.
pub(crate) unsafe fn owner(mutex: Lock) -> u32 {
    // SAFETY: the pointer is a mutex, the caller's obligation.
    unsafe { word(mutex, OWNER_OFFSET) }
}

/// Whether other processes may use the mutex.
#[inline(always)]
pub(crate) unsafe fn is_shared(mutex: Lock) -> bool {
    // SAFETY: the pointer is a mutex, the caller's obligation.
    unsafe { word(mutex, KIND_OFFSET) & SHARED != 0 }
}

/// Whether the C library refuses to lock the mutex again for its owner.
unsafe fn checks_relock(mutex: Lock) -> bool {
    // SAFETY: the pointer is a mutex.
    unsafe { word(mutex, KIND_OFFSET) & TYPE == libc::PTHREAD_MUTEX_ERRORCHECK as u32 }
}

/// Whether the C library refuses to unlock the mutex for a thread that does not own it.
pub(crate) unsafe fn checks_owner(mutex: Lock) -> bool {
    // SAFETY: the pointer is a mutex.
    let kind = unsafe { word(mutex, KIND_OFFSET) };
    let mutex_type = kind & TYPE;
    mutex_type == libc::PTHREAD_MUTEX_ERRORCHECK as u32
        || mutex_type == libc::PTHREAD_MUTEX_RECURSIVE as u32
        || kind & (ROBUST | PRIORITY_INHERIT) != 0
}

/// Tries to lock a mutex; returns `EBUSY` if it is held, and neither 0 nor that if the call must be made to know.
#[inline(always)]
unsafe fn attempt(mutex: Lock) -> c_int {
    // SAFETY: the pointer is a mutex.
    unsafe {
        if word(mutex, KIND_OFFSET) & ROBUST == 0 { try_function()(mutex) } else { attempt_robust(mutex) }
    }
}

/// Returns the function that tries to lock a mutex.
#[inline(always)]
fn try_function() -> LockOnly {
    let at = ATTEMPT.load(Ordering::Relaxed);
    if at.is_null() {
        return find_try_function();
    }
    // SAFETY: `find_try_function` stored a function of this type.
    unsafe { mem::transmute::<*mut c_void, LockOnly>(at) }
}

#[cold]
#[inline(never)]
fn find_try_function() -> LockOnly {
    let is_interposed = real::MUTEX_LOCK.is_interposed();
    IS_INTERPOSED.store(is_interposed, Ordering::Relaxed);
    let found = if is_interposed { look } else { real::MUTEX_TRYLOCK.get() };
    ATTEMPT.store(found as *mut c_void, Ordering::Relaxed);
    found
}

/// Whether another interposer is behind this library. Known after the first [`try_function`].
fn is_interposed() -> bool {
    try_function();
    IS_INTERPOSED.load(Ordering::Relaxed)
}

/// Reads whether a mutex is held, so that locking it would wait, and makes no call.
unsafe extern "C" fn look(mutex: Lock) -> c_int {
    // SAFETY: the pointer is a mutex, and the block belongs to this thread, which is recording the call.
    unsafe {
        let (state, kind) = (word(mutex, STATE_OFFSET), word(mutex, KIND_OFFSET));
        let bits = if kind & PRIORITY_PROTECT == 0 { STATE } else { STATE_BELOW_PRIORITY };
        let is_free = state & bits == 0 || kind & ROBUST != 0 && state & OWNER_DIED != 0;
        let is_recursive = kind & TYPE == libc::PTHREAD_MUTEX_RECURSIVE as u32;
        let is_own = is_recursive && owner(mutex) == (*thread::current()).tid;
        if is_free || is_own { NOT_TRIED } else { libc::EBUSY }
    }
}

/// Tries to lock a robust mutex by a timed lock with a time in the past. glibc's `trylock` leaves an unrecoverable mutex locked,
/// and the next blocking call would wait forever instead of failing.
#[cold]
unsafe fn attempt_robust(mutex: Lock) -> c_int {
    // SAFETY: the pointer is a mutex.
    unsafe {
        if is_interposed() {
            return look(mutex);
        }
        timeout_as_busy(real::MUTEX_TIMEDLOCK.get()(mutex, &clock::LONG_PAST))
    }
}

/// Converts the result of a timed lock with a time in the past to the result of a try-lock.
fn timeout_as_busy(result: c_int) -> c_int {
    if result == libc::ETIMEDOUT { libc::EBUSY } else { result }
}

/// Returns the owner that a call waits for; `None` if the C library will fail the call because the caller is the owner.
pub(crate) unsafe fn waits_for(mutex: Lock, call: &Call) -> Option<u32> {
    // SAFETY: the pointer is a mutex.
    unsafe {
        let owner = owner(mutex);
        (owner != call.tid() || !checks_relock(mutex)).then_some(owner)
    }
}

pub(crate) unsafe extern "C" fn init(mutex: Lock, attributes: *const c_void, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { initialize(caller, MUTEX, mutex, || real::MUTEX_INIT.get()(mutex, attributes)) }
}

pub(crate) unsafe extern "C" fn destroy(mutex: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { release(caller, op::DESTROY, MUTEX, mutex, || real::MUTEX_DESTROY.get()(mutex)) }
}

pub(crate) unsafe extern "C" fn lock(mutex: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe {
        acquire(
            caller,
            MUTEX,
            mutex,
            || attempt(mutex),
            |call| waits_for(mutex, call),
            || real::MUTEX_LOCK.get()(mutex),
        )
    }
}

pub(crate) unsafe extern "C" fn trylock(mutex: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { try_acquire(caller, MUTEX, mutex, || real::MUTEX_TRYLOCK.get()(mutex)) }
}

pub(crate) unsafe extern "C" fn timedlock(mutex: Lock, until: *const timespec, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged; the timeout is read only if the C library reads it as well.
    unsafe {
        acquire(
            caller,
            MUTEX | TIMED,
            mutex,
            || attempt(mutex),
            |call| waits_for(mutex, call).filter(|_| clock::is_valid(until)),
            || real::MUTEX_TIMEDLOCK.get()(mutex, until),
        )
    }
}

pub(crate) unsafe extern "C" fn clocklock(
    mutex: Lock,
    clock: clockid_t,
    until: *const timespec,
    caller: Caller,
) -> c_int {
    // SAFETY: forwarded unchanged; the timeout is read only if the C library reads it as well.
    unsafe {
        acquire(
            caller,
            MUTEX | TIMED,
            mutex,
            || {
                let is_valid =
                    clock::is_valid_clock(clock) && word(mutex, KIND_OFFSET) & PRIORITY_INHERIT == 0;
                if is_valid || is_interposed() {
                    return attempt(mutex);
                }
                // The C library refuses an invalid clock even if the mutex is free, and which clocks are valid for a mutex with
                // priority inheritance depends on the kernel. A time in the past makes it check without waiting, by a system call.
                timeout_as_busy(real::MUTEX_CLOCKLOCK.get()(mutex, clock, &clock::LONG_PAST))
            },
            |call| waits_for(mutex, call).filter(|_| clock::is_valid_clock(clock) && clock::is_valid(until)),
            || real::MUTEX_CLOCKLOCK.get()(mutex, clock, until),
        )
    }
}

pub(crate) unsafe extern "C" fn unlock(mutex: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { release(caller, op::RELEASED, MUTEX, mutex, || real::MUTEX_UNLOCK.get()(mutex)) }
}
