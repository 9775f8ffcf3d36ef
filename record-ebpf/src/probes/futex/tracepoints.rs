//! Futex calls by the tracepoints of system calls. They are there on every kernel; but while one of them is in use, the kernel
//! takes its slow way into and out of every system call of every task.
//!
//! Arguments stand in the tracepoint's context at 16 plus 8 for each, the return value at 16
//! (`events/syscalls/sys_enter_futex/format`).

#[cfg(not(bpf_target_arch = "aarch64"))]
use aya_ebpf::{EbpfContext as _, helpers::bpf_probe_read_kernel};
use aya_ebpf::{macros::tracepoint, programs::TracePointContext};

#[cfg(not(bpf_target_arch = "aarch64"))]
use super::{Registers, registers_near};
use super::{call_of, enter, leave, number};
use crate::waiting::FutexCall;

/// Offset of the first argument, and of the return value.
const FIRST: usize = 16;

#[inline(always)]
fn argument(ctx: &TracePointContext, at: usize) -> u64 {
    // SAFETY: the kernel's record holds six arguments; a failed read is told from an argument by the caller's check.
    unsafe { ctx.read_at(FIRST + 8 * at) }.unwrap_or(0)
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

/// The context begins with the address of registers, which a program may only read in this way (`perf_call_bpf_exit` in
/// `kernel/trace/trace_syscalls.c`). Some kernels put the task's own there, others those of the tracepoint, whose stack
/// pointer leads to the task's. What is found must have the number and the result of this call.
#[cfg(not(bpf_target_arch = "aarch64"))]
#[inline(always)]
fn returning(ctx: &TracePointContext) -> Option<FutexCall> {
    /// Where `sp` is in `struct pt_regs` (`arch/x86/include/asm/ptrace.h`).
    const STACK_POINTER: u64 = 152;
    // SAFETY: the helper checks the addresses; the number of the call is a field of the kernel's record.
    let (regs, stack, number) = unsafe {
        let regs: u64 = bpf_probe_read_kernel(ctx.as_ptr().cast()).ok()?;
        let stack: u64 = bpf_probe_read_kernel((regs + STACK_POINTER) as *const u64).ok()?;
        (regs, stack, ctx.read_at::<i32>(8).ok()?)
    };
    let result = argument(ctx, 0) as i64;
    let fits = |registers: &Registers| registers.number == number as u32 && registers.result == result;
    let registers = Registers::at(regs).filter(fits).or_else(|| registers_near(stack, fits))?;
    Some(registers.call())
}

#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
fn returning(_ctx: &TracePointContext) -> Option<FutexCall> {
    None
}
