//! The environment of the program.

use core::ffi::{CStr, c_char};

unsafe extern "C" {
    static mut environ: *mut *const c_char;
}

/// Returns the C library's list, null or null-terminated.
pub(crate) fn list() -> *mut *const c_char {
    // SAFETY: reads the C library's variable, as its own functions do.
    unsafe { environ }
}

/// Returns the value of a variable.
pub(crate) fn value(name: &[u8]) -> Option<&'static [u8]> {
    let mut entry = list();
    // SAFETY: null or a null-terminated list of strings.
    unsafe {
        while !entry.is_null() && !(*entry).is_null() {
            let text = CStr::from_ptr(*entry).to_bytes();
            if let Some(value) = text.strip_prefix(name).and_then(|rest| rest.strip_prefix(b"=")) {
                return Some(value);
            }
            entry = entry.add(1);
        }
    }
    None
}
