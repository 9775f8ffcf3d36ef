//! A thread's name: noted when it changes. Names go on to the C library and the kernel as they came; what is recorded is what the
//! kernel has afterwards.

use core::{
    ffi::{c_char, c_int},
    sync::atomic::{AtomicU32, Ordering},
};

use trace_format::preload::{Record, Rest, op};

use crate::{
    clock, real, sys,
    thread::{self, Thread},
};

/// How often a thread of this process was named. Whoever names another thread can't write for it: that one looks when it has
/// something else to do beside its records.
static RENAMINGS: AtomicU32 = AtomicU32::new(0);

/// Writes the thread's name if names changed since it last looked; the gate is closed.
pub(crate) fn look_again(thread: &mut Thread, time: u64) {
    let renamings = RENAMINGS.load(Ordering::Relaxed);
    if thread.renamings == renamings {
        return;
    }
    thread.renamings = renamings;
    let name = sys::thread_name();
    let slot = thread.ring.slot();
    // SAFETY: the slot is this thread's, and so is the ring.
    unsafe {
        if (*slot).comm == name {
            return;
        }
        (*slot).comm = name;
        let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|byte| name[at + byte]));
        thread
            .ring
            .put_two(Record::new(time, op::RENAMED, 0, 0, 0), Rest { first: word(0), second: word(8) });
    }
}

/// `pthread_setname_np`.
pub(crate) unsafe extern "C" fn set(thread: libc::pthread_t, name: *const c_char) -> c_int {
    // SAFETY: forwarded as it came.
    let answer = unsafe { real::SETNAME.get()(thread, name) };
    if answer == 0 {
        note();
    }
    answer
}

/// `prctl`.
pub(crate) unsafe extern "C" fn control(what: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    // SAFETY: forwarded as it came.
    let answer = unsafe { real::PRCTL.get()(what, a, b, c, d) };
    if what == libc::PR_SET_NAME && answer == 0 {
        note();
    }
    answer
}

fn note() {
    RENAMINGS.fetch_add(1, Ordering::Relaxed);
    let stack_pointer = thread::stack_pointer();
    // SAFETY: the block is this thread's, and the gate is open where it is used.
    unsafe {
        let thread = &mut *thread::current();
        if thread.is_open() {
            thread.enter(stack_pointer);
            look_again(thread, clock::now(thread.clock));
            thread.leave();
        }
    }
}
