//! The system call in which the current task is, from the registers that it had when it entered the kernel.
//!
//! They are at the top of its kernel stack. The entry code stores the number of the call there, and -1 for
//! every other way into the kernel:
//!
//! * x86-64, `orig_ax`: `entry_SYSCALL_64` pushes the number, exceptions and interrupts push -1 or replace
//!   the error code by it (`idtentry_body` in `arch/x86/entry/entry_64.S`, 5.8 to 7.2;
//!   `arch/x86/entry/entry_fred.c`, 6.9);
//! * aarch64, `syscallno`: `kernel_entry` stores `NO_SYSCALL`, -1, and `do_el0_svc` the number
//!   (`arch/arm64/kernel/entry.S`, 4.19 to 7.2).
//!
//! A page fault inside of a system call has registers of its own further down, so that the call's stay at the
//! top.

use aya_ebpf::helpers::generated::{bpf_get_current_task_btf, bpf_task_pt_regs};
use trace_format::wire::departure::{NO_SYSCALL, UNKNOWN_SYSCALL};

use crate::config::{self, ABSENT};

/// Reads a field of a structure of the kernel that the verifier knows.
///
/// # Safety
///
/// `structure` comes from a helper that returns a pointer with a type, and has a field of this size there.
#[inline(always)]
unsafe fn field<T: Copy>(structure: u64, offset: u32) -> T {
    // SAFETY: the kernel makes an invalid address read as 0. Volatile, so that the read keeps the size of the
    // field.
    unsafe { core::ptr::read_volatile((structure + u64::from(offset)) as *const T) }
}

/// Returns the number of the system call in which the current task is, [`NO_SYSCALL`] or [`UNKNOWN_SYSCALL`].
#[inline(always)]
pub(crate) fn of_current() -> i32 {
    let (number, mode) = (config::registers_syscall_offset(), config::registers_mode_offset());
    if number == ABSENT || mode == ABSENT {
        return UNKNOWN_SYSCALL;
    }
    // SAFETY: the offsets are those of the running kernel, whose BTF describes both structures.
    unsafe {
        let task = bpf_get_current_task_btf();
        let registers = bpf_task_pt_regs(task) as u64;
        // The kernel looks at the lower half only (`do_syscall_64`).
        let number: i32 = field(registers, number);
        if number == NO_SYSCALL {
            return NO_SYSCALL;
        }
        of_mode(task as u64, registers, mode).unwrap_or(if number < 0 { UNKNOWN_SYSCALL } else { number })
    }
}

/// Returns the result for a task that entered the kernel in another way than from 64-bit code: [`NO_SYSCALL`]
/// for threads of the kernel, whose registers are 0, and for workers of io_uring, which have the registers of
/// their creator and no instruction pointer (`copy_thread`, 5.12).
///
/// # Safety
///
/// As [`field`], of both addresses.
#[cfg(not(bpf_target_arch = "aarch64"))]
#[inline(always)]
unsafe fn of_mode(task: u64, registers: u64, mode: u32) -> Option<i32> {
    /// The privilege level in `cs`; 3 is user code.
    const LEVEL: u16 = 3;
    /// In `thread_info.status` during a system call by the 32-bit entries, also of 64-bit code: `int $0x80`
    /// (`arch/x86/include/asm/thread_info.h`).
    const TS_COMPAT: u32 = 2;
    let (ip, status) = (config::registers_ip_offset(), config::task_status_offset());
    if ip == ABSENT || status == ABSENT {
        return Some(UNKNOWN_SYSCALL);
    }
    // SAFETY: see above.
    unsafe {
        if field::<u16>(registers, mode) & LEVEL != LEVEL || field::<u64>(registers, ip) == 0 {
            return Some(NO_SYSCALL);
        }
        (field::<u32>(task, status) & TS_COMPAT != 0).then_some(UNKNOWN_SYSCALL)
    }
}

/// Returns the result for a task that entered the kernel in another way than from 64-bit code: [`NO_SYSCALL`]
/// for threads of the kernel and workers of io_uring, whose mode is not that of user code (`copy_thread`).
///
/// # Safety
///
/// As [`field`], of `registers`.
#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
unsafe fn of_mode(_task: u64, registers: u64, mode: u32) -> Option<i32> {
    /// `PSR_MODE_MASK` without the next bit; 0 is user code (`arch/arm64/include/uapi/asm/ptrace.h`).
    const LEVEL: u64 = 15;
    /// `PSR_MODE32_BIT`
    const IS_32_BIT: u64 = 16;
    // SAFETY: see above.
    let state: u64 = unsafe { field(registers, mode) };
    if state & LEVEL != 0 && state & IS_32_BIT == 0 {
        return Some(NO_SYSCALL);
    }
    (state & IS_32_BIT != 0).then_some(UNKNOWN_SYSCALL)
}
