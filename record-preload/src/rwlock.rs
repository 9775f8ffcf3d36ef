//! `pthread_rwlock_*`. As mutexes, with two modes. Reads the writer from the lock, and never writes to it.

use core::{
    ffi::{c_int, c_void},
    ptr,
};

use libc::{clockid_t, timespec};
use trace_format::preload::{
    api::{RWLOCK, RWLOCK_READ, RWLOCK_WRITE},
    call::TIMED,
    op,
};

use crate::{
    call::{Call, acquire, acquire_at_once, initialize, release, try_acquire},
    clock,
    real::{self, Lock},
    walk::Caller,
};

/// Offset of the writer's TID in glibc's `struct __pthread_rwlock_arch_t`, on every 64-bit architecture.
const WRITER_OFFSET: usize = 24;

/// Returns the writer that a call waits for, 0 for readers; `None` if the C library will fail the call because the caller is
/// the writer.
unsafe fn waits_for(lock: Lock, call: &Call) -> Option<u32> {
    // SAFETY: the C library's rwlock is larger than the offset, and the word is aligned. Volatile: other threads change it.
    let writer = unsafe { ptr::read_volatile(lock.cast::<u8>().add(WRITER_OFFSET).cast::<u32>()) };
    (writer != call.tid()).then_some(writer)
}

pub(crate) unsafe extern "C" fn init(lock: Lock, attributes: *const c_void, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { initialize(caller, RWLOCK, lock, || real::RWLOCK_INIT.get()(lock, attributes)) }
}

pub(crate) unsafe extern "C" fn destroy(lock: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { release(caller, op::DESTROY, RWLOCK, lock, || real::RWLOCK_DESTROY.get()(lock)) }
}

pub(crate) unsafe extern "C" fn unlock(lock: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { release(caller, op::RELEASED, RWLOCK, lock, || real::RWLOCK_UNLOCK.get()(lock)) }
}

/// The four acquiring functions of a mode.
macro_rules! acquiring {
    ($api:ident: $lock:ident $trylock:ident $timedlock:ident $clocklock:ident
        = $real_lock:ident $real_trylock:ident $real_timedlock:ident $real_clocklock:ident) => {
        pub(crate) unsafe extern "C" fn $lock(lock: Lock, caller: Caller) -> c_int {
            // SAFETY: forwarded unchanged.
            unsafe {
                acquire(
                    caller,
                    $api,
                    lock,
                    || real::$real_trylock.get()(lock),
                    |call| waits_for(lock, call),
                    || real::$real_lock.get()(lock),
                )
            }
        }

        pub(crate) unsafe extern "C" fn $trylock(lock: Lock, caller: Caller) -> c_int {
            // SAFETY: forwarded unchanged.
            unsafe { try_acquire(caller, $api, lock, || real::$real_trylock.get()(lock)) }
        }

        pub(crate) unsafe extern "C" fn $timedlock(
            lock: Lock,
            until: *const timespec,
            caller: Caller,
        ) -> c_int {
            // SAFETY: forwarded unchanged.
            unsafe {
                acquire_until(
                    caller,
                    ($api | TIMED, lock),
                    clock::is_valid(until),
                    || real::$real_trylock.get()(lock),
                    || real::$real_timedlock.get()(lock, until),
                )
            }
        }

        pub(crate) unsafe extern "C" fn $clocklock(
            lock: Lock,
            clock: clockid_t,
            until: *const timespec,
            caller: Caller,
        ) -> c_int {
            // SAFETY: forwarded unchanged.
            unsafe {
                acquire_until(
                    caller,
                    ($api | TIMED, lock),
                    clock::is_valid_clock(clock) && clock::is_valid(until),
                    || real::$real_trylock.get()(lock),
                    || real::$real_clocklock.get()(lock, clock, until),
                )
            }
        }
    };
}

acquiring!(RWLOCK_READ: rdlock tryrdlock timedrdlock clockrdlock
    = RWLOCK_RDLOCK RWLOCK_TRYRDLOCK RWLOCK_TIMEDRDLOCK RWLOCK_CLOCKRDLOCK);
acquiring!(RWLOCK_WRITE: wrlock trywrlock timedwrlock clockwrlock
    = RWLOCK_WRLOCK RWLOCK_TRYWRLOCK RWLOCK_TIMEDWRLOCK RWLOCK_CLOCKWRLOCK);

/// Forwards a timed call. Unlike with mutexes, the C library refuses an invalid timeout or clock even if the lock is free.
unsafe fn acquire_until(
    caller: Caller,
    (api, lock): (u8, Lock),
    is_valid: bool,
    attempt: impl FnOnce() -> i32,
    wait: impl FnOnce() -> i32,
) -> i32 {
    // SAFETY: the caller's obligation.
    unsafe {
        if is_valid {
            acquire(caller, api, lock, attempt, |call| waits_for(lock, call), wait)
        } else {
            acquire_at_once(caller, api, lock, wait)
        }
    }
}
