//! `pthread_rwlock_*`, `pthread_spin_*` and `pthread_barrier_*`. Reader-writer locks are as mutexes, with two
//! modes: the writer is read from the lock, which is never written. Spinlocks have no known owner. Every call
//! of `pthread_barrier_wait` is recorded as a wait.

use core::{
    ffi::{c_int, c_uint, c_void},
    ptr,
};

use libc::{clockid_t, timespec};
use trace_format::preload::{
    api::{BARRIER, RWLOCK, RWLOCK_READ, RWLOCK_WRITE, SPIN},
    call::TIMED,
    op,
};

use crate::{
    call::{Call, Outcome, acquire, acquire_at_once},
    clock,
    entry::{forward, interpose},
    real::{Lock, LockOnly, Real},
    walk::Caller,
};

forward! {
    RWLOCK_INIT: pthread_rwlock_init / __pthread_rwlock_init(lock: Lock, attributes: *const c_void) => initialize(RWLOCK);
    RWLOCK_DESTROY: pthread_rwlock_destroy / __pthread_rwlock_destroy(lock: Lock) => release(op::DESTROY, RWLOCK);
    RWLOCK_TRYRDLOCK: pthread_rwlock_tryrdlock / __pthread_rwlock_tryrdlock(lock: Lock) => try_acquire(RWLOCK_READ);
    RWLOCK_TRYWRLOCK: pthread_rwlock_trywrlock / __pthread_rwlock_trywrlock(lock: Lock) => try_acquire(RWLOCK_WRITE);
    RWLOCK_UNLOCK: pthread_rwlock_unlock / __pthread_rwlock_unlock(lock: Lock) => release(op::RELEASED, RWLOCK);

    SPIN_INIT: pthread_spin_init(lock: Lock, shared: c_int) => initialize(SPIN);
    SPIN_DESTROY: pthread_spin_destroy(lock: Lock) => release(op::DESTROY, SPIN);
    SPIN_TRYLOCK: pthread_spin_trylock(lock: Lock) => try_acquire(SPIN);
    SPIN_UNLOCK: pthread_spin_unlock(lock: Lock) => release(op::RELEASED, SPIN);

    BARRIER_INIT: pthread_barrier_init(barrier: Lock, attributes: *const c_void, count: c_uint) => initialize(BARRIER);
    BARRIER_DESTROY: pthread_barrier_destroy(barrier: Lock) => release(op::DESTROY, BARRIER);
}

interpose! {
    RWLOCK_RDLOCK: pthread_rwlock_rdlock / __pthread_rwlock_rdlock = "C" fn(Lock) => read::lock;
    RWLOCK_TIMEDRDLOCK: pthread_rwlock_timedrdlock = "C" fn(Lock, *const timespec) => read::timedlock;
    RWLOCK_CLOCKRDLOCK: pthread_rwlock_clockrdlock = "C" fn(Lock, clockid_t, *const timespec) => read::clocklock;
    RWLOCK_WRLOCK: pthread_rwlock_wrlock / __pthread_rwlock_wrlock = "C" fn(Lock) => write::lock;
    RWLOCK_TIMEDWRLOCK: pthread_rwlock_timedwrlock = "C" fn(Lock, *const timespec) => write::timedlock;
    RWLOCK_CLOCKWRLOCK: pthread_rwlock_clockwrlock = "C" fn(Lock, clockid_t, *const timespec) => write::clocklock;

    SPIN_LOCK: pthread_spin_lock = "C" fn(Lock) => spin_lock;
    BARRIER_WAIT: pthread_barrier_wait = "C" fn(Lock) => barrier_wait;
}

/// Offset of the writer's TID in glibc's `struct __pthread_rwlock_arch_t`, on every 64-bit architecture.
const WRITER_OFFSET: usize = 24;

/// Returns the writer that a call waits for, 0 for readers; `None` if the C library will fail the call
/// because the caller is the writer.
unsafe fn waits_for(lock: Lock, call: &Call) -> Option<u32> {
    // SAFETY: the C library's rwlock is larger than the offset, and the word is aligned. Volatile: other
    // threads change it.
    let writer = unsafe { ptr::read_volatile(lock.cast::<u8>().add(WRITER_OFFSET).cast::<u32>()) };
    (writer != call.tid()).then_some(writer)
}

/// Forwards a call that waits. Unlike with mutexes, the C library refuses an invalid timeout or clock even if
/// the lock is free.
#[inline(always)]
unsafe fn acquire_rwlock(
    caller: Caller,
    (api, lock): (u8, Lock),
    is_valid: bool,
    attempt: &Real<LockOnly>,
    wait: impl FnOnce() -> i32,
) -> i32 {
    // SAFETY: the caller's obligation.
    unsafe {
        if is_valid {
            acquire(caller, api, lock, || attempt.get()(lock), |call| waits_for(lock, call), wait)
        } else {
            acquire_at_once(caller, api, lock, wait)
        }
    }
}

/// The waiting functions of a mode.
macro_rules! waiting {
    ($mode:ident: $api:ident $trylock:ident $lock:ident $timedlock:ident $clocklock:ident) => {
        mod $mode {
            use super::*;

            pub(super) unsafe extern "C" fn lock(lock: Lock, caller: Caller) -> c_int {
                // SAFETY: forwarded unchanged.
                unsafe { acquire_rwlock(caller, ($api, lock), true, &$trylock, || $lock.get()(lock)) }
            }

            pub(super) unsafe extern "C" fn timedlock(
                lock: Lock,
                until: *const timespec,
                caller: Caller,
            ) -> c_int {
                // SAFETY: forwarded unchanged.
                unsafe {
                    let is_valid = clock::is_valid(until);
                    let wait = || $timedlock.get()(lock, until);
                    acquire_rwlock(caller, ($api | TIMED, lock), is_valid, &$trylock, wait)
                }
            }

            pub(super) unsafe extern "C" fn clocklock(
                lock: Lock,
                clock: clockid_t,
                until: *const timespec,
                caller: Caller,
            ) -> c_int {
                // SAFETY: forwarded unchanged.
                unsafe {
                    let is_valid = clock::is_valid_clock(clock) && clock::is_valid(until);
                    let wait = || $clocklock.get()(lock, clock, until);
                    acquire_rwlock(caller, ($api | TIMED, lock), is_valid, &$trylock, wait)
                }
            }
        }
    };
}

waiting!(read: RWLOCK_READ RWLOCK_TRYRDLOCK RWLOCK_RDLOCK RWLOCK_TIMEDRDLOCK RWLOCK_CLOCKRDLOCK);
waiting!(write: RWLOCK_WRITE RWLOCK_TRYWRLOCK RWLOCK_WRLOCK RWLOCK_TIMEDWRLOCK RWLOCK_CLOCKWRLOCK);

unsafe extern "C" fn spin_lock(lock: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe {
        let (attempt, wait) = (|| SPIN_TRYLOCK.get()(lock), || SPIN_LOCK.get()(lock));
        acquire(caller, SPIN, lock, attempt, |_| Some(0), wait)
    }
}

unsafe extern "C" fn barrier_wait(barrier: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged. The barrier's memory may be freed afterwards, and is not read.
    unsafe {
        let Some(mut call) = Call::begin_at(caller) else { return BARRIER_WAIT.get()(barrier) };
        call.wait(BARRIER, barrier, 0);
        let result = BARRIER_WAIT.get()(barrier);
        let outcome = match result {
            libc::PTHREAD_BARRIER_SERIAL_THREAD => Outcome::Acquired,
            result => Outcome::of(result),
        };
        call.waited(BARRIER, barrier, outcome);
        result
    }
}
