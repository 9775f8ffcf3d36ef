//! Futex calls: entry and exit of `futex(2)`, and of the futex2 calls where they exist (`futex_waitv` 5.16, the others
//! 6.7). A wait is an event at entry and one at exit, a wake one at exit, or at entry where nothing can remember it. The
//! exit of a wait whose entry was not seen carries [`flag::NO_WAIT_STATE`].
//!
//! Arguments stand in the tracepoint's context at 16 plus 8 for each, the return value at 16
//! (`events/syscalls/sys_enter_futex/format`).

#[cfg(not(bpf_target_arch = "aarch64"))]
use aya_ebpf::{EbpfContext as _, helpers::bpf_probe_read_kernel};
use aya_ebpf::{helpers::bpf_probe_read_user, macros::tracepoint, programs::TracePointContext};
use trace_format::wire::{code, flag, futex2, program};

use crate::{
    config,
    emit::{emit, event, now_ns},
    filter::{Task, wants_lock},
    guard::{Outcome, Run, guarded, unguarded},
    stacks,
    waiting::{FutexCall, WaitState},
};

/// Offset of the first argument, and of the return value.
const FIRST: usize = 16;

/// The numbers of the calls that wait (`arch/x86/entry/syscalls/syscall_64.tbl`).
#[cfg(not(bpf_target_arch = "aarch64"))]
const FUTEX: u64 = 202;
#[cfg(not(bpf_target_arch = "aarch64"))]
const FUTEX_WAITV: u64 = 449;
#[cfg(not(bpf_target_arch = "aarch64"))]
const FUTEX_WAIT: u64 = 455;

/// `FUTEX_CMD_MASK`: what is left without the flags for private words and the clock.
const COMMAND_MASK: u32 = !(128 | 256);

/// `FUTEX_WAIT`, `LOCK_PI`, `WAIT_BITSET`, `WAIT_REQUEUE_PI`, `LOCK_PI2`, and the waits of futex2.
#[inline(always)]
fn is_wait(command: u32) -> bool {
    matches!(command, 0 | 6 | 9 | 11 | 13)
        || command == futex2::WAIT as u32
        || command == futex2::WAITV as u32
}

/// `FUTEX_WAKE`, `REQUEUE`, `CMP_REQUEUE`, `WAKE_OP`, `UNLOCK_PI`, `WAKE_BITSET`, `CMP_REQUEUE_PI`, and those of futex2.
#[inline(always)]
fn is_wake(command: u32) -> bool {
    matches!(command, 1 | 3 | 4 | 5 | 7 | 10 | 12)
        || command == futex2::WAKE as u32
        || command == futex2::REQUEUE as u32
}

#[inline(always)]
fn argument(ctx: &TracePointContext, at: usize) -> u64 {
    // SAFETY: the kernel's record holds six arguments; a failed read is told from an argument by the caller's check.
    unsafe { ctx.read_at(FIRST + 8 * at) }.unwrap_or(0)
}

/// The address in the first element of an array of `struct futex_waitv` (`include/uapi/linux/futex.h`, 5.16).
#[inline(always)]
fn first_waiter(waiters: u64) -> u64 {
    const ADDRESS: u64 = 8;
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user((waiters + ADDRESS) as *const u64) }.unwrap_or(0)
}

#[tracepoint]
fn enter_futex(ctx: TracePointContext) -> u32 {
    let command = argument(&ctx, 1) as u32 & COMMAND_MASK;
    enter(&ctx, || FutexCall { address: argument(&ctx, 0), extra: 0, command })
}

#[tracepoint]
fn enter_futex_wait(ctx: TracePointContext) -> u32 {
    enter(&ctx, || FutexCall { address: argument(&ctx, 0), extra: 0, command: u32::from(futex2::WAIT) })
}

#[tracepoint]
fn enter_futex_waitv(ctx: TracePointContext) -> u32 {
    enter(&ctx, || FutexCall {
        address: first_waiter(argument(&ctx, 0)),
        extra: argument(&ctx, 1),
        command: u32::from(futex2::WAITV),
    })
}

#[tracepoint]
fn enter_futex_wake(ctx: TracePointContext) -> u32 {
    enter(&ctx, || FutexCall { address: argument(&ctx, 0), extra: 0, command: u32::from(futex2::WAKE) })
}

