//! `pthread_cond_*`. A wait releases the mutex and holds it again at its end, also after a cancellation or an
//! invalid timeout. Signals and broadcasts are recorded even if no thread waits.

use core::ffi::{c_int, c_void};

use libc::{clockid_t, timespec};
use trace_format::preload::{api::CONDITION, call::TIMED, op};

use crate::{
    call::{Call, cancel::CancelHandler},
    entry::{forward, interpose},
    last_release,
    mutex_fields::MutexFields,
    real::{Lock, OWN_COND_TIMEDWAIT, OWN_COND_WAIT},
    walk::Caller,
};

forward! {
    COND_INIT: pthread_cond_init(condition: Lock, attributes: *const c_void) from c"GLIBC_2.3.2" => initialize(CONDITION);
    COND_DESTROY: pthread_cond_destroy(condition: Lock) from c"GLIBC_2.3.2" => release(op::DESTROY, CONDITION);
    COND_SIGNAL: pthread_cond_signal(condition: Lock) from c"GLIBC_2.3.2" => release(op::POSTED, CONDITION);
    COND_BROADCAST: pthread_cond_broadcast(condition: Lock) from c"GLIBC_2.3.2" => release(op::POSTED, CONDITION);
}

interpose! {
    COND_WAIT: pthread_cond_wait = "C-unwind" fn(Lock, Lock) from c"GLIBC_2.3.2" => wait;
    COND_TIMEDWAIT: pthread_cond_timedwait = "C-unwind" fn(Lock, Lock, *const timespec) from c"GLIBC_2.3.2" => timedwait;
    COND_CLOCKWAIT: pthread_cond_clockwait = "C-unwind" fn(Lock, Lock, clockid_t, *const timespec) => clockwait;
}

/// Whether the C library fails the wait immediately, because the thread does not hold the mutex.
unsafe fn is_not_held(mutex: Lock, call: &Call) -> bool {
    // SAFETY: the pointer is a mutex.
    let mutex = unsafe { MutexFields::of(mutex) };
    mutex.checks_owner() && mutex.owner() != call.tid()
}

/// Declares a function that waits: `NAME(ARGUMENTS) by REAL, API`. A macro, so that a cancellation unwinds
/// through a single frame.
macro_rules! wait {
    ($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) by $real:ident, $api:expr) => {
        $(#[$doc])*
        pub(crate) unsafe extern "C-unwind" fn $name(
            condition: Lock, mutex: Lock, $($argument: $type,)* caller: Caller
        ) -> c_int {
            // SAFETY: forwarded unchanged.
            unsafe {
                last_release::forget(mutex);
                let Some(mut call) = Call::begin_at(caller) else {
                    return $real.get()(condition, mutex $(, $argument)*);
                };
                if is_not_held(mutex, &call) {
                    call.pause();
                    let result = $real.get()(condition, mutex $(, $argument)*);
                    call.fail_immediately($api, condition, result);
                    return result;
                }
                call.put_with_payload(call.now(), op::CONDITION_WAIT, $api, mutex, condition as u64, 0);
                call.pause();
                let mut handler = CancelHandler::new(call, $api, mutex, Some(condition));
                handler.begin();
                let result = $real.get()(condition, mutex $(, $argument)*);
                let mut call = handler.end();
                call.condition_waited($api, mutex, condition, result);
                result
            }
        }
    };
}

wait!(wait() by COND_WAIT, CONDITION);
wait!(timedwait(until: *const timespec) by COND_TIMEDWAIT, CONDITION | TIMED);
wait!(clockwait(clock: clockid_t, until: *const timespec) by COND_CLOCKWAIT, CONDITION | TIMED);
wait!(
    /// A wait without other interposers, for `cnd_wait`.
    own_wait() by OWN_COND_WAIT, CONDITION
);
wait!(
    /// A wait without other interposers, for `cnd_timedwait`.
    own_timedwait(until: *const timespec) by OWN_COND_TIMEDWAIT, CONDITION | TIMED
);
