//! `mtx_*` and `cnd_*`. In glibc these are the pthread functions on the same structures with other return values, and so they
//! are here. They are interposed because the C library calls its own functions without going through interposable symbols.

use core::ffi::c_int;

use libc::timespec;
use trace_format::preload::{
    api::{CONDITION, MUTEX},
    op,
};

use crate::{
    call::{initialize, release},
    condition, mutex,
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
    unsafe { thrd_result(mutex::lock(mutex, caller)) }
}

pub(crate) unsafe extern "C" fn mtx_trylock(mutex: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { thrd_result(mutex::trylock(mutex, caller)) }
}

pub(crate) unsafe extern "C" fn mtx_timedlock(mutex: Lock, until: *const timespec, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { thrd_result(mutex::timedlock(mutex, until, caller)) }
}

pub(crate) unsafe extern "C" fn mtx_unlock(mutex: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { thrd_result(mutex::unlock(mutex, caller)) }
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

pub(crate) unsafe extern "C-unwind" fn cnd_wait(condition: Lock, mutex: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { thrd_result(condition::wait(condition, mutex, caller)) }
}

pub(crate) unsafe extern "C-unwind" fn cnd_timedwait(
    condition: Lock,
    mutex: Lock,
    until: *const timespec,
    caller: Caller,
) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { thrd_result(condition::timedwait(condition, mutex, until, caller)) }
}
