//! `pthread_create` and `pthread_join`. The end of a thread is a lock that nobody holds, at the thread's `pthread_t`: its creator
//! initializes it, the thread posts it as it ends (`thread`), and those who join the thread wait for it.

use core::ffi::{c_int, c_void};

use libc::{clockid_t, timespec};
use trace_format::preload::{api::THREAD, call::TIMED, op};

use crate::{
    call::{Call, Outcome, cancel::CancelHandler, try_acquire},
    real::{self, Lock},
    restrictions, sys,
    walk::Caller,
};

pub(crate) unsafe extern "C" fn create(
    thread: *mut Lock,
    attributes: *const c_void,
    start: *const c_void,
    argument: *mut c_void,
    caller: Caller,
) -> c_int {
    // SAFETY: forwarded unchanged.
    let result = unsafe { real::CREATE.get()(thread, attributes, start, argument) };
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

/// Returns the thread id of a thread that another one is about to wait for; `None` if the call ends at once, because the thread has ended
/// or is the caller.
unsafe fn waits_for(thread: Lock) -> Option<u32> {
    let mut clock = 0;
    // SAFETY: reads the same memory as the call that follows.
    let is_alive = unsafe { real::CPU_CLOCK_OF.get()(thread, &raw mut clock) == 0 };
    // SAFETY: has no effect.
    let is_other = || thread != unsafe { real::SELF.get()() };
    // The clock of a thread has the complement of its id above three bits.
    (is_alive && is_other()).then_some((!(clock >> 3)).cast_unsigned())
}

/// The body of a join; `$wait` forwards it, and `$api` is that of its records. A join with an invalid time waits in some versions of the C library. A
/// macro, so that a cancellation unwinds through a single frame.
macro_rules! join {
    ($thread:ident, $api:expr, $caller:ident, $wait:expr) => {{
        let Some(mut call) = Call::begin_at($caller) else { return $wait };
        let Some(tid) = waits_for($thread) else {
            call.pause();
            let result = $wait;
            if call.resume() {
                call.report($api, $thread, Outcome::of(result));
                call.end();
            }
            return result;
        };
        call.wait($api, $thread, tid);
        let mut handler = CancelHandler::new(call, $api, $thread, None);
        handler.begin();
        let result = $wait;
        let mut call = handler.end();
        call.waited($api, $thread, Outcome::of(result));
        result
    }};
}

pub(crate) unsafe extern "C-unwind" fn join(thread: Lock, value: *mut *mut c_void, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { join!(thread, THREAD, caller, real::JOIN.get()(thread, value)) }
}

pub(crate) unsafe extern "C" fn tryjoin(thread: Lock, value: *mut *mut c_void, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { try_acquire(caller, THREAD, thread, || real::TRYJOIN.get()(thread, value)) }
}

pub(crate) unsafe extern "C-unwind" fn timedjoin(
    thread: Lock,
    value: *mut *mut c_void,
    until: *const timespec,
    caller: Caller,
) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { join!(thread, THREAD | TIMED, caller, real::TIMEDJOIN.get()(thread, value, until)) }
}

pub(crate) unsafe extern "C-unwind" fn clockjoin(
    thread: Lock,
    value: *mut *mut c_void,
    clock: clockid_t,
    until: *const timespec,
    caller: Caller,
) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { join!(thread, THREAD | TIMED, caller, real::CLOCKJOIN.get()(thread, value, clock, until)) }
}

/// A join without other interposers, for `thrd_join`.
pub(crate) unsafe extern "C-unwind" fn own_join(
    thread: Lock,
    value: *mut *mut c_void,
    caller: Caller,
) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { join!(thread, THREAD, caller, real::OWN_JOIN.get()(thread, value)) }
}
