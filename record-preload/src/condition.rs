//! `pthread_cond_*`. A wait releases the mutex and holds it again at its end, also after a cancellation or an invalid timeout.
//! Signals and broadcasts are recorded even if no thread waits.

use core::ffi::{c_int, c_void};

use libc::{clockid_t, timespec};
use trace_format::preload::{api::CONDITION, call::TIMED, op};

use crate::{
    call::{Call, cancel::CancelHandler, initialize, release},
    last_release, mutex_fields,
    real::{self, Lock},
    walk::Caller,
};

pub(crate) unsafe extern "C" fn init(condition: Lock, attributes: *const c_void, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { initialize(caller, CONDITION, condition, || real::COND_INIT.get()(condition, attributes)) }
}

pub(crate) unsafe extern "C" fn destroy(condition: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { release(caller, op::DESTROY, CONDITION, condition, || real::COND_DESTROY.get()(condition)) }
}

pub(crate) unsafe extern "C" fn signal(condition: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { release(caller, op::POSTED, CONDITION, condition, || real::COND_SIGNAL.get()(condition)) }
}

pub(crate) unsafe extern "C" fn broadcast(condition: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { release(caller, op::POSTED, CONDITION, condition, || real::COND_BROADCAST.get()(condition)) }
}

/// Whether the C library fails the wait immediately, because the thread does not hold the mutex.
unsafe fn is_not_held(mutex: Lock, call: &Call) -> bool {
    // SAFETY: the pointer is a mutex.
    unsafe { mutex_fields::checks_owner(mutex) && mutex_fields::owner(mutex) != call.tid() }
}

/// The body of a wait; `$wait` forwards it, and `$api` is that of its records. A macro, so that a cancellation unwinds through a single frame.
macro_rules! wait {
    ($condition:ident, $mutex:ident, $api:expr, $caller:ident, $wait:expr) => {{
        last_release::forget($mutex);
        let Some(mut call) = Call::begin_at($caller) else { return $wait };
        if is_not_held($mutex, &call) {
            call.pause();
            let result = $wait;
            call.fail_immediately($api, $condition, result);
            return result;
        }
        call.put_with_payload(call.now(), op::CONDITION_WAIT, $api, $mutex, $condition as u64, 0);
        call.pause();
        let mut handler = CancelHandler::new(call, $api, $mutex, Some($condition));
        handler.begin();
        let result = $wait;
        let mut call = handler.end();
        call.condition_waited($api, $mutex, $condition, result);
        result
    }};
}

pub(crate) unsafe extern "C-unwind" fn wait(condition: Lock, mutex: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { wait!(condition, mutex, CONDITION, caller, real::COND_WAIT.get()(condition, mutex)) }
}

pub(crate) unsafe extern "C-unwind" fn timedwait(
    condition: Lock,
    mutex: Lock,
    until: *const timespec,
    caller: Caller,
) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe {
        wait!(
            condition,
            mutex,
            CONDITION | TIMED,
            caller,
            real::COND_TIMEDWAIT.get()(condition, mutex, until)
        )
    }
}

pub(crate) unsafe extern "C-unwind" fn clockwait(
    condition: Lock,
    mutex: Lock,
    clock: clockid_t,
    until: *const timespec,
    caller: Caller,
) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe {
        wait!(
            condition,
            mutex,
            CONDITION | TIMED,
            caller,
            real::COND_CLOCKWAIT.get()(condition, mutex, clock, until)
        )
    }
}

/// A wait without other interposers, for `cnd_wait`.
pub(crate) unsafe extern "C-unwind" fn own_wait(condition: Lock, mutex: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { wait!(condition, mutex, CONDITION, caller, real::OWN_COND_WAIT.get()(condition, mutex)) }
}

/// A wait without other interposers, for `cnd_timedwait`.
pub(crate) unsafe extern "C-unwind" fn own_timedwait(
    condition: Lock,
    mutex: Lock,
    until: *const timespec,
    caller: Caller,
) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe {
        wait!(
            condition,
            mutex,
            CONDITION | TIMED,
            caller,
            real::OWN_COND_TIMEDWAIT.get()(condition, mutex, until)
        )
    }
}