#[tracepoint]
fn enter_futex_requeue(ctx: TracePointContext) -> u32 {
    enter(&ctx, || FutexCall {
        address: first_waiter(argument(&ctx, 0)),
        extra: 0,
        command: u32::from(futex2::REQUEUE),
    })
}

#[inline(always)]
fn enter(ctx: &TracePointContext, call: impl FnOnce() -> FutexCall) -> u32 {
    guarded(program::FUTEX_ENTER, |run| try_enter(run, ctx, &call()))
}

#[inline(always)]
fn try_enter(run: &Run, ctx: &TracePointContext, call: &FutexCall) -> Outcome {
    let task = Task::current();
    let waits = is_wait(call.command);
    let is_lock = (waits || is_wake(call.command)) && call.address != 0;
    if !is_lock || !task.is_recorded() || !wants_lock(call.address) {
        return Outcome::Filtered;
    }
    let state = WaitState::begin(task);
    if !waits {
        // A wake is one event at its exit, which the state remembers.
        match state {
            Some(state) => {
                state.enter_futex(call, 0);
                return Outcome::Filtered;
            }
            None => return wake_without_state(run, ctx, task, call),
        }
    }
    if config::min_wait_ns() > 0 {
        // What has no place is not known to be short or long: it is lost.
        let Some(state) = state else { return Outcome::NoPlace };
        state.enter_futex(call, now_ns());
        return Outcome::Filtered;
    }
    let mut event = event(run, task, code::FUTEX_WAIT);
    event.address = call.address;
    event.extra = call.extra;
    event.detail = call.command as u8;
    match state {
        Some(state) => {
            state.enter_futex(call, event.ts_ns);
            state.describe(&mut event);
        }
        None => {
            run.count_full_state();
            event.flags |= flag::NO_WAIT_STATE;
        }
    }
    stacks::both(run, ctx, &mut event);
    emit(run, &mut event)
}

/// A wake that found no place to be remembered in until its exit is told now, without its result.
#[inline(always)]
fn wake_without_state(run: &Run, ctx: &TracePointContext, task: Task, call: &FutexCall) -> Outcome {
    run.count_full_state();
    let mut event = event(run, task, code::FUTEX_WAKE);
    event.address = call.address;
    event.extra = call.extra;
    event.detail = call.command as u8;
    event.flags |= flag::NO_WAIT_STATE;
    stacks::both(run, ctx, &mut event);
    emit(run, &mut event)
}

#[tracepoint]
fn exit_futex(ctx: TracePointContext) -> u32 {
    let task = Task::current();
    // The call is taken from the state before the guard: a call whose entry the guard kept out is not counted twice, and
    // one whose exit it keeps out leaves nothing behind that the next exit would tell. Looking up takes no lock.
    let state = WaitState::of(task.tid);
    match state {
        Some(state) => match state.leave_futex() {
            Some(call) => guarded(program::FUTEX_EXIT, |run| exit(run, &ctx, task, state, &call)),
            None => unguarded(program::FUTEX_EXIT, || {}),
        },
        None if !task.is_recorded() => unguarded(program::FUTEX_EXIT, || {}),
        // A wait that is recorded whole, and found no place, was counted at its entry.
        None if config::min_wait_ns() > 0 => unguarded(program::FUTEX_EXIT, || {}),
        None => match returning_wait(&ctx).filter(|call| wants_lock(call.address)) {
            Some(call) => guarded(program::FUTEX_EXIT, |run| exit_without_state(run, &ctx, task, &call)),
            None => unguarded(program::FUTEX_EXIT, || {}),
        },
    }
}

#[inline(always)]
fn exit(run: &Run, ctx: &TracePointContext, task: Task, state: &WaitState, call: &FutexCall) -> Outcome {
    let waits = is_wait(call.command);
    if waits && now_ns().wrapping_sub(state.begin_of_futex().ts_ns) < config::min_wait_ns() {
        state.end_if_idle(task.tid);
        return Outcome::Filtered;
    }
    let mut event = event(run, task, if waits { code::FUTEX_WAIT_DONE } else { code::FUTEX_WAKE });
    event.address = call.address;
    event.extra = call.extra;
    event.detail = call.command as u8;
    event.value = argument(ctx, 0) as i64;
    if waits && config::min_wait_ns() > 0 {
        event.extra = 0;
        state.describe_whole(state.begin_of_futex(), &mut event);
        state.name_waker_of_futex(&mut event);
        stacks::both(run, ctx, &mut event);
    } else if waits {
        state.describe(&mut event);
        state.name_waker_of_futex(&mut event);
    } else {
        stacks::both(run, ctx, &mut event);
    }
    state.end_if_idle(task.tid);
    emit(run, &mut event)
}

