//! `sem_*`. As mutexes, but errors are in errno, and waits are cancellation points. Checks for cancellation
//! and for an invalid timeout happen in the same order as in the C library.

use core::ffi::{c_int, c_uint};

use libc::{clockid_t, timespec};
use trace_format::preload::{api::SEMAPHORE, call::TIMED, op};

use crate::{
    call::{Call, Outcome, cancel::CancelHandler, try_acquire},
    clock,
    entry::{forward, interpose},
    real::{self, Lock},
    sys,
    walk::Caller,
};

forward! {
    SEM_INIT: sem_init(semaphore: Lock, shared: c_int, value: c_uint) => initialize(SEMAPHORE);
    SEM_DESTROY: sem_destroy(semaphore: Lock) => release(op::DESTROY, SEMAPHORE);
    SEM_POST: sem_post(semaphore: Lock) => release(op::POSTED, SEMAPHORE);
}

interpose! {
    SEM_TRYWAIT: sem_trywait = "C" fn(Lock) => trywait;
    SEM_WAIT: sem_wait = "C-unwind" fn(Lock) => wait;
    SEM_TIMEDWAIT: sem_timedwait = "C-unwind" fn(Lock, *const timespec) => timedwait;
    SEM_CLOCKWAIT: sem_clockwait = "C-unwind" fn(Lock, clockid_t, *const timespec) => clockwait;
}

/// Converts a return value of these functions to the convention of pthread.
fn to_error(result: c_int) -> c_int {
    if result == 0 { 0 } else { sys::errno() }
}

unsafe extern "C" fn trywait(semaphore: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    let error =
        unsafe { try_acquire(caller, SEMAPHORE, semaphore, || to_error(SEM_TRYWAIT.get()(semaphore))) };
    if error == 0 {
        return 0;
    }
    sys::set_errno(error);
    -1
}

/// Declares a function that waits: `NAME(ARGUMENTS) by REAL, API, IS_VALID`. A macro, so that a cancellation
/// unwinds through a single frame.
macro_rules! wait {
    ($name:ident($($argument:ident: $type:ty),*) by $real:ident, $api:expr, $is_valid:expr) => {
        unsafe extern "C-unwind" fn $name(semaphore: Lock, $($argument: $type,)* caller: Caller) -> c_int {
            // SAFETY: forwarded unchanged; the C library reads the timeout first as well.
            unsafe {
                if !$is_valid {
                    let Some(mut call) = Call::begin_at(caller) else { return $real.get()(semaphore $(, $argument)*) };
                    call.pause();
                    let result = $real.get()(semaphore $(, $argument)*);
                    call.fail_immediately($api, semaphore, to_error(result));
                    return result;
                }
                real::TESTCANCEL.get()();
                let Some(mut call) = Call::begin_at(caller) else { return $real.get()(semaphore $(, $argument)*) };
                let errno = sys::errno();
                if SEM_TRYWAIT.get()(semaphore) == 0 {
                    call.put(call.now(), op::ACQUIRED, $api, semaphore);
                    call.end();
                    return 0;
                }
                sys::set_errno(errno);
                call.wait($api, semaphore, 0);
                let mut handler = CancelHandler::new(call, $api, semaphore, None);
                handler.begin();
                let result = $real.get()(semaphore $(, $argument)*);
                let mut call = handler.end();
                call.waited($api, semaphore, Outcome::of(to_error(result)));
                result
            }
        }
    };
}

wait!(wait() by SEM_WAIT, SEMAPHORE, true);
wait!(timedwait(until: *const timespec) by SEM_TIMEDWAIT, SEMAPHORE | TIMED, clock::is_valid(until));
wait!(clockwait(clock: clockid_t, until: *const timespec) by SEM_CLOCKWAIT, SEMAPHORE | TIMED,
    clock::is_valid_clock(clock) && clock::is_valid(until));
