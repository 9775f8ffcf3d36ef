//! `pthread_spin_*`. As mutexes, but without a known owner.

use core::ffi::c_int;

use trace_format::preload::{api::SPIN, op};

use crate::{
    call::{acquire, initialize, release, try_acquire},
    real::{self, Lock},
    walk::Caller,
};

pub(crate) unsafe extern "C" fn init(lock: Lock, shared: c_int, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { initialize(caller, SPIN, lock, || real::SPIN_INIT.get()(lock, shared)) }
}

pub(crate) unsafe extern "C" fn destroy(lock: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { release(caller, op::DESTROY, SPIN, lock, || real::SPIN_DESTROY.get()(lock)) }
}

pub(crate) unsafe extern "C" fn lock(lock: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe {
        acquire(
            caller,
            SPIN,
            lock,
            || real::SPIN_TRYLOCK.get()(lock),
            |_| Some(0),
            || real::SPIN_LOCK.get()(lock),
        )
    }
}

pub(crate) unsafe extern "C" fn trylock(lock: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { try_acquire(caller, SPIN, lock, || real::SPIN_TRYLOCK.get()(lock)) }
}

pub(crate) unsafe extern "C" fn unlock(lock: Lock, caller: Caller) -> c_int {
    // SAFETY: forwarded unchanged.
    unsafe { release(caller, op::RELEASED, SPIN, lock, || real::SPIN_UNLOCK.get()(lock)) }
}
