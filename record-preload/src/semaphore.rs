//! `sem_*`. As mutexes, but errors are in errno, and waits are cancellation points. Checks for cancellation and for an invalid
//! timeout happen in the same order as in the C library.

use core::ffi::{c_int, c_uint};

use libc::{clockid_t, timespec};
use trace_format::preload::{api::SEMAPHORE, call::TIMED, op};

use crate::{
    call::{Call, Outcome, cancel::CancelHandler, initialize, release, try_acquire},
    clock,
    real::{self, Lock},
    sys,
    walk::Caller,
};

/// Converts a return value of these functions to the convention of pthread.
fn to_error(result: c_int) -> c_int {
    if result == 0 { 0 } else { sys::errno() }
}

/// Converts a return value in the convention of pthread back.
fn to_errno(error: c_int) -> c_int {
    if error == 0 {
        return 0;
    }
    sys::set_errno(error);
    -1
}

pub(crate) unsafe extern "C" fn init(semaphore: Lock, shared: c_int, value: c_uint, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { initialize(caller, SEMAPHORE, semaphore, || real::SEM_INIT.get()(semaphore, shared, value)) }
}

pub(crate) unsafe extern "C" fn destroy(semaphore: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { release(caller, op::DESTROY, SEMAPHORE, semaphore, || real::SEM_DESTROY.get()(semaphore)) }
}

pub(crate) unsafe extern "C" fn post(semaphore: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { release(caller, op::POSTED, SEMAPHORE, semaphore, || real::SEM_POST.get()(semaphore)) }
}

pub(crate) unsafe extern "C" fn trywait(semaphore: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe {
        to_errno(try_acquire(caller, SEMAPHORE, semaphore, || to_error(real::SEM_TRYWAIT.get()(semaphore))))
    }
}

/// The body of a wait; `$wait` forwards it, and `$api` is that of its records. A macro, so that a cancellation unwinds through a single frame.
macro_rules! wait {
    ($semaphore:ident, $api:expr, $caller:ident, $is_valid:expr, $wait:expr) => {{
        if !$is_valid {
            let Some(mut call) = Call::begin_at($caller) else { return $wait };
            call.pause();
            let result = $wait;
            call.fail_immediately($api, $semaphore, to_error(result));
            return result;
        }
        real::TESTCANCEL.get()();
        let Some(mut call) = Call::begin_at($caller) else { return $wait };
        let errno = sys::errno();
        if real::SEM_TRYWAIT.get()($semaphore) == 0 {
            call.put(call.now(), op::ACQUIRED, $api, $semaphore);
            call.end();
            return 0;
        }
        sys::set_errno(errno);
        call.wait($api, $semaphore, 0);
        let mut handler = CancelHandler::new(call, $api, $semaphore, None);
        handler.begin();
        let result = $wait;
        let mut call = handler.end();
        call.waited($api, $semaphore, Outcome::of(to_error(result)));
        result
    }};
}

pub(crate) unsafe extern "C-unwind" fn wait(semaphore: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { wait!(semaphore, SEMAPHORE, caller, true, real::SEM_WAIT.get()(semaphore)) }
}

pub(crate) unsafe extern "C-unwind" fn timedwait(
    semaphore: Lock,
    until: *const timespec,
    caller: Caller,
) -> c_int {
    // SAFETY: forwarded unchanged; the C library reads the timeout first as well.
    unsafe {
        wait!(
            semaphore,
            SEMAPHORE | TIMED,
            caller,
            clock::is_valid(until),
            real::SEM_TIMEDWAIT.get()(semaphore, until)
        )
    }
}

pub(crate) unsafe extern "C-unwind" fn clockwait(
    semaphore: Lock,
    clock: clockid_t,
    until: *const timespec,
    caller: Caller,
) -> c_int {
    // SAFETY: forwarded unchanged; the C library reads the timeout first as well.
    unsafe {
        wait!(
            semaphore,
            SEMAPHORE | TIMED,
            caller,
            clock::is_valid_clock(clock) && clock::is_valid(until),
            real::SEM_CLOCKWAIT.get()(semaphore, clock, until)
        )
    }
}
