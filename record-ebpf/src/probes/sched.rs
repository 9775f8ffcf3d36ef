//! The scheduler, for tasks that wait: when they sleep, when they are ready, when they run, and who wakes them. These
//! programs emit nothing; they keep the sums that the event at the end of the wait carries.
//!
//! `sched_switch(preempt, prev, next, prev_state)`, `sched_waking(p)` in the waker's context, `sched_wakeup(p)` when
//! the task is in a run queue (`include/trace/events/sched.h`).

use aya_ebpf::{helpers::bpf_probe_read_kernel, macros::raw_tracepoint, programs::RawTracePointContext};
use trace_format::wire::{program, stack};

use crate::{
    config::{self, ABSENT},
    emit::{cpu, now_ns},
    filter::Task,
    guard::{if_free, unguarded},
    stacks::{self, Inline, Side},
    waiting::WaitState,
};

/// `__state` from the wake-up's begin until the task is in a run queue (`include/linux/sched.h`, 4.14).
pub(super) const TASK_WAKING: u32 = 0x200;

/// A 32-bit field of a `task_struct`.
#[inline(always)]
pub(crate) fn field(task: u64, offset: u32) -> Option<u32> {
    if offset == ABSENT {
        return None;
    }
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel((task + u64::from(offset)) as *const u32) }.ok()
}

#[raw_tracepoint(tracepoint = "sched_switch")]
fn sched_switch(ctx: RawTracePointContext) -> u32 {
    unguarded(program::SCHED_SWITCH, || switch(&ctx))
}

#[inline(always)]
fn switch(ctx: &RawTracePointContext) {
    let (preempted, previous, next): (u64, u64, u64) = (ctx.arg(0), ctx.arg(1), ctx.arg(2));
    let now = now_ns();
    // The tracepoint comes before the switch: the current task is still the previous one.
    if let Some(state) = WaitState::of(Task::current().tid) {
        let doing = field(previous, config::task_state_offset());
        state.switched_out(now, preempted & 1 == 1 || doing == Some(0), doing == Some(TASK_WAKING));
    }
    if let Some(tid) = field(next, config::task_pid_offset())
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
    let Some(tid) = field(ctx.arg(0), config::task_pid_offset()) else { return };
    let Some(state) = WaitState::of(tid) else { return };
    let waker = Task::current();
    // The idle task wakes nobody: an interrupt did, while it ran.
    if waker.tid == 0 || waker.tid == tid {
        return;
    }
    // Adding to the stack map takes locks, so that needs the guard.
    let stacks = if_free(program::SCHED_WAKING, |run| {
        let place = (cpu(), 0);
        let kernel = stacks::id(run, ctx, place, Side::Kernel, Inline::Never);
        (kernel, stacks::id(run, ctx, place, Side::User, Inline::Never))
    });
    let (kernel, user) = stacks.unwrap_or((stack::LOST, stack::LOST));
    state.woken_by(waker, kernel, user);
}

#[raw_tracepoint(tracepoint = "sched_wakeup")]
fn sched_wakeup(ctx: RawTracePointContext) -> u32 {
    unguarded(program::SCHED_WAKEUP, || {
        if let Some(tid) = field(ctx.arg(0), config::task_pid_offset())
            && let Some(state) = WaitState::of(tid)
        {
            state.ready(now_ns());
        }
    })
}
