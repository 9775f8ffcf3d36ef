//! Renames of threads: `pthread_setname_np` and `prctl`. The calls are forwarded first; the recorded name is the one that the
//! kernel has afterwards.

use core::ffi::{c_char, c_int};

use crate::{clock, real, restrictions, thread};

/// `pthread_setname_np`.
pub(crate) unsafe extern "C" fn set(thread: libc::pthread_t, name: *const c_char) -> c_int {
    // SAFETY: forwarded unchanged.
    let result = unsafe { real::SETNAME.get()(thread, name) };
    if result == 0 {
        thread::renamed(clock::now);
    }
    result
}

/// `prctl`.
pub(crate) unsafe extern "C" fn control(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    // SAFETY: forwarded unchanged.
    let result = unsafe { restrictions::prctl(option, a, b, c, d) };
    if option == libc::PR_SET_NAME && result == 0 {
        thread::renamed(clock::now);
    }
    result
}