/// The end of a wait that found no place in the map of waiting tasks, or whose begin was not seen: the host knows.
#[inline(always)]
fn exit_without_state(run: &Run, ctx: &TracePointContext, task: Task, call: &FutexCall) -> Outcome {
    let mut event = event(run, task, code::FUTEX_WAIT_DONE);
    event.address = call.address;
    event.extra = call.extra;
    event.detail = call.command as u8;
    event.value = argument(ctx, 0) as i64;
    event.flags |= flag::NO_WAIT_STATE;
    emit(run, &mut event)
}

/// The wait call that returns, by the registers of its entry, which the task's kernel stack still holds.
#[cfg(not(bpf_target_arch = "aarch64"))]
#[inline(always)]
fn returning_wait(ctx: &TracePointContext) -> Option<FutexCall> {
    let (first, second, number) = registers(ctx)?;
    let call = match number {
        FUTEX => FutexCall { address: first, extra: 0, command: second as u32 & COMMAND_MASK },
        FUTEX_WAIT => FutexCall { address: first, extra: 0, command: u32::from(futex2::WAIT) },
        FUTEX_WAITV => {
            FutexCall { address: first_waiter(first), extra: second, command: u32::from(futex2::WAITV) }
        }
        _ => return None,
    };
    (is_wait(call.command) && call.address != 0).then_some(call)
}

/// The first two arguments of the call that returns, and its number. The context begins with the address of registers, which
/// a program may only read in this way (`perf_call_bpf_exit` in `kernel/trace/trace_syscalls.c`). Some kernels put the task's
/// own there, others those of the tracepoint, whose stack pointer leads to the task's: they end its kernel stack. What
/// is found must have the number and the result of this call.
#[cfg(not(bpf_target_arch = "aarch64"))]
#[inline(always)]
fn registers(ctx: &TracePointContext) -> Option<(u64, u64, u64)> {
    /// Where `sp` is in `struct pt_regs`, and how large it is (`arch/x86/include/asm/ptrace.h`).
    const STACK_POINTER: u64 = 152;
    const SIZE: u64 = 168;
    /// `THREAD_SIZE`, and `TOP_OF_KERNEL_STACK_PADDING` with FRED (6.9).
    const STACK: u64 = 16 << 10;
    const PADDING: u64 = 16;
    // SAFETY: the helper checks the addresses.
    let (regs, stack_pointer) = unsafe {
        let regs: u64 = bpf_probe_read_kernel(ctx.as_ptr().cast()).ok()?;
        (regs, bpf_probe_read_kernel((regs + STACK_POINTER) as *const u64).ok()?)
    };
    let top = (stack_pointer | (STACK - 1)) + 1;
    registers_at(ctx, regs)
        .or_else(|| registers_at(ctx, top - SIZE))
        .or_else(|| registers_at(ctx, top - SIZE - PADDING))
}

#[cfg(not(bpf_target_arch = "aarch64"))]
#[inline(always)]
fn registers_at(ctx: &TracePointContext, address: u64) -> Option<(u64, u64, u64)> {
    /// `ax`, `cx`, `dx`, `si`, `di` and `orig_ax` of `struct pt_regs`, and where they begin in it.
    type Registers = [u64; 6];
    const BEGIN: u64 = 80;
    // SAFETY: the helper checks the address.
    let registers = unsafe { bpf_probe_read_kernel((address + BEGIN) as *const Registers) }.ok()?;
    let [result, _, _, second, first, number] = registers;
    // SAFETY: the number of the call is a field of the kernel's record.
    let this = unsafe { ctx.read_at::<i32>(8) }.ok()?;
    (number == this as u64 && result == argument(ctx, 0)).then_some((first, second, number))
}

#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
fn returning_wait(_ctx: &TracePointContext) -> Option<FutexCall> {
    None
}
