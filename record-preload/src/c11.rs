//! `mtx_*`, `cnd_*`, `thrd_create` and `thrd_join`. In glibc these are the pthread functions on the same structures with other return values, and so they
//! are here. They are interposed because the C library calls its own functions without going through interposable symbols. So do
//! these: another interposer sees none of these calls.

use core::{
    ffi::{c_int, c_void},
    ptr::null_mut,
};

use libc::timespec;
use trace_format::preload::{
    api::{CONDITION, MUTEX},
    call::TIMED,
    op,
};

use crate::{
    call::{acquire, initialize, release, try_acquire},
    clock, condition, join, mutex,
    real::{self, Lock},
    walk::Caller,
};

/// Converts the return value of a pthread function to a value of `threads.h`.
fn thrd_result(error: c_int) -> c_int {
    match error {
        0 => 0,
        libc::EBUSY => 1,
        libc::ENOMEM => 3,
        libc::ETIMEDOUT => 4,
        _ => 2,
    }
}

pub(crate) unsafe extern "C" fn mtx_init(mutex: Lock, kind: c_int, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { initialize(caller, MUTEX, mutex, || real::MTX_INIT.get()(mutex, kind)) }
}

pub(crate) unsafe extern "C" fn mtx_destroy(mutex: Lock, caller: Caller) {
    // SAFETY: forwarded unchanged.
    unsafe {
        release(caller, op::DESTROY, MUTEX, mutex, || {
            real::MTX_DESTROY.get()(mutex);
            0
        });
    }
}

pub(crate) unsafe extern "C" fn mtx_lock(mutex: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe {
        thrd_result(acquire(
            caller,
            MUTEX,
            mutex,
            || real::OWN_MUTEX_TRYLOCK.get()(mutex),
            |call| mutex::waits_for(mutex, call),
            || real::OWN_MUTEX_LOCK.get()(mutex),
        ))
    }
}

pub(crate) unsafe extern "C" fn mtx_trylock(mutex: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { thrd_result(try_acquire(caller, MUTEX, mutex, || real::OWN_MUTEX_TRYLOCK.get()(mutex))) }
}

pub(crate) unsafe extern "C" fn mtx_timedlock(mutex: Lock, until: *const timespec, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged; the timeout is read only if the C library reads it as well.
    unsafe {
        thrd_result(acquire(
            caller,
            MUTEX | TIMED,
            mutex,
            || real::OWN_MUTEX_TRYLOCK.get()(mutex),
            |call| mutex::waits_for(mutex, call).filter(|_| clock::is_valid(until)),
            || real::OWN_MUTEX_TIMEDLOCK.get()(mutex, until),
        ))
    }
}

pub(crate) unsafe extern "C" fn mtx_unlock(mutex: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe {
        thrd_result(release(caller, op::RELEASED, MUTEX, mutex, || real::OWN_MUTEX_UNLOCK.get()(mutex)))
    }
}

pub(crate) unsafe extern "C" fn cnd_init(condition: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { initialize(caller, CONDITION, condition, || real::CND_INIT.get()(condition)) }
}

pub(crate) unsafe extern "C" fn cnd_destroy(condition: Lock, caller: Caller) {
    // SAFETY: forwarded unchanged.
    unsafe {
        release(caller, op::DESTROY, CONDITION, condition, || {
            real::CND_DESTROY.get()(condition);
            0
        });
    }
}

pub(crate) unsafe extern "C" fn cnd_signal(condition: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { release(caller, op::POSTED, CONDITION, condition, || real::CND_SIGNAL.get()(condition)) }
}

pub(crate) unsafe extern "C" fn cnd_broadcast(condition: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { release(caller, op::POSTED, CONDITION, condition, || real::CND_BROADCAST.get()(condition)) }
}

pub(crate) unsafe extern "C-unwind" fn cnd_wait(condition: Lock, mutex: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { thrd_result(condition::own_wait(condition, mutex, caller)) }
}

pub(crate) unsafe extern "C-unwind" fn cnd_timedwait(
    condition: Lock,
    mutex: Lock,
    until: *const timespec,
    caller: Caller,
) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { thrd_result(condition::own_timedwait(condition, mutex, until, caller)) }
}

pub(crate) unsafe extern "C" fn thrd_create(
    thread: *mut Lock,
    start: *const c_void,
    argument: *mut c_void,
    caller: Caller,
) -> c_int {
    // SAFETY: forwarded unchanged.
    let result = unsafe { real::THRD_CREATE.get()(thread, start, argument) };
    if result == 0 {
        join::created(thread, caller);
    }
    result
}

pub(crate) unsafe extern "C-unwind" fn thrd_join(thread: Lock, value: *mut c_int, caller: Caller) -> c_int {
    let mut own_value = null_mut();
    // SAFETY: forwarded unchanged; the value of a thread is its integer in a pointer.
    unsafe {
        let result = join::own_join(thread, &raw mut own_value, caller);
        if !value.is_null() {
            *value = own_value as usize as c_int;
        }
        thrd_result(result)
    }
}
