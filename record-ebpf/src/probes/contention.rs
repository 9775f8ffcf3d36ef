//! Waits for kernel locks: `lock:contention_begin(lock, flags)` and `lock:contention_end(lock, ret)`
//! (`include/trace/events/lock.h`, 5.19).

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};
use trace_format::wire::{code, flag, program};

use crate::{
    emit::{emit, event},
    filter::Task,
    guard::{Outcome, Run, guarded_or_nested},
    stacks,
    waiting::WaitState,
};

#[raw_tracepoint(tracepoint = "contention_begin")]
fn contention_begin(ctx: RawTracePointContext) -> u32 {
    guarded_or_nested(program::CONTENTION_BEGIN, |run| begin(run, &ctx))
}

#[inline(always)]
fn begin(run: &Run, ctx: &RawTracePointContext) -> Outcome {
    let task = Task::current();
    if !task.is_recorded() {
        return Outcome::Filtered;
    }
    let (address, flags): (u64, u32) = (ctx.arg(0), ctx.arg(1));
    let mut event = event(run, task, code::CONTENTION_BEGIN);
    event.address = address;
    event.detail = flags as u8;
    // A mutex says begin when it spins, and again when it goes to sleep: the stack is known already.
    let mut known = false;
    // Inside another program, nothing may be added to the map of waiting tasks; nor need it be: an interrupt spins.
    let state = if run.nested { None } else { WaitState::begin(task) };
    match state {
        Some(state) => {
            known = state.push_lock(address);
            state.describe(&mut event);
        }
        None if task.tid == 0 || run.nested => {}
        None => {
            run.count_full_state();
            event.flags |= flag::NO_WAIT_STATE;
        }
    }
    if !known {
        stacks::both(run, ctx, &mut event);
    }
    emit(run, &mut event)
}

#[raw_tracepoint(tracepoint = "contention_end")]
fn contention_end(ctx: RawTracePointContext) -> u32 {
    guarded_or_nested(program::CONTENTION_END, |run| end(run, &ctx))
}

#[inline(always)]
fn end(run: &Run, ctx: &RawTracePointContext) -> Outcome {
    let task = Task::current();
    if !task.is_recorded() {
        return Outcome::Filtered;
    }
    let (address, result): (u64, i32) = (ctx.arg(0), ctx.arg(1));
    let mut event = event(run, task, code::CONTENTION_END);
    event.address = address;
    event.value = i64::from(result);
    let state = if run.nested { None } else { WaitState::of(task.tid) };
    match state {
        Some(state) => {
            state.describe(&mut event);
            state.name_waker_of_lock(address, &mut event);
            state.pop_lock(address);
            state.end_if_idle(task.tid);
        }
        None if task.tid == 0 || run.nested => {}
        None => event.flags |= flag::NO_WAIT_STATE,
    }
    emit(run, &mut event)
}
