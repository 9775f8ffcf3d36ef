//! `pthread_barrier_*`: every call waits, if only for itself.

use core::ffi::{c_int, c_uint, c_void};

use trace_format::preload::{api::BARRIER, op};

use crate::{
    call::{Call, Outcome, given, made},
    real::{self, Lock},
    walk::Caller,
};

pub(crate) unsafe extern "C" fn init(
    barrier: Lock,
    attributes: *const c_void,
    count: c_uint,
    return_address: usize,
    frame_pointer: usize,
) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe {
        made(Caller { return_address, frame_pointer }, BARRIER, barrier, || {
            real::BARRIER_INIT.get()(barrier, attributes, count)
        })
    }
}

pub(crate) unsafe extern "C" fn destroy(barrier: Lock, return_address: usize, frame_pointer: usize) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe {
        given(Caller { return_address, frame_pointer }, op::DESTROY, BARRIER, barrier, || {
            real::BARRIER_DESTROY.get()(barrier)
        })
    }
}

pub(crate) unsafe extern "C" fn wait(barrier: Lock, return_address: usize, frame_pointer: usize) -> c_int {
    // SAFETY: forwarded as it came; the barrier's memory may be gone afterwards, and is not read.
    unsafe {
        let Some(mut call) = Call::begin_at(Caller { return_address, frame_pointer }) else {
            return real::BARRIER_WAIT.get()(barrier);
        };
        call.wait(BARRIER, barrier, 0);
        let answer = real::BARRIER_WAIT.get()(barrier);
        let outcome = match answer {
            libc::PTHREAD_BARRIER_SERIAL_THREAD => Outcome::Taken,
            answer => Outcome::of(answer),
        };
        call.waited(BARRIER, barrier, outcome);
        answer
    }
}
