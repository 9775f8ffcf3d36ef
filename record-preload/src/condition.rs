//! `pthread_cond_*`: a wait gives the mutex back, and has it again when it ends, be it by a cancellation, or at once because of
//! a time that is none. Signals and broadcasts are not recorded.

use core::ffi::{c_int, c_void};

use libc::{clockid_t, timespec};
use trace_format::preload::{api::CONDITION, op};

use crate::{
    call::{Call, cancelled::Guard, given, made},
    mutex,
    real::{self, Lock},
    walk::Caller,
};

pub(crate) unsafe extern "C" fn init(
    condition: Lock,
    attributes: *const c_void,
    return_address: usize,
    frame_pointer: usize,
) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe {
        made(Caller { return_address, frame_pointer }, CONDITION, condition, || {
            real::COND_INIT.get()(condition, attributes)
        })
    }
}

pub(crate) unsafe extern "C" fn destroy(
    condition: Lock,
    return_address: usize,
    frame_pointer: usize,
) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe {
        given(Caller { return_address, frame_pointer }, op::DESTROY, CONDITION, condition, || {
            real::COND_DESTROY.get()(condition)
        })
    }
}

/// Whether the C library comes back at once, with the mutex as it was, because the thread has not got it.
unsafe fn is_not_held(mutex: Lock, call: &Call) -> bool {
    // SAFETY: a mutex.
    unsafe { mutex::knows_owner(mutex) && mutex::owner(mutex) != call.tid() }
}

/// The body of a wait, where a cancellation passes through this frame and no other: `$wait` forwards.
macro_rules! wait {
    ($condition:ident, $mutex:ident, $return_address:ident, $frame_pointer:ident, $wait:expr) => {{
        let caller = Caller { return_address: $return_address, frame_pointer: $frame_pointer };
        let Some(mut call) = Call::begin_at(caller) else { return $wait };
        if is_not_held($mutex, &call) {
            call.pause();
            let answer = $wait;
            call.refused(CONDITION, $condition, answer);
            return answer;
        }
        call.put_two(call.now(), op::CONDITION, CONDITION, $mutex, $condition as u64, 0);
        call.pause();
        let mut guard = Guard::new(call, $mutex, Some($condition));
        guard.begin();
        let answer = $wait;
        let mut call = guard.end();
        call.condition_done($mutex, $condition, answer);
        answer
    }};
}

pub(crate) unsafe extern "C-unwind" fn wait(
    condition: Lock,
    mutex: Lock,
    return_address: usize,
    frame_pointer: usize,
) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe { wait!(condition, mutex, return_address, frame_pointer, real::COND_WAIT.get()(condition, mutex)) }
}

pub(crate) unsafe extern "C-unwind" fn timedwait(
    condition: Lock,
    mutex: Lock,
    until: *const timespec,
    return_address: usize,
    frame_pointer: usize,
) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe {
        wait!(
            condition,
            mutex,
            return_address,
            frame_pointer,
            real::COND_TIMEDWAIT.get()(condition, mutex, until)
        )
    }
}

pub(crate) unsafe extern "C-unwind" fn clockwait(
    condition: Lock,
    mutex: Lock,
    clock: clockid_t,
    until: *const timespec,
    return_address: usize,
    frame_pointer: usize,
) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe {
        wait!(
            condition,
            mutex,
            return_address,
            frame_pointer,
            real::COND_CLOCKWAIT.get()(condition, mutex, clock, until)
        )
    }
}
