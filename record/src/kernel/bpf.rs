//! The system calls bpf(2), for the commands that aya does not offer, and perf_event_open(2).

use std::{
    io,
    os::fd::{FromRawFd as _, OwnedFd},
};

use aya_obj::generated::{bpf_attr, bpf_cmd, perf_event_attr};

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
    // SAFETY: the kernel accesses the attributes, whose size is given, and what they point to, which the
    // caller vouches for.
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

/// Opens a perf event of one task, or with -1 of all, on one CPU.
pub(crate) fn perf_event_open(
    attributes: &perf_event_attr,
    pid: libc::pid_t,
    cpu: u32,
) -> io::Result<OwnedFd> {
    const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
    // SAFETY: the attributes are initialised, have the size that they contain, and outlive the call.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(attributes),
            pid,
            cpu as libc::c_int,
            -1,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    let fd = i32::try_from(answer).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the descriptor is new and ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns attributes of a perf event in which only the size is set.
pub(crate) fn perf_attributes() -> perf_event_attr {
    // SAFETY: all fields are integers, for which zero is valid.
    let mut attributes = unsafe { std::mem::zeroed::<perf_event_attr>() };
    attributes.size = size_of::<perf_event_attr>() as u32;
    attributes
}
