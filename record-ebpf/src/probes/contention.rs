//! Waits for kernel locks, from `lock:contention_begin(lock, flags)` and `lock:contention_end(lock, ret)`
//! (`include/trace/events/lock.h`, 5.19). Waits can also begin at the entry of a slow-path function and end
//! at the return of its caller ([`locks`](super::locks)).

use aya_ebpf::{
    macros::raw_tracepoint,
    programs::{RawTracePointContext, tracing::StackIdContext},
};
use trace_format::{
    kernel_functions::{kind, kinds},
    wire::{code, flag, program},
};

use crate::{
    config,
    emit::{emit, event, now_ns},
    event_stacks,
    filter::{Task, selects_kind, selects_lock},
    guard::{Outcome, Run, guarded_or_nested},
    owner, sampling,
    user_stack::Walk,
    waiting::WaitState,
};

#[raw_tracepoint(tracepoint = "contention_begin")]
fn contention_begin(ctx: RawTracePointContext) -> u32 {
    guarded_or_nested(program::CONTENTION_BEGIN, |run| begin(run, &ctx, ctx.arg(0), ctx.arg(1)))
}

/// Records that the current task begins to wait for a lock.
#[inline(always)]
pub(super) fn begin(run: &Run, ctx: &impl StackIdContext, address: u64, flags: u32) -> Outcome {
    let task = Task::current();
    if !task.is_recorded() || !selects_kind(flags) || !selects_lock(address) {
        return Outcome::Filtered;
    }
    // A nested program must not insert into the map of waiting tasks. It need not either, because an
    // interrupt spins.
    let state = if run.nested { None } else { WaitState::begin(task) };
    // A mutex reports a begin when it spins and another when it sleeps; a slow path may call another one.
    if state.as_ref().is_some_and(|state| state.waits_for(address)) {
        return Outcome::Filtered;
    }
    let sampled = sampling::samples();
    if !sampled || config::min_wait_ns() > 0 {
        if let Some(state) = state {
            state.push_lock(address, flags as u8, sampled, now_ns());
        }
        return Outcome::Filtered;
    }
    let mut event = event(run, task, code::CONTENTION_BEGIN);
    event.address = address;
    event.detail = flags as u8;
    match state {
        Some(state) => {
            state.push_lock(address, flags as u8, sampled, event.ts_ns);
            owner::describe(address, flags as u8, &mut event);
            state.describe(&mut event);
        }
        None if task.tid == 0 || run.nested => {}
        None => {
            run.count_full_state();
            event.flags |= flag::NO_WAIT_STATE;
        }
    }
    event_stacks::both(run, ctx, Walk::Unwound, &mut event);
    emit(run, &mut event)
}

#[raw_tracepoint(tracepoint = "contention_end")]
fn contention_end(ctx: RawTracePointContext) -> u32 {
    guarded_or_nested(program::CONTENTION_END, |run| end(run, &ctx))
}

#[inline(always)]
fn end(run: &Run, ctx: &RawTracePointContext) -> Outcome {
    let task = Task::current();
    let (address, result): (u64, i32) = (ctx.arg(0), ctx.arg(1));
    if !task.is_recorded() || !selects_lock(address) {
        return Outcome::Filtered;
    }
    let state = if run.nested { None } else { WaitState::of(task.tid) };
    let Some(state) = state else {
        // The tracepoint does not report the kind of the lock. Without a stored begin, it is a spinning lock.
        let selected = config::selected_kinds() & kinds::SPINNING != 0 && config::min_wait_ns() == 0;
        if !selected {
            return Outcome::Filtered;
        }
        let mut event = event(run, task, code::CONTENTION_END);
        event.address = address;
        event.value = i64::from(result);
        if task.tid != 0 && !run.nested {
            event.flags |= flag::NO_WAIT_STATE;
        }
        return emit(run, &mut event);
    };
    let has_begin = state.waits_for(address);
    let all = config::selected_kinds() == kinds::ALL && !sampling::is_on() && config::min_wait_ns() == 0;
    if !has_begin && !all && !state.is_deeper() {
        // The begin was filtered, and the task's other waits continue.
        return Outcome::Filtered;
    }
    let sampled = if has_begin { state.is_sampled() } else { all };
    let begin = state.begin_of_wait();
    // The acquiring function will report the same acquisition, which must not be sampled again.
    let calls = has_begin
        && sampling::is_on()
        && config::probes_calls() == 1
        && kind(state.flags()) & kinds::SPINNING == 0;
    if calls {
        state.set_reported(address);
    }
    let now = now_ns();
    let short = has_begin && now.wrapping_sub(begin.ts_ns) < config::min_wait_ns();
    if !sampled || short {
        state.pop_lock(address);
        state.end_if_idle(task.tid);
        return Outcome::Filtered;
    }
    if calls && result == 0 && !sampling::Held::by(task, address).add() {
        run.count_full_state();
    }
    let mut event = event(run, task, code::CONTENTION_END);
    event.address = address;
    event.value = i64::from(result);
    if config::min_wait_ns() > 0 {
        event.detail = state.flags();
        state.describe_whole(begin, &mut event);
        event_stacks::both(run, ctx, Walk::Unwound, &mut event);
    } else {
        state.describe(&mut event);
    }
    state.describe_waker_of_lock(address, &mut event);
    state.pop_lock(address);
    state.end_if_idle(task.tid);
    emit(run, &mut event)
}
