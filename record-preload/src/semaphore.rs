//! `sem_*`: as mutexes, but errors come by errno, and waits can be cancelled. What the C library would do even without waiting,
//! looking for a cancellation and at the time, is done in the same order.

use core::ffi::{c_int, c_uint};

use libc::{clockid_t, timespec};
use trace_format::preload::{api::SEMAPHORE, op};

use crate::{
    call::{Call, Outcome, cancelled::Guard, given, made, tried},
    clock,
    real::{self, Lock},
    sys,
    walk::Caller,
};

/// An answer of these functions as one of pthread.
fn error(answer: c_int) -> c_int {
    if answer == 0 { 0 } else { sys::errno() }
}

/// And back.
fn answer(error: c_int) -> c_int {
    if error == 0 {
        return 0;
    }
    sys::set_errno(error);
    -1
}

pub(crate) unsafe extern "C" fn init(
    semaphore: Lock,
    shared: c_int,
    value: c_uint,
    return_address: usize,
    frame_pointer: usize,
) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe {
        made(Caller { return_address, frame_pointer }, SEMAPHORE, semaphore, || {
            real::SEM_INIT.get()(semaphore, shared, value)
        })
    }
}

pub(crate) unsafe extern "C" fn destroy(
    semaphore: Lock,
    return_address: usize,
    frame_pointer: usize,
) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe {
        given(Caller { return_address, frame_pointer }, op::DESTROY, SEMAPHORE, semaphore, || {
            real::SEM_DESTROY.get()(semaphore)
        })
    }
}

pub(crate) unsafe extern "C" fn post(semaphore: Lock, return_address: usize, frame_pointer: usize) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe {
        given(Caller { return_address, frame_pointer }, op::POSTED, SEMAPHORE, semaphore, || {
            real::SEM_POST.get()(semaphore)
        })
    }
}

pub(crate) unsafe extern "C" fn trywait(
    semaphore: Lock,
    return_address: usize,
    frame_pointer: usize,
) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe {
        answer(tried(Caller { return_address, frame_pointer }, SEMAPHORE, semaphore, || {
            error(real::SEM_TRYWAIT.get()(semaphore))
        }))
    }
}

/// The body of a function that waits, where a cancellation passes through this frame and no other: `$wait` forwards.
macro_rules! wait {
    ($semaphore:ident, $return_address:ident, $frame_pointer:ident, $is_valid:expr, $wait:expr) => {{
        let caller = Caller { return_address: $return_address, frame_pointer: $frame_pointer };
        if !$is_valid {
            let Some(mut call) = Call::begin_at(caller) else { return $wait };
            call.pause();
            let answer = $wait;
            call.refused(SEMAPHORE, $semaphore, error(answer));
            return answer;
        }
        real::TESTCANCEL.get()();
        let Some(mut call) = Call::begin_at(caller) else { return $wait };
        let errno = sys::errno();
        if real::SEM_TRYWAIT.get()($semaphore) == 0 {
            call.put(call.now(), op::ACQUIRED, SEMAPHORE, $semaphore);
            call.end();
            return 0;
        }
        sys::set_errno(errno);
        call.wait(SEMAPHORE, $semaphore, 0);
        let mut guard = Guard::new(call, $semaphore, None);
        guard.begin();
        let answer = $wait;
        let mut call = guard.end();
        call.waited(SEMAPHORE, $semaphore, Outcome::of(error(answer)));
        answer
    }};
}

pub(crate) unsafe extern "C-unwind" fn wait(
    semaphore: Lock,
    return_address: usize,
    frame_pointer: usize,
) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe { wait!(semaphore, return_address, frame_pointer, true, real::SEM_WAIT.get()(semaphore)) }
}

pub(crate) unsafe extern "C-unwind" fn timedwait(
    semaphore: Lock,
    until: *const timespec,
    return_address: usize,
    frame_pointer: usize,
) -> c_int {
    // SAFETY: forwarded as it came; the C library reads the time first, too.
    unsafe {
        wait!(
            semaphore,
            return_address,
            frame_pointer,
            clock::is_valid(until),
            real::SEM_TIMEDWAIT.get()(semaphore, until)
        )
    }
}

pub(crate) unsafe extern "C-unwind" fn clockwait(
    semaphore: Lock,
    clock: clockid_t,
    until: *const timespec,
    return_address: usize,
    frame_pointer: usize,
) -> c_int {
    // SAFETY: forwarded as it came; the C library reads the time first, too.
    unsafe {
        wait!(
            semaphore,
            return_address,
            frame_pointer,
            clock::is_waited_by(clock) && clock::is_valid(until),
            real::SEM_CLOCKWAIT.get()(semaphore, clock, until)
        )
    }
}
