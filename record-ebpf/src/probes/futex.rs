//! Futex calls: entry and exit of `futex(2)`, and of the futex2 calls where they exist (`futex_waitv` 5.16, the others
//! 6.7). A wait is an event at entry and one at exit, a wake one at exit; an exit whose entry was not seen is nothing.
//!
//! Arguments stand in the tracepoint's context at 16 plus 8 for each, the return value at 16
//! (`events/syscalls/sys_enter_futex/format`).

use aya_ebpf::{helpers::bpf_probe_read_user, macros::tracepoint, programs::TracePointContext};
use trace_format::wire::{code, flag, futex2, program};

use crate::{
    config,
    emit::{emit, event, now_ns},
    filter::{Task, wants_lock},
    guard::{Outcome, Run, guarded},
    stacks,
    waiting::{FutexCall, WaitState},
};

/// Offset of the first argument, and of the return value.
const FIRST: usize = 16;

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
            Some(state) => state.enter_futex(call, 0),
            None => run.count_full_state(),
        }
        return Outcome::Filtered;
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

#[tracepoint]
fn exit_futex(ctx: TracePointContext) -> u32 {
    guarded(program::FUTEX_EXIT, |run| try_exit(run, &ctx))
}

#[inline(always)]
fn try_exit(run: &Run, ctx: &TracePointContext) -> Outcome {
    let task = Task::current();
    let Some(state) = WaitState::of(task.tid) else { return Outcome::Filtered };
    let Some(call) = state.leave_futex() else { return Outcome::Filtered };
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
