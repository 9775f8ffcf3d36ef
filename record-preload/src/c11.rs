//! `mtx_*`, `cnd_*`, `thrd_create` and `thrd_join`. In glibc these are the pthread functions on the same
//! structures with other return values, and so they are here. They are interposed because the C library calls
//! its own functions without going through interposable symbols. So do these: another interposer sees none of
//! these calls.

use core::{
    ffi::{c_int, c_void},
    ptr::null_mut,
};

use libc::timespec;
use trace_format::preload::{
    api::{CONDITION, MUTEX},
    call::TIMED,
    op,
};

use crate::{
    call::{acquire, release, try_acquire},
    clock, condition,
    entry::{entry, forward, interpose},
    join, mutex,
    real::{self, Lock},
    walk::Caller,
};

forward! {
    MTX_INIT: mtx_init(mutex: Lock, kind: c_int) => initialize(MUTEX);
    CND_INIT: cnd_init(condition: Lock) => initialize(CONDITION);
    CND_SIGNAL: cnd_signal(condition: Lock) => release(op::POSTED, CONDITION);
    CND_BROADCAST: cnd_broadcast(condition: Lock) => release(op::POSTED, CONDITION);
}

interpose! {
    THRD_CREATE: thrd_create = "C" fn(*mut Lock, *const c_void, *mut c_void) => create;
}

// Forwarded to other functions than these.
entry!([mtx_destroy] (Lock) destroy);
entry!([mtx_lock] (Lock) lock);
entry!([mtx_trylock] (Lock) trylock);
entry!([mtx_timedlock] (Lock, *const timespec) timedlock);
entry!([mtx_unlock] (Lock) unlock);
entry!([cnd_destroy] (Lock) destroy_condition);
entry!([cnd_wait] (Lock, Lock) wait);
entry!([cnd_timedwait] (Lock, Lock, *const timespec) timedwait);
entry!([thrd_join] (Lock, *mut c_int) join);

/// Converts the return value of a pthread function to a value of `threads.h`.
fn thrd_result(error: c_int) -> c_int {
    match error {
        0 => 0,
        libc::EBUSY => 1,
        libc::ENOMEM => 3,
        libc::ETIMEDOUT => 4,
        _ => 2,
    }
}

unsafe extern "C" fn destroy(mutex: Lock, caller: Caller) {
    // SAFETY: forwarded unchanged.
    unsafe {
        release(caller, op::DESTROY, MUTEX, mutex, || {
            real::MTX_DESTROY.get()(mutex);
            0
        });
    }
}

unsafe extern "C" fn lock(mutex: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe {
        thrd_result(acquire(
            caller,
            MUTEX,
            mutex,
            || real::OWN_MUTEX_TRYLOCK.get()(mutex),
            |call| mutex::waits_for(mutex, call),
            || real::OWN_MUTEX_LOCK.get()(mutex),
        ))
    }
}

unsafe extern "C" fn trylock(mutex: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { thrd_result(try_acquire(caller, MUTEX, mutex, || real::OWN_MUTEX_TRYLOCK.get()(mutex))) }
}

unsafe extern "C" fn timedlock(mutex: Lock, until: *const timespec, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged; the timeout is read only if the C library reads it as well.
    unsafe {
        thrd_result(acquire(
            caller,
            MUTEX | TIMED,
            mutex,
            || real::OWN_MUTEX_TRYLOCK.get()(mutex),
            |call| mutex::waits_for(mutex, call).filter(|_| clock::is_valid(until)),
            || real::OWN_MUTEX_TIMEDLOCK.get()(mutex, until),
        ))
    }
}

unsafe extern "C" fn unlock(mutex: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe {
        thrd_result(release(caller, op::RELEASED, MUTEX, mutex, || real::OWN_MUTEX_UNLOCK.get()(mutex)))
    }
}

unsafe extern "C" fn destroy_condition(condition: Lock, caller: Caller) {
    // SAFETY: forwarded unchanged.
    unsafe {
        release(caller, op::DESTROY, CONDITION, condition, || {
            real::CND_DESTROY.get()(condition);
            0
        });
    }
}

unsafe extern "C-unwind" fn wait(condition: Lock, mutex: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { thrd_result(condition::own_wait(condition, mutex, caller)) }
}

unsafe extern "C-unwind" fn timedwait(
    condition: Lock,
    mutex: Lock,
    until: *const timespec,
    caller: Caller,
) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { thrd_result(condition::own_timedwait(condition, mutex, until, caller)) }
}

unsafe extern "C" fn create(
    thread: *mut Lock,
    start: *const c_void,
    argument: *mut c_void,
    caller: Caller,
) -> c_int {
    // SAFETY: forwarded unchanged.
    let result = unsafe { THRD_CREATE.get()(thread, start, argument) };
    if result == 0 {
        join::created(thread, caller);
    }
    result
}

unsafe extern "C-unwind" fn join(thread: Lock, value: *mut c_int, caller: Caller) -> c_int {
    let mut own_value = null_mut();
    // SAFETY: forwarded unchanged; the value of a thread is its integer in a pointer.
    unsafe {
        let result = join::own_join(thread, &raw mut own_value, caller);
        if !value.is_null() {
            *value = own_value as usize as c_int;
        }
        thrd_result(result)
    }
}
