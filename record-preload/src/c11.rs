//! `mtx_*` and `cnd_*`: glibc has them as the functions of pthread on the same structures, with other numbers for the answers; so
//! has this file. They are interposed because the C library calls its own functions by no name that could be.

use core::ffi::c_int;

use libc::timespec;
use trace_format::preload::{
    api::{CONDITION, MUTEX},
    op,
};

use crate::{
    call::{given, made},
    condition, mutex,
    real::{self, Lock},
    walk::Caller,
};

/// What `threads.h` has for an answer of pthread.
fn answer(error: c_int) -> c_int {
    match error {
        0 => 0,
        libc::EBUSY => 1,
        libc::ENOMEM => 3,
        libc::ETIMEDOUT => 4,
        _ => 2,
    }
}

pub(crate) unsafe extern "C" fn mtx_init(
    mutex: Lock,
    kind: c_int,
    return_address: usize,
    frame_pointer: usize,
) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe {
        made(Caller { return_address, frame_pointer }, MUTEX, mutex, || real::MTX_INIT.get()(mutex, kind))
    }
}

pub(crate) unsafe extern "C" fn mtx_destroy(mutex: Lock, return_address: usize, frame_pointer: usize) {
    // SAFETY: forwarded as it came.
    unsafe {
        given(Caller { return_address, frame_pointer }, op::DESTROY, MUTEX, mutex, || {
            real::MTX_DESTROY.get()(mutex);
            0
        });
    }
}

pub(crate) unsafe extern "C" fn mtx_lock(mutex: Lock, return_address: usize, frame_pointer: usize) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe { answer(mutex::lock(mutex, return_address, frame_pointer)) }
}

pub(crate) unsafe extern "C" fn mtx_trylock(
    mutex: Lock,
    return_address: usize,
    frame_pointer: usize,
) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe { answer(mutex::trylock(mutex, return_address, frame_pointer)) }
}

pub(crate) unsafe extern "C" fn mtx_timedlock(
    mutex: Lock,
    until: *const timespec,
    return_address: usize,
    frame_pointer: usize,
) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe { answer(mutex::timedlock(mutex, until, return_address, frame_pointer)) }
}

pub(crate) unsafe extern "C" fn mtx_unlock(
    mutex: Lock,
    return_address: usize,
    frame_pointer: usize,
) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe { answer(mutex::unlock(mutex, return_address, frame_pointer)) }
}

pub(crate) unsafe extern "C" fn cnd_init(
    condition: Lock,
    return_address: usize,
    frame_pointer: usize,
) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe {
        made(Caller { return_address, frame_pointer }, CONDITION, condition, || {
            real::CND_INIT.get()(condition)
        })
    }
}

pub(crate) unsafe extern "C" fn cnd_destroy(condition: Lock, return_address: usize, frame_pointer: usize) {
    // SAFETY: forwarded as it came.
    unsafe {
        given(Caller { return_address, frame_pointer }, op::DESTROY, CONDITION, condition, || {
            real::CND_DESTROY.get()(condition);
            0
        });
    }
}

pub(crate) unsafe extern "C-unwind" fn cnd_wait(
    condition: Lock,
    mutex: Lock,
    return_address: usize,
    frame_pointer: usize,
) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe { answer(condition::wait(condition, mutex, return_address, frame_pointer)) }
}

pub(crate) unsafe extern "C-unwind" fn cnd_timedwait(
    condition: Lock,
    mutex: Lock,
    until: *const timespec,
    return_address: usize,
    frame_pointer: usize,
) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe { answer(condition::timedwait(condition, mutex, until, return_address, frame_pointer)) }
}
