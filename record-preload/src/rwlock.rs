//! `pthread_rwlock_*`: as mutexes, with two ways to take one. Reads one word of the lock, its writer, and writes nothing in it.

use core::{
    ffi::{c_int, c_void},
    ptr,
};

use libc::{clockid_t, timespec};
use trace_format::preload::{
    api::{RWLOCK, RWLOCK_READ, RWLOCK_WRITE},
    op,
};

use crate::{
    call::{Call, given, made, taken, tried},
    clock,
    real::{self, Lock},
    walk::Caller,
};

/// Where glibc's `struct __pthread_rwlock_arch_t` has the writer's TID, on every 64-bit architecture.
const WRITER_AT: usize = 24;

/// Whom a call waits for, 0 for readers; `None` if it is refused, because the thread itself writes.
unsafe fn waits_for(lock: Lock, call: &Call) -> Option<u32> {
    // SAFETY: a rwlock of the C library is larger than this, and the word aligned; others change it meanwhile.
    let writer = unsafe { ptr::read_volatile(lock.cast::<u8>().add(WRITER_AT).cast::<u32>()) };
    (writer != call.tid()).then_some(writer)
}

pub(crate) unsafe extern "C" fn init(
    lock: Lock,
    attributes: *const c_void,
    return_address: usize,
    frame_pointer: usize,
) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe {
        made(Caller { return_address, frame_pointer }, RWLOCK, lock, || {
            real::RWLOCK_INIT.get()(lock, attributes)
        })
    }
}

pub(crate) unsafe extern "C" fn destroy(lock: Lock, return_address: usize, frame_pointer: usize) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe {
        given(Caller { return_address, frame_pointer }, op::DESTROY, RWLOCK, lock, || {
            real::RWLOCK_DESTROY.get()(lock)
        })
    }
}

pub(crate) unsafe extern "C" fn unlock(lock: Lock, return_address: usize, frame_pointer: usize) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe {
        given(Caller { return_address, frame_pointer }, op::RELEASED, RWLOCK, lock, || {
            real::RWLOCK_UNLOCK.get()(lock)
        })
    }
}

/// The four ways to take it, for reading or for writing.
macro_rules! ways {
    ($api:ident: $lock:ident $trylock:ident $timedlock:ident $clocklock:ident
        = $real_lock:ident $real_trylock:ident $real_timedlock:ident $real_clocklock:ident) => {
        pub(crate) unsafe extern "C" fn $lock(
            lock: Lock,
            return_address: usize,
            frame_pointer: usize,
        ) -> c_int {
            // SAFETY: forwarded as it came.
            unsafe {
                taken(
                    Caller { return_address, frame_pointer },
                    $api,
                    lock,
                    || real::$real_trylock.get()(lock),
                    |call| waits_for(lock, call),
                    || real::$real_lock.get()(lock),
                )
            }
        }

        pub(crate) unsafe extern "C" fn $trylock(
            lock: Lock,
            return_address: usize,
            frame_pointer: usize,
        ) -> c_int {
            // SAFETY: forwarded as it came.
            unsafe {
                tried(Caller { return_address, frame_pointer }, $api, lock, || {
                    real::$real_trylock.get()(lock)
                })
            }
        }

        pub(crate) unsafe extern "C" fn $timedlock(
            lock: Lock,
            until: *const timespec,
            return_address: usize,
            frame_pointer: usize,
        ) -> c_int {
            // SAFETY: forwarded as it came.
            unsafe {
                until_time(
                    Caller { return_address, frame_pointer },
                    ($api, lock),
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
            return_address: usize,
            frame_pointer: usize,
        ) -> c_int {
            // SAFETY: forwarded as it came.
            unsafe {
                until_time(
                    Caller { return_address, frame_pointer },
                    ($api, lock),
                    clock::is_waited_by(clock) && clock::is_valid(until),
                    || real::$real_trylock.get()(lock),
                    || real::$real_clocklock.get()(lock, clock, until),
                )
            }
        }
    };
}

ways!(RWLOCK_READ: rdlock tryrdlock timedrdlock clockrdlock
    = RWLOCK_RDLOCK RWLOCK_TRYRDLOCK RWLOCK_TIMEDRDLOCK RWLOCK_CLOCKRDLOCK);
ways!(RWLOCK_WRITE: wrlock trywrlock timedwrlock clockwrlock
    = RWLOCK_WRLOCK RWLOCK_TRYWRLOCK RWLOCK_TIMEDWRLOCK RWLOCK_CLOCKWRLOCK);

/// A time or a clock that is not valid is refused even if the lock is free, other than with mutexes.
unsafe fn until_time(
    caller: Caller,
    (api, lock): (u8, Lock),
    is_valid: bool,
    attempt: impl FnOnce() -> i32,
    wait: impl FnOnce() -> i32,
) -> i32 {
    // SAFETY: as the caller promises.
    unsafe {
        if is_valid {
            taken(caller, api, lock, attempt, |call| waits_for(lock, call), wait)
        } else {
            tried(caller, api, lock, wait)
        }
    }
}
