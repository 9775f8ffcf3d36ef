//! `pthread_barrier_*`. Every call of `pthread_barrier_wait` is recorded as a wait.

use core::ffi::{c_int, c_uint, c_void};

use trace_format::preload::{api::BARRIER, op};

use crate::{
    call::{Call, Outcome, initialize, release},
    real::{self, Lock},
    walk::Caller,
};

pub(crate) unsafe extern "C" fn init(
    barrier: Lock,
    attributes: *const c_void,
    count: c_uint,
    caller: Caller,
) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { initialize(caller, BARRIER, barrier, || real::BARRIER_INIT.get()(barrier, attributes, count)) }
}

pub(crate) unsafe extern "C" fn destroy(barrier: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { release(caller, op::DESTROY, BARRIER, barrier, || real::BARRIER_DESTROY.get()(barrier)) }
}

pub(crate) unsafe extern "C" fn wait(barrier: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged. The barrier's memory may be freed afterwards, and is not read.
    unsafe {
        let Some(mut call) = Call::begin_at(caller) else {
            return real::BARRIER_WAIT.get()(barrier);
        };
        call.wait(BARRIER, barrier, 0);
        let result = real::BARRIER_WAIT.get()(barrier);
        let outcome = match result {
            libc::PTHREAD_BARRIER_SERIAL_THREAD => Outcome::Acquired,
            result => Outcome::of(result),
        };
        call.waited(BARRIER, barrier, outcome);
        result
    }
}
