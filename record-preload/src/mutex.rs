//! `pthread_mutex_*`. Tries first, so that a call whose mutex is free reads the clock once, and a call that
//! waits is known to wait.
//!
//! If another interposer is behind this library, a try would be a call that the program did not make. Then
//! the state of the mutex decides whether the call waits; if another thread changes it in between, a wait is
//! recorded as none or as a very short one. So it is for a mutex with a priority ceiling, which a try may
//! lock where the call fails.

use core::{
    ffi::{c_int, c_void},
    mem,
    ptr::null_mut,
    sync::atomic::{AtomicBool, AtomicPtr, Ordering},
};

use libc::{clockid_t, timespec};
use trace_format::preload::{api::MUTEX, call::TIMED, op};

use crate::{
    call::{Call, acquire},
    clock,
    entry::{forward, interpose},
    mutex_fields::MutexFields,
    real::{Lock, LockOnly},
    thread,
    walk::Caller,
};

forward! {
    MUTEX_INIT: pthread_mutex_init / __pthread_mutex_init(mutex: Lock, attributes: *const c_void) => initialize(MUTEX);
    MUTEX_DESTROY: pthread_mutex_destroy / __pthread_mutex_destroy(mutex: Lock) => release(op::DESTROY, MUTEX);
    MUTEX_TRYLOCK: pthread_mutex_trylock / __pthread_mutex_trylock(mutex: Lock) => try_acquire(MUTEX);
    MUTEX_UNLOCK: pthread_mutex_unlock / __pthread_mutex_unlock(mutex: Lock) => release(op::RELEASED, MUTEX);
}

interpose! {
    MUTEX_LOCK: pthread_mutex_lock / __pthread_mutex_lock = "C" fn(Lock) => lock;
    MUTEX_TIMEDLOCK: pthread_mutex_timedlock = "C" fn(Lock, *const timespec) => timedlock;
    MUTEX_CLOCKLOCK: pthread_mutex_clocklock = "C" fn(Lock, clockid_t, *const timespec) => clocklock;
}

/// The function that tries to lock a mutex: the C library's, or [`look`].
static ATTEMPT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// Whether it is [`look`].
static IS_INTERPOSED: AtomicBool = AtomicBool::new(false);
/// The result of [`look`] if the call will not wait.
const NOT_TRIED: c_int = -1;

/// Tries to lock a mutex; returns `EBUSY` if it is held, and neither 0 nor that if the call must be made to
/// know.
#[inline(always)]
unsafe fn attempt(mutex: Lock) -> c_int {
    // SAFETY: the pointer is a mutex.
    unsafe {
        if MutexFields::of(mutex).is_special() { attempt_special(mutex) } else { try_function()(mutex) }
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
    let is_interposed = MUTEX_LOCK.is_interposed();
    IS_INTERPOSED.store(is_interposed, Ordering::Relaxed);
    let found = if is_interposed { look } else { MUTEX_TRYLOCK.get() };
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
        let mutex = MutexFields::of(mutex);
        let is_own = mutex.is_recursive() && mutex.owner() == (*thread::current()).tid;
        if mutex.is_free() || is_own { NOT_TRIED } else { libc::EBUSY }
    }
}

/// Tries to lock a robust mutex by a timed lock with a time in the past. glibc's `trylock` leaves an
/// unrecoverable mutex locked, and the next blocking call would wait forever instead of failing. A mutex with
/// a priority ceiling is not tried.
#[cold]
unsafe fn attempt_special(mutex: Lock) -> c_int {
    // SAFETY: the pointer is a mutex.
    unsafe {
        if is_interposed() || MutexFields::of(mutex).has_ceiling() {
            return look(mutex);
        }
        timeout_as_busy(MUTEX_TIMEDLOCK.get()(mutex, &clock::LONG_PAST))
    }
}

/// Converts the result of a timed lock with a time in the past to the result of a try-lock.
fn timeout_as_busy(result: c_int) -> c_int {
    if result == libc::ETIMEDOUT { libc::EBUSY } else { result }
}

/// Returns the owner that a call waits for; `None` if the C library will fail the call because the caller is
/// the owner.
pub(crate) unsafe fn waits_for(mutex: Lock, call: &Call) -> Option<u32> {
    // SAFETY: the pointer is a mutex.
    let mutex = unsafe { MutexFields::of(mutex) };
    let owner = mutex.owner();
    (owner != call.tid() || !mutex.checks_relock()).then_some(owner)
}

unsafe extern "C" fn lock(mutex: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe {
        acquire(
            caller,
            MUTEX,
            mutex,
            || attempt(mutex),
            |call| waits_for(mutex, call),
            || MUTEX_LOCK.get()(mutex),
        )
    }
}

unsafe extern "C" fn timedlock(mutex: Lock, until: *const timespec, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged; the timeout is read only if the C library reads it as well.
    unsafe {
        acquire(
            caller,
            MUTEX | TIMED,
            mutex,
            || attempt(mutex),
            |call| waits_for(mutex, call).filter(|_| clock::is_valid(until)),
            || MUTEX_TIMEDLOCK.get()(mutex, until),
        )
    }
}

unsafe extern "C" fn clocklock(
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
                let is_valid = clock::is_valid_clock(clock) && !MutexFields::of(mutex).inherits_priority();
                if is_valid || is_interposed() {
                    return attempt(mutex);
                }
                // The C library refuses an invalid clock even if the mutex is free, and which clocks are
                // valid for a mutex with priority inheritance depends on the kernel. A time in the past makes
                // it check without waiting, by a system call.
                timeout_as_busy(MUTEX_CLOCKLOCK.get()(mutex, clock, &clock::LONG_PAST))
            },
            |call| waits_for(mutex, call).filter(|_| clock::is_valid_clock(clock) && clock::is_valid(until)),
            || MUTEX_CLOCKLOCK.get()(mutex, clock, until),
        )
    }
}
