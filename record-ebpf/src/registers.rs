//! The registers of the current task at its entry to the kernel, from which its user stack is unwound.

#[cfg(not(bpf_target_arch = "aarch64"))]
use aya_ebpf::helpers::{bpf_get_current_task, bpf_probe_read_kernel};

#[cfg(not(bpf_target_arch = "aarch64"))]
use crate::{config, memory::task_field};

/// Registers of a task at its entry to the kernel.
#[derive(Clone, Copy)]
pub(crate) struct Registers {
    pub(crate) ip: u64,
    pub(crate) sp: u64,
    pub(crate) bp: u64,
}

impl Registers {
    /// Returns the registers of the current task; `None` if it entered the kernel in another way than from
    /// 64-bit code. They are at the top of its kernel stack (`arch/x86/include/asm/processor.h`,
    /// `task_pt_regs`).
    #[cfg(not(bpf_target_arch = "aarch64"))]
    #[inline(always)]
    pub(crate) fn of_current() -> Option<Self> {
        /// `THREAD_SIZE`, the size of `struct pt_regs`, and `TOP_OF_KERNEL_STACK_PADDING` with FRED (6.9).
        const STACK: u64 = 16 << 10;
        const SIZE: u64 = 168;
        const PADDING: u64 = 16;
        // SAFETY: the helper has no preconditions.
        let task = unsafe { bpf_get_current_task() };
        let stack: u64 = task_field(task, config::task_stack_offset())?;
        Self::at(stack + STACK - SIZE).or_else(|| Self::at(stack + STACK - SIZE - PADDING))
    }

    #[cfg(bpf_target_arch = "aarch64")]
    #[inline(always)]
    pub(crate) fn of_current() -> Option<Self> {
        None
    }

    /// Reads the `struct pt_regs` at `address` (`arch/x86/include/asm/ptrace.h`).
    #[cfg(not(bpf_target_arch = "aarch64"))]
    #[inline(always)]
    fn at(address: u64) -> Option<Self> {
        const BP: u64 = 32;
        const IP: u64 = 128;
        /// `__USER_CS` and `__USER_DS` (`arch/x86/include/asm/segment.h`).
        const CODE: u64 = 0x33;
        const DATA: u64 = 0x2b;
        // SAFETY: the helpers check the addresses.
        let ([ip, cs, _, sp, ss], bp) = unsafe {
            let end: [u64; 5] = bpf_probe_read_kernel((address + IP) as *const [u64; 5]).ok()?;
            (end, bpf_probe_read_kernel((address + BP) as *const u64).ok()?)
        };
        (cs & 0xffff == CODE && ss & 0xffff == DATA).then_some(Self { ip, sp, bp })
    }
}
