//! Off-CPU time of the recorded tasks, whatever they wait for: one event at each return to a CPU. Arguments of the tracepoints
//! are in [`sched`](super::sched), whose programs keep sums for waits; these here are attached only where off-CPU time is
//! recorded.
//!
//! A switch has two programs, one for each of its tasks: what is lost of the one is not lost of the other. The current
//! task of both is the one that leaves.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};
use trace_format::wire::{code, place, program, stack};

use super::sched::{TASK_WAKING, field};
use crate::{
    config,
    emit::{cpu, emit, event, next_seq, now_ns},
    filter::Task,
    guard::{Outcome, Run, guarded_or_nested_of, if_free_or_nested, unguarded},
    off_cpu::{OffCpu, Stacks},
    stacks::{self, Inline, Side},
};

/// `__state` of a task that never runs again (`include/linux/sched.h`, 4.14).
const TASK_DEAD: u32 = 0x80;

/// Both stacks of the current task.
#[inline(always)]
fn take_stacks(run: &Run, ctx: &RawTracePointContext, task: Task, inline: Inline) -> Stacks {
    let at = (cpu(), next_seq(run));
    let kernel = stacks::id(run, ctx, at, Side::Kernel, inline);
    // Not every kernel knows that the idle task has none.
    let user = if task.tid == 0 { stack::ABSENT } else { stacks::id(run, ctx, at, Side::User, inline) };
    Stacks { kernel, user, place: place::of(at.0, at.1) }
}

#[raw_tracepoint(tracepoint = "sched_switch")]
fn off_cpu_out(ctx: RawTracePointContext) -> u32 {
    // Before the stacks are walked, which takes longer than all else.
    let now = now_ns();
    let task = Task::current();
    let (preempted, previous): (u64, u64) = (ctx.arg(0), ctx.arg(1));
    let doing = field(previous, config::task_state_offset()).unwrap_or(0);
    let is_dead = doing & TASK_DEAD != 0;
    // The idle task is never off for a reason of its own.
    let concerned =
        task.tid != 0 && if is_dead { OffCpu::of(task.tid).is_some() } else { task.is_recorded() };
    if !concerned {
        return unguarded(program::OFF_CPU_OUT, || {});
    }
    let state = if preempted & 1 == 1 { 0 } else { doing };
    guarded_or_nested_of(!is_dead, program::OFF_CPU_OUT, |run| {
        if is_dead {
            OffCpu::forget(run, task.tid);
            return Outcome::Filtered;
        }
        let Some(off) = OffCpu::of_or_new(run, task.tid) else { return Outcome::NoPlace };
        let stacks = take_stacks(run, &ctx, task, Inline::OfTask);
        off.leave(task, state, state == TASK_WAKING, stacks, now);
        Outcome::Filtered
    })
}

#[raw_tracepoint(tracepoint = "sched_switch")]
fn off_cpu_in(ctx: RawTracePointContext) -> u32 {
    let next: u64 = ctx.arg(2);
    let tid = field(next, config::task_pid_offset()).unwrap_or(0);
    // Before the guard, so that a return that is lost does not lengthen the next time.
    let left = if tid == 0 { None } else { OffCpu::of(tid).and_then(OffCpu::come_back) };
    let Some(left) = left else { return unguarded(program::OFF_CPU_IN, || {}) };
    if left.off_for(now_ns()) < config::min_block_ns() || left.was_held_by(config::own_process()) {
        return unguarded(program::OFF_CPU_IN, || {});
    }
    guarded_or_nested_of(true, program::OFF_CPU_IN, |run| {
        let mut event = event(run, left.task(tid), code::OFF_CPU);
        left.describe(&mut event);
        if event.peer_kernel_stack == stack::LOST || event.peer_user_stack == stack::LOST {
            run.count_lost_stack();
        }
        emit(run, &mut event)
    })
}

#[raw_tracepoint(tracepoint = "sched_waking")]
fn off_cpu_waking(ctx: RawTracePointContext) -> u32 {
    unguarded(program::OFF_CPU_WAKING, || {
        let Some(tid) = field(ctx.arg(0), config::task_pid_offset()) else { return };
        let Some(off) = OffCpu::of(tid) else { return };
        let waker = Task::current();
        // It was about to sleep, and does not.
        if waker.tid == tid {
            return;
        }
        let stacks =
            if_free_or_nested(program::OFF_CPU_WAKING, |run| take_stacks(run, &ctx, waker, Inline::OfPeer));
        off.woken_by(waker, stacks.unwrap_or(Stacks::LOST));
    })
}

#[raw_tracepoint(tracepoint = "sched_wakeup")]
fn off_cpu_wakeup(ctx: RawTracePointContext) -> u32 {
    unguarded(program::OFF_CPU_WAKEUP, || {
        if let Some(tid) = field(ctx.arg(0), config::task_pid_offset())
            && let Some(off) = OffCpu::of(tid)
        {
            off.ready(now_ns());
        }
    })
}
