//! What a wait leaves behind when its thread is cancelled in it: the C library unwinds the stack, and the frames here hold nothing
//! that an unwinder of C++ or Rust would know of. The C library's own way to have a handler run, older than those, does.

use core::ffi::{c_int, c_void};

use trace_format::preload::api;

use super::{Call, Outcome};
use crate::real::{self, Lock};

/// A wait during which a cancellation is noted. It must not move between [`Guard::begin`] and [`Guard::end`].
pub(crate) struct Guard {
    buffer: Buffer,
    call: Call,
    /// The semaphore, or the mutex of a wait on a condition variable.
    lock: Lock,
    condition: Option<Lock>,
}

/// glibc's `struct _pthread_cleanup_buffer`; the frame of the wait is the one that holds it.
#[repr(C)]
struct Buffer {
    routine: usize,
    argument: *mut c_void,
    kind: c_int,
    previous: *mut c_void,
}

impl Guard {
    /// For a call that is about to wait.
    #[inline(always)]
    pub(crate) fn new(call: Call, lock: Lock, condition: Option<Lock>) -> Self {
        let nothing = core::ptr::null_mut();
        Self {
            buffer: Buffer { routine: 0, argument: nothing, kind: 0, previous: nothing },
            call,
            lock,
            condition,
        }
    }

    /// The wait begins.
    #[inline(always)]
    pub(crate) unsafe fn begin(&mut self) {
        let argument = (&raw mut *self).cast();
        // SAFETY: the guard stays where it is until the wait ends, one way or the other.
        unsafe { real::CLEANUP_PUSH.get()((&raw mut self.buffer).cast(), cancelled, argument) };
    }

    /// The wait ended by itself.
    #[inline(always)]
    pub(crate) unsafe fn end(mut self) -> Call {
        // SAFETY: of the guards that were begun in this thread this is the last.
        unsafe { real::CLEANUP_POP.get()((&raw mut self.buffer).cast(), 0) };
        self.call
    }
}

unsafe extern "C" fn cancelled(guard: *mut c_void) {
    // SAFETY: the frame that holds the guard is being left, and still there.
    let guard = unsafe { &mut *guard.cast::<Guard>() };
    match guard.condition {
        Some(condition) => guard.call.condition_done(guard.lock, condition, libc::ECANCELED),
        None => guard.call.waited(api::SEMAPHORE, guard.lock, Outcome::Failed(libc::ECANCELED)),
    }
}
