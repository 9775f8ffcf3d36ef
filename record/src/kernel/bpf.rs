//! The bpf(2) system call, for the commands that aya does not offer.

use std::io;

use aya_obj::generated::{bpf_attr, bpf_cmd};

/// Returns attributes in which nothing is set.
pub(crate) fn empty_attributes() -> bpf_attr {
    // SAFETY: all fields are integers, for which 0 is valid and means "not set".
    unsafe { std::mem::zeroed() }
}

/// Calls bpf(2).
///
/// # Safety
///
/// Every pointer in the attributes must be valid for the command.
pub(crate) unsafe fn bpf(command: bpf_cmd, attributes: &mut bpf_attr) -> io::Result<i32> {
    // SAFETY: the kernel accesses the attributes, whose size is given, and what they point to, which the caller vouches for.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as libc::c_int,
            std::ptr::from_mut(attributes),
            size_of::<bpf_attr>() as libc::c_uint,
        )
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { i32::try_from(answer).map_err(io::Error::other) }
}
