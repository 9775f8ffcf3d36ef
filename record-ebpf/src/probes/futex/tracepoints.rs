//! Futex calls by system call tracepoints. Every kernel has them, but while one is in use, every system call
//! of every task takes the slow entry and exit path.
//!
//! In the tracepoint's context, argument n is at offset 16 + 8n, and the return value at 16
//! (`events/syscalls/sys_enter_futex/format`).

#[cfg(not(bpf_target_arch = "aarch64"))]
use aya_ebpf::{EbpfContext as _, helpers::bpf_probe_read_kernel};
use aya_ebpf::{macros::tracepoint, programs::TracePointContext};

#[cfg(not(bpf_target_arch = "aarch64"))]
use super::{Registers, registers_near};
use super::{call_of, enter, leave, number};
use crate::waiting::FutexCall;

/// Offset of the first argument and of the return value.
const FIRST: usize = 16;

#[inline(always)]
fn argument(ctx: &TracePointContext, index: usize) -> u64 {
    // SAFETY: the kernel's record holds six arguments. After a failed read the caller sees an address or
    // command of 0.
    unsafe { ctx.read_at(FIRST + 8 * index) }.unwrap_or(0)
}

macro_rules! entries {
    ($($name:ident: $number:ident;)+) => {
        $(
            #[tracepoint]
            fn $name(ctx: TracePointContext) -> u32 {
                enter(&ctx, || call_of(number::$number, argument(&ctx, 0), argument(&ctx, 1)))
            }
        )+
    };
}

entries! {
    enter_futex: FUTEX;
    enter_futex_wait: FUTEX_WAIT;
    enter_futex_waitv: FUTEX_WAITV;
    enter_futex_wake: FUTEX_WAKE;
    enter_futex_requeue: FUTEX_REQUEUE;
}

#[tracepoint]
fn exit_futex(ctx: TracePointContext) -> u32 {
    leave(&ctx, argument(&ctx, 0) as i64, || returning(&ctx))
}

/// Decodes the returning call from the entry registers. The context starts with an address of registers,
/// which a program can read only in this way (`perf_call_bpf_exit` in `kernel/trace/trace_syscalls.c`). On
/// some kernels these are the task's own, on others the tracepoint's, whose stack pointer leads to the
/// task's. They must match the number and result of this call.
#[cfg(not(bpf_target_arch = "aarch64"))]
#[inline(always)]
fn returning(ctx: &TracePointContext) -> Option<FutexCall> {
    /// Offset of `sp` in `struct pt_regs` (`arch/x86/include/asm/ptrace.h`).
    const STACK_POINTER: u64 = 152;
    // SAFETY: the helper checks the addresses; the number of the call is a field of the kernel's record.
    let (regs, stack, number) = unsafe {
        let regs: u64 = bpf_probe_read_kernel(ctx.as_ptr().cast()).ok()?;
        let stack: u64 = bpf_probe_read_kernel((regs + STACK_POINTER) as *const u64).ok()?;
        (regs, stack, ctx.read_at::<i32>(8).ok()?)
    };
    let result = argument(ctx, 0) as i64;
    let matches = |registers: &Registers| registers.number == number as u32 && registers.result == result;
    let registers = Registers::at(regs).filter(matches).or_else(|| registers_near(stack, matches))?;
    Some(registers.call())
}

#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
fn returning(_ctx: &TracePointContext) -> Option<FutexCall> {
    None
}
