//! Scheduling of waiting tasks: sleeping, becoming runnable, running, and wake-ups. These programs emit no
//! events; they update the sums that the event at the end of a wait reports.
//!
//! The tracepoints are `sched_switch(preempt, prev, next, prev_state)`, `sched_waking(p)` in the waker's
//! context, and `sched_wakeup(p)` when the task is in a run queue (`include/trace/events/sched.h`).

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};
use trace_format::wire::{program, stack};

use crate::{
    config,
    emit::{cpu, now_ns},
    filter::Task,
    guard::{if_free, unguarded},
    memory::task_field,
    stacks::{self, Inline, Side},
    waiting::WaitState,
};

/// `__state` from the start of a wake-up until the task is in a run queue (`include/linux/sched.h`, 4.14).
pub(super) const TASK_WAKING: u32 = 0x200;

#[raw_tracepoint(tracepoint = "sched_switch")]
fn sched_switch(ctx: RawTracePointContext) -> u32 {
    unguarded(program::SCHED_SWITCH, || switch(&ctx))
}

#[inline(always)]
fn switch(ctx: &RawTracePointContext) {
    let (preempted, previous, next): (u64, u64, u64) = (ctx.arg(0), ctx.arg(1), ctx.arg(2));
    let now = now_ns();
    // The tracepoint precedes the switch: the current task is still the previous one.
    if let Some(state) = WaitState::of(Task::current().tid) {
        let task_state = task_field(previous, config::task_state_offset());
        let ready = preempted & 1 == 1 || task_state == Some(0);
        state.switched_out(now, ready, task_state == Some(TASK_WAKING));
    }
    if let Some(tid) = task_field(next, config::task_pid_offset())
        && let Some(state) = WaitState::of(tid)
    {
        state.switched_in(now);
    }
}

#[raw_tracepoint(tracepoint = "sched_waking")]
fn sched_waking(ctx: RawTracePointContext) -> u32 {
    unguarded(program::SCHED_WAKING, || waking(&ctx))
}

#[inline(always)]
fn waking(ctx: &RawTracePointContext) {
    let Some(tid) = task_field(ctx.arg(0), config::task_pid_offset()) else { return };
    let Some(state) = WaitState::of(tid) else { return };
    let waker = Task::current();
    // An idle task wakes no task: the wake-up came from an interrupt.
    if waker.tid == 0 || waker.tid == tid {
        return;
    }
    // Inserting into the stack map takes locks and needs the guard.
    let stacks = if_free(program::SCHED_WAKING, |run| {
        let key = (cpu(), 0);
        let kernel = stacks::id(run, ctx, key, Side::Kernel, Inline::Never);
        (kernel, stacks::id(run, ctx, key, Side::User, Inline::Never))
    });
    let (kernel, user) = stacks.unwrap_or((stack::LOST, stack::LOST));
    state.woken_by(waker, kernel, user);
}

#[raw_tracepoint(tracepoint = "sched_wakeup")]
fn sched_wakeup(ctx: RawTracePointContext) -> u32 {
    unguarded(program::SCHED_WAKEUP, || {
        if let Some(tid) = task_field(ctx.arg(0), config::task_pid_offset())
            && let Some(state) = WaitState::of(tid)
        {
            state.ready(now_ns());
        }
    })
}
