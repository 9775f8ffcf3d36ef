//! `pthread_spin_*`: as mutexes, but nobody knows who has one.

use core::ffi::c_int;

use trace_format::preload::{api::SPIN, op};

use crate::{
    call::{given, made, taken, tried},
    real::{self, Lock},
    walk::Caller,
};

pub(crate) unsafe extern "C" fn init(
    lock: Lock,
    shared: c_int,
    return_address: usize,
    frame_pointer: usize,
) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe {
        made(Caller { return_address, frame_pointer }, SPIN, lock, || real::SPIN_INIT.get()(lock, shared))
    }
}

pub(crate) unsafe extern "C" fn destroy(lock: Lock, return_address: usize, frame_pointer: usize) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe {
        given(Caller { return_address, frame_pointer }, op::DESTROY, SPIN, lock, || {
            real::SPIN_DESTROY.get()(lock)
        })
    }
}

pub(crate) unsafe extern "C" fn lock(lock: Lock, return_address: usize, frame_pointer: usize) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe {
        taken(
            Caller { return_address, frame_pointer },
            SPIN,
            lock,
            || real::SPIN_TRYLOCK.get()(lock),
            |_| Some(0),
            || real::SPIN_LOCK.get()(lock),
        )
    }
}

pub(crate) unsafe extern "C" fn trylock(lock: Lock, return_address: usize, frame_pointer: usize) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe { tried(Caller { return_address, frame_pointer }, SPIN, lock, || real::SPIN_TRYLOCK.get()(lock)) }
}

pub(crate) unsafe extern "C" fn unlock(lock: Lock, return_address: usize, frame_pointer: usize) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe {
        given(Caller { return_address, frame_pointer }, op::RELEASED, SPIN, lock, || {
            real::SPIN_UNLOCK.get()(lock)
        })
    }
}
