//! `pthread_mutex_*`: tries first, so that a call whose mutex is free reads the clock once, and a call that waits is known to.
//! Reads two words of the mutex, its owner and its type, and writes nothing in it.

use core::{
    ffi::{c_int, c_void},
    ptr,
};

use libc::{clockid_t, timespec};
use trace_format::preload::{api::MUTEX, op};

use crate::{
    call::{Call, given, made, taken, tried},
    clock,
    real::{self, Lock},
    walk::Caller,
};

/// Where glibc's `struct __pthread_mutex_s` has the owner's TID, on every 64-bit architecture.
const OWNER_AT: usize = 8;
/// And the type, with the protocol.
const KIND_AT: usize = 16;
const TYPE: u32 = 3;
const ROBUST: u32 = 16;
const PRIORITY_INHERIT: u32 = 32;

/// A word of a mutex, which others change meanwhile.
unsafe fn word(mutex: Lock, at: usize) -> u32 {
    // SAFETY: a mutex of the C library is larger than this, and the word aligned.
    unsafe { ptr::read_volatile(mutex.cast::<u8>().add(at).cast()) }
}

/// Who has the mutex, 0 if nobody.
pub(crate) unsafe fn owner(mutex: Lock) -> u32 {
    // SAFETY: as the caller promises: a mutex.
    unsafe { word(mutex, OWNER_AT) }
}

/// Whether the C library refuses to take the mutex again for the thread that has it.
unsafe fn checks_errors(mutex: Lock) -> bool {
    // SAFETY: a mutex.
    unsafe { word(mutex, KIND_AT) & TYPE == libc::PTHREAD_MUTEX_ERRORCHECK as u32 }
}

/// Whether the C library refuses to give the mutex back for a thread that has not got it.
pub(crate) unsafe fn knows_owner(mutex: Lock) -> bool {
    // SAFETY: a mutex.
    let kind = unsafe { word(mutex, KIND_AT) };
    let of_type = kind & TYPE;
    of_type == libc::PTHREAD_MUTEX_ERRORCHECK as u32
        || of_type == libc::PTHREAD_MUTEX_RECURSIVE as u32
        || kind & (ROBUST | PRIORITY_INHERIT) != 0
}

/// Tries to take a mutex; `EBUSY` if it is not free.
#[inline(always)]
unsafe fn attempt(mutex: Lock) -> c_int {
    // SAFETY: a mutex.
    unsafe {
        if word(mutex, KIND_AT) & ROBUST == 0 {
            real::MUTEX_TRYLOCK.get()(mutex)
        } else {
            attempt_robust(mutex)
        }
    }
}

/// glibc's `trylock` leaves a mutex that is not recoverable taken, and the next call that waits for it would wait forever where
/// it should be refused. A wait until long ago does not.
#[cold]
unsafe fn attempt_robust(mutex: Lock) -> c_int {
    // SAFETY: a mutex.
    answer_of_try(unsafe { real::MUTEX_TIMEDLOCK.get()(mutex, &clock::LONG_PAST) })
}

/// What a wait until long ago answered, in the words of a try.
fn answer_of_try(answer: c_int) -> c_int {
    if answer == libc::ETIMEDOUT { libc::EBUSY } else { answer }
}

/// Whom a call waits for that found the mutex taken; `None` if it is refused instead.
unsafe fn waits_for(mutex: Lock, call: &Call) -> Option<u32> {
    // SAFETY: a mutex.
    unsafe {
        let owner = owner(mutex);
        (owner != call.tid() || !checks_errors(mutex)).then_some(owner)
    }
}

pub(crate) unsafe extern "C" fn init(
    mutex: Lock,
    attributes: *const c_void,
    return_address: usize,
    frame_pointer: usize,
) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe {
        made(Caller { return_address, frame_pointer }, MUTEX, mutex, || {
            real::MUTEX_INIT.get()(mutex, attributes)
        })
    }
}

pub(crate) unsafe extern "C" fn destroy(mutex: Lock, return_address: usize, frame_pointer: usize) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe {
        given(Caller { return_address, frame_pointer }, op::DESTROY, MUTEX, mutex, || {
            real::MUTEX_DESTROY.get()(mutex)
        })
    }
}

pub(crate) unsafe extern "C" fn lock(mutex: Lock, return_address: usize, frame_pointer: usize) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe {
        taken(
            Caller { return_address, frame_pointer },
            MUTEX,
            mutex,
            || attempt(mutex),
            |call| waits_for(mutex, call),
            || real::MUTEX_LOCK.get()(mutex),
        )
    }
}

pub(crate) unsafe extern "C" fn trylock(mutex: Lock, return_address: usize, frame_pointer: usize) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe {
        tried(Caller { return_address, frame_pointer }, MUTEX, mutex, || real::MUTEX_TRYLOCK.get()(mutex))
    }
}

pub(crate) unsafe extern "C" fn timedlock(
    mutex: Lock,
    until: *const timespec,
    return_address: usize,
    frame_pointer: usize,
) -> c_int {
    // SAFETY: forwarded as it came; the time is only read where the C library reads it, too.
    unsafe {
        taken(
            Caller { return_address, frame_pointer },
            MUTEX,
            mutex,
            || attempt(mutex),
            |call| waits_for(mutex, call).filter(|_| clock::is_valid(until)),
            || real::MUTEX_TIMEDLOCK.get()(mutex, until),
        )
    }
}

pub(crate) unsafe extern "C" fn clocklock(
    mutex: Lock,
    clock: clockid_t,
    until: *const timespec,
    return_address: usize,
    frame_pointer: usize,
) -> c_int {
    // SAFETY: forwarded as it came; the time is only read where the C library reads it, too.
    unsafe {
        taken(
            Caller { return_address, frame_pointer },
            MUTEX,
            mutex,
            || {
                // A clock that it does not take is refused even if the mutex is free, and which ones it takes depends on the
                // mutex: a time long past answers without a wait.
                answer_of_try(real::MUTEX_CLOCKLOCK.get()(mutex, clock, &clock::LONG_PAST))
            },
            |call| waits_for(mutex, call).filter(|_| clock::is_valid(until)),
            || real::MUTEX_CLOCKLOCK.get()(mutex, clock, until),
        )
    }
}

pub(crate) unsafe extern "C" fn unlock(mutex: Lock, return_address: usize, frame_pointer: usize) -> c_int {
    // SAFETY: forwarded as it came.
    unsafe {
        given(Caller { return_address, frame_pointer }, op::RELEASED, MUTEX, mutex, || {
            real::MUTEX_UNLOCK.get()(mutex)
        })
    }
}
