//! Records the end of a wait when the thread is cancelled in it. The C library unwinds the stack then, and
//! the frames here have nothing that unwinders of C++ or Rust know, so this uses glibc's own cleanup
//! handlers, which are older than those.

use core::ffi::{c_int, c_void};

use super::{Call, Outcome};
use crate::real::{self, Lock};

/// A handler that records a cancellation during a wait. It must not move between [`CancelHandler::begin`] and
/// [`CancelHandler::end`].
pub(crate) struct CancelHandler {
    buffer: Buffer,
    call: Call,
    /// The api of its records.
    api: u8,
    /// The semaphore, or the mutex of a wait on a condition variable.
    lock: Lock,
    condition: Option<Lock>,
}

/// glibc's `struct _pthread_cleanup_buffer`, in the frame of the wait.
#[repr(C)]
struct Buffer {
    routine: usize,
    argument: *mut c_void,
    kind: c_int,
    previous: *mut c_void,
}

impl CancelHandler {
    /// Creates the handler for a call that is about to wait.
    #[inline(always)]
    pub(crate) fn new(call: Call, api: u8, lock: Lock, condition: Option<Lock>) -> Self {
        let nothing = core::ptr::null_mut();
        Self {
            buffer: Buffer { routine: 0, argument: nothing, kind: 0, previous: nothing },
            call,
            api,
            lock,
            condition,
        }
    }

    /// Installs the handler.
    #[inline(always)]
    pub(crate) unsafe fn begin(&mut self) {
        let argument = (&raw mut *self).cast();
        // SAFETY: the handler does not move until the wait ends.
        unsafe { real::CLEANUP_PUSH.get()((&raw mut self.buffer).cast(), cancelled, argument) };
    }

    /// Removes the handler, because the wait ended without cancellation.
    #[inline(always)]
    pub(crate) unsafe fn end(mut self) -> Call {
        // SAFETY: this is the last handler installed by this thread.
        unsafe { real::CLEANUP_POP.get()((&raw mut self.buffer).cast(), 0) };
        self.call
    }
}

unsafe extern "C" fn cancelled(handler: *mut c_void) {
    // SAFETY: the frame that holds the handler is being unwound, but still exists.
    let handler = unsafe { &mut *handler.cast::<CancelHandler>() };
    match handler.condition {
        Some(condition) => {
            handler.call.condition_waited(handler.api, handler.lock, condition, libc::ECANCELED)
        }
        None => handler.call.waited(handler.api, handler.lock, Outcome::Failed(libc::ECANCELED)),
    }
}
