//! `pthread_create` and `pthread_join`. The end of a thread is a lock that nobody holds, at the thread's
//! `pthread_t`: its creator initializes it, the thread posts it as it ends (`thread`), and those who join the
//! thread wait for it.

use core::ffi::{c_int, c_void};

use libc::{clockid_t, timespec};
use trace_format::preload::{api::THREAD, call::TIMED, op};

use crate::{
    call::{Call, Outcome, cancel::CancelHandler},
    entry::{forward, interpose},
    real::{self, Lock, OWN_JOIN},
    restrictions, sys,
    walk::Caller,
};

// A thread is a pointer to what the C library has of it.
forward! {
    TRYJOIN: pthread_tryjoin_np(thread: Lock, value: *mut *mut c_void) => try_acquire(THREAD);
}

interpose! {
    CREATE: pthread_create = "C" fn(*mut Lock, *const c_void, *const c_void, *mut c_void) => create;
    JOIN: pthread_join = "C-unwind" fn(Lock, *mut *mut c_void) => join;
    TIMEDJOIN: pthread_timedjoin_np = "C-unwind" fn(Lock, *mut *mut c_void, *const timespec) => timedjoin;
    CLOCKJOIN: pthread_clockjoin_np = "C-unwind" fn(Lock, *mut *mut c_void, clockid_t, *const timespec) => clockjoin;
}

unsafe extern "C" fn create(
    thread: *mut Lock,
    attributes: *const c_void,
    start: *const c_void,
    argument: *mut c_void,
    caller: Caller,
) -> c_int {
    // SAFETY: forwarded unchanged.
    let result = unsafe { CREATE.get()(thread, attributes, start, argument) };
    if result == 0 {
        created(thread, caller);
    }
    result
}

/// Records that a thread was created.
pub(crate) fn created(thread: *mut Lock, caller: Caller) {
    // SAFETY: the caller's obligation.
    let Some(mut call) = (unsafe { Call::begin_at(caller) }) else { return };
    // The thread may have freed the variable meanwhile, so the kernel reads it.
    if let Some(thread) = restrictions::permit().and_then(|_permit| sys::read_word(thread as usize)) {
        call.put(call.now(), op::INIT, THREAD, thread as Lock);
    }
    call.end();
}

/// Returns the thread id of a thread that another one is about to wait for; `None` if the call ends at once,
/// because the thread has ended or is the caller.
unsafe fn waits_for(thread: Lock) -> Option<u32> {
    let mut clock = 0;
    // SAFETY: reads the same memory as the call that follows.
    let is_alive = unsafe { real::CPU_CLOCK_OF.get()(thread, &raw mut clock) == 0 };
    // SAFETY: has no effect.
    let is_other = || thread != unsafe { real::SELF.get()() };
    // The clock of a thread has the complement of its id above three bits.
    (is_alive && is_other()).then_some((!(clock >> 3)).cast_unsigned())
}

/// Declares a join: `NAME(ARGUMENTS) by REAL, API`. A join with an invalid time waits in some versions of the
/// C library. A macro, so that a cancellation unwinds through a single frame.
macro_rules! join {
    ($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) by $real:ident, $api:expr) => {
        $(#[$doc])*
        pub(crate) unsafe extern "C-unwind" fn $name(
            thread: Lock, value: *mut *mut c_void, $($argument: $type,)* caller: Caller
        ) -> c_int {
            // SAFETY: forwarded unchanged.
            unsafe {
                let Some(mut call) = Call::begin_at(caller) else { return $real.get()(thread, value $(, $argument)*) };
                let Some(tid) = waits_for(thread) else {
                    call.pause();
                    let result = $real.get()(thread, value $(, $argument)*);
                    if call.resume() {
                        call.report($api, thread, Outcome::of(result));
                        call.end();
                    }
                    return result;
                };
                call.wait($api, thread, tid);
                let mut handler = CancelHandler::new(call, $api, thread, None);
                handler.begin();
                let result = $real.get()(thread, value $(, $argument)*);
                let mut call = handler.end();
                call.waited($api, thread, Outcome::of(result));
                result
            }
        }
    };
}

join!(join() by JOIN, THREAD);
join!(timedjoin(until: *const timespec) by TIMEDJOIN, THREAD | TIMED);
join!(clockjoin(clock: clockid_t, until: *const timespec) by CLOCKJOIN, THREAD | TIMED);
join!(
    /// A join without other interposers, for `thrd_join`.
    own_join() by OWN_JOIN, THREAD
);
