//! Futex calls by probes on the system call functions, `__x64_sys_futex` and others. Only futex calls pay for
//! them. The only argument of these functions is the address of the task's registers at kernel entry
//! (`arch/x86/include/asm/syscall_wrapper.h`, 4.17).

use aya_ebpf::{
    EbpfContext as _,
    macros::{fentry, fexit, kprobe, kretprobe},
    programs::{FEntryContext, FExitContext, ProbeContext, RetProbeContext},
};

use super::{Registers, call_of, enter, leave, number};
use crate::waiting::FutexCall;

/// Records the entry of the system call function with this number.
#[inline(never)]
fn entered(ctx: FEntryContext, registers: u64, number: u32) -> u32 {
    enter(&ctx, || match Registers::at(registers) {
        Some(registers) => call_of(number, registers.first, registers.second),
        // The address 0 is not a futex.
        None => FutexCall { address: 0, extra: 0, command: 0 },
    })
}

/// Records the return of the function; `registers` is the address of the entry registers.
#[inline(never)]
fn returned(ctx: FExitContext, registers: u64, result: i64, number: u32) -> u32 {
    leave(&ctx, result, || {
        let registers = Registers::at(registers)?;
        Some(call_of(number, registers.first, registers.second))
    })
}

/// Records the return of the function, given any address on the kernel stack.
#[inline(never)]
fn returned_on(ctx: FExitContext, stack: u64, result: i64, number: u32) -> u32 {
    leave(&ctx, result, || returning(stack, number))
}

#[cfg(not(bpf_target_arch = "aarch64"))]
#[inline(always)]
fn returning(stack: u64, number: u32) -> Option<FutexCall> {
    super::registers_near(stack, |registers| registers.number == number).map(|registers| registers.call())
}

#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
fn returning(_stack: u64, _number: u32) -> Option<FutexCall> {
    None
}

/// Returns the stack pointer.
#[inline(always)]
fn stack_pointer(ctx: &RetProbeContext) -> u64 {
    // SAFETY: the verifier allows reads of the context's registers.
    unsafe {
        #[cfg(bpf_target_arch = "aarch64")]
        return (*ctx.regs).sp;
        #[cfg(not(bpf_target_arch = "aarch64"))]
        (*ctx.regs).rsp
    }
}

macro_rules! calls {
    ($($fentry:ident, $fexit:ident, $kprobe:ident, $kretprobe:ident: $number:ident;)+) => {
        $(
            #[fentry]
            fn $fentry(ctx: FEntryContext) -> u32 {
                let registers = ctx.arg(0);
                entered(ctx, registers, number::$number)
            }

            #[fexit]
            fn $fexit(ctx: FExitContext) -> u32 {
                let (registers, result) = (ctx.arg(0), ctx.arg(1));
                returned(ctx, registers, result, number::$number)
            }

            #[kprobe]
            fn $kprobe(ctx: ProbeContext) -> u32 {
                let registers = ctx.arg(0).unwrap_or(0);
                entered(FEntryContext::new(ctx.as_ptr()), registers, number::$number)
            }

            #[kretprobe]
            fn $kretprobe(ctx: RetProbeContext) -> u32 {
                let (stack, result) = (stack_pointer(&ctx), ctx.ret());
                returned_on(FExitContext::new(ctx.as_ptr()), stack, result, number::$number)
            }
        )+
    };
}

calls! {
    fentry_futex, fexit_futex, kprobe_futex, kretprobe_futex: FUTEX;
    fentry_futex_wait, fexit_futex_wait, kprobe_futex_wait, kretprobe_futex_wait: FUTEX_WAIT;
    fentry_futex_waitv, fexit_futex_waitv, kprobe_futex_waitv, kretprobe_futex_waitv: FUTEX_WAITV;
    fentry_futex_wake, fexit_futex_wake, kprobe_futex_wake, kretprobe_futex_wake: FUTEX_WAKE;
    fentry_futex_requeue, fexit_futex_requeue, kprobe_futex_requeue, kretprobe_futex_requeue: FUTEX_REQUEUE;
}
