//! Reads fields of the kernel's task structures, and 16-byte task names.

use aya_ebpf::helpers::bpf_probe_read_kernel;

use crate::config::ABSENT;

/// A task name, padded with zeros.
pub(crate) type Comm = [u8; 16];

/// Reads a field of the `task_struct` at `task`. Returns `None` if the kernel does not have the field.
#[inline(always)]
pub(crate) fn task_field<T>(task: u64, offset: u32) -> Option<T> {
    if offset == ABSENT {
        return None;
    }
    // SAFETY: the helper checks the address, and the fields are plain integers.
    unsafe { bpf_probe_read_kernel((task + u64::from(offset)) as *const T) }.ok()
}

/// Reads the task name at `address`; zeros if it is not readable.
#[inline(always)]
pub(crate) fn comm_at(address: u64) -> Comm {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel(address as *const Comm) }.unwrap_or([0; 16])
}
