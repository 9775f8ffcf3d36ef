//! Waits for kernel locks: `lock:contention_begin(lock, flags)` and `lock:contention_end(lock, ret)`
//! (`include/trace/events/lock.h`, 5.19). A wait may also begin at the entry of a slow
//! function, and end at the return of the one that called it ([`locks`](super::locks)).

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
    filter::{Task, wants_kind, wants_lock},
    guard::{Outcome, Run, guarded_or_nested},
    owner, sampling, stacks,
    waiting::WaitState,
};

#[raw_tracepoint(tracepoint = "contention_begin")]
fn contention_begin(ctx: RawTracePointContext) -> u32 {
    guarded_or_nested(program::CONTENTION_BEGIN, |run| begin(run, &ctx, ctx.arg(0), ctx.arg(1)))
}

/// The current task begins to wait for a lock.
#[inline(always)]
pub(super) fn begin(run: &Run, ctx: &impl StackIdContext, address: u64, flags: u32) -> Outcome {
    let task = Task::current();
    if !task.is_recorded() || !wants_kind(flags) || !wants_lock(address) {
        return Outcome::Filtered;
    }
    // Inside another program, nothing may be added to the map of waiting tasks; nor need it be: an interrupt spins.
    let state = if run.nested { None } else { WaitState::begin(task) };
    // A mutex says begin when it spins, and again when it goes to sleep; a slow function may call another one.
    if state.as_ref().is_some_and(|state| state.waits_for(address)) {
        return Outcome::Filtered;
    }
    let chosen = sampling::chooses(run);
    if !chosen || config::min_wait_ns() > 0 {
        if let Some(state) = state {
            state.push_lock(address, flags as u8, chosen, now_ns());
        }
        return Outcome::Filtered;
    }
    let mut event = event(run, task, code::CONTENTION_BEGIN);
    event.address = address;
    event.detail = flags as u8;
    match state {
        Some(state) => {
            state.push_lock(address, flags as u8, chosen, event.ts_ns);
            owner::name(address, flags as u8, &mut event);
            state.describe(&mut event);
        }
        None if task.tid == 0 || run.nested => {}
        None => {
            run.count_full_state();
            event.flags |= flag::NO_WAIT_STATE;
        }
    }
    stacks::both(run, ctx, &mut event);
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
    if !task.is_recorded() || !wants_lock(address) {
        return Outcome::Filtered;
    }
    let state = if run.nested { None } else { WaitState::of(task.tid) };
    let Some(state) = state else {
        // The end does not say of which kind the lock is; where nothing is known of its begin, it spins.
        let wanted = config::kinds_recorded() & kinds::SPINNING != 0 && config::min_wait_ns() == 0;
        if !wanted {
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
    let begun = state.waits_for(address);
    let all = config::kinds_recorded() == kinds::ALL && !sampling::is_on() && config::min_wait_ns() == 0;
    if !begun && !all && !state.is_deeper() {
        // Its begin was left out, and what the task waits for otherwise goes on.
        return Outcome::Filtered;
    }
    let chosen = if begun { state.is_chosen() } else { all };
    let begin = state.begin_of_wait();
    // A function that takes the lock will say the same once more, and must not be asked whether it is chosen.
    let calls = begun
        && sampling::is_on()
        && config::probes_calls() == 1
        && kind(state.flags()) & kinds::SPINNING == 0;
    if calls {
        state.tell(address);
    }
    let now = now_ns();
    let short = begun && now.wrapping_sub(begin.ts_ns) < config::min_wait_ns();
    if !chosen || short {
        state.pop_lock(address);
        state.end_if_idle(task.tid);
        return Outcome::Filtered;
    }
    if calls && result == 0 && !sampling::Held::by(task, address).remember() {
        run.count_full_state();
    }
    let mut event = event(run, task, code::CONTENTION_END);
    event.address = address;
    event.value = i64::from(result);
    if config::min_wait_ns() > 0 {
        event.detail = state.flags();
        state.describe_whole(begin, &mut event);
        stacks::both(run, ctx, &mut event);
    } else {
        state.describe(&mut event);
    }
    state.name_waker_of_lock(address, &mut event);
    state.pop_lock(address);
    state.end_if_idle(task.tid);
    emit(run, &mut event)
}
