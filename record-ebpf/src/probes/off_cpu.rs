//! Off-CPU time of the recorded tasks for any reason, with an event at each return to a CPU. Attached only if
//! off-CPU time is recorded. [`sched`](super::sched) documents the arguments of the tracepoints.
//!
//! A switch has two programs, one for each of its tasks, so that losses are counted separately. The current
//! task of both is the one that leaves the CPU.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};
use trace_format::wire::{code, program, stack, stack_key};

use super::sched::TASK_WAKING;
use crate::{
    config::{self, threads},
    emit::{cpu, emit, event, next_seq, now_ns},
    filter::Task,
    guard::{Outcome, Run, guarded_or_nested_of, if_free_or_nested, unguarded},
    memory::task_field,
    off_cpu::{Departure, OffCpu, Stacks},
    stacks::{self, Inline, Side},
    syscall,
    user_stack::{self, Walk},
};

/// `__state` of a task that never runs again (`include/linux/sched.h`, 4.14).
pub(super) const TASK_DEAD: u32 = 0x80;

/// `PF_KTHREAD` in the flags of a kernel thread (`include/linux/sched.h`).
const PF_KTHREAD: u32 = 0x0020_0000;

/// Whether off-CPU time of threads like the one at `task` is recorded.
#[inline(always)]
pub(super) fn selects_thread(task: u64) -> bool {
    let selected = config::selected_threads();
    if selected != threads::USER && selected != threads::KERNEL {
        return true;
    }
    let flags = task_field(task, config::task_flags_offset()).unwrap_or(0);
    (flags & PF_KTHREAD != 0) == (selected == threads::KERNEL)
}

/// Takes both stacks of the current task.
#[inline(always)]
fn take_stacks(run: &Run, ctx: &RawTracePointContext, task: Task, inline: Inline) -> Stacks {
    let key = (cpu(), next_seq(run));
    let kernel = stacks::id(run, ctx, key, Side::Kernel, inline);
    let user = user_stack::take(run, ctx, key, task, Walk::Unwound, inline);
    Stacks { kernel, user, key: stack_key::pack(key.0, key.1) }
}

#[raw_tracepoint(tracepoint = "sched_switch")]
fn off_cpu_out(ctx: RawTracePointContext) -> u32 {
    // Read the clock before the stack walk, which takes longest.
    let now = now_ns();
    let task = Task::current();
    let (preempted, previous, next): (u64, u64, u64) = (ctx.arg(0), ctx.arg(1), ctx.arg(2));
    let task_state = task_field(previous, config::task_state_offset()).unwrap_or(0);
    let is_dead = task_state & TASK_DEAD != 0;
    // The off-CPU time of idle tasks has no meaning.
    let is_recorded = task.tid != 0
        && if is_dead {
            OffCpu::of(task.tid).is_some()
        } else {
            task.is_recorded() && selects_thread(previous)
        };
    if !is_recorded {
        return unguarded(program::OFF_CPU_OUT, || {});
    }
    let state = if preempted & 1 == 1 { 0 } else { task_state };
    guarded_or_nested_of(!is_dead, program::OFF_CPU_OUT, |run| {
        if is_dead {
            OffCpu::forget(run, task.tid);
            return Outcome::Filtered;
        }
        let Some(off) = OffCpu::of_or_new(task.tid) else { return Outcome::NoPlace };
        let stacks = take_stacks(run, &ctx, task, Inline::OfTask);
        let departure = Departure { state, syscall: syscall::of_current(), next };
        off.leave(task, departure, state == TASK_WAKING, stacks, now);
        Outcome::Filtered
    })
}

#[raw_tracepoint(tracepoint = "sched_switch")]
fn off_cpu_in(ctx: RawTracePointContext) -> u32 {
    let next: u64 = ctx.arg(2);
    let tid = task_field(next, config::task_pid_offset()).unwrap_or(0);
    // Update the state before taking the guard, so that a lost return does not lengthen the next off-CPU
    // time.
    let left = if tid == 0 { None } else { OffCpu::of(tid).and_then(OffCpu::enter) };
    let Some(left) = left else { return unguarded(program::OFF_CPU_IN, || {}) };
    let off_ns = left.duration_ns(now_ns());
    let is_selected = off_ns >= config::min_block_ns() && off_ns <= config::max_block_ns();
    if !is_selected || left.was_stopped_by(config::own_process()) {
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
        let Some(tid) = task_field(ctx.arg(0), config::task_pid_offset()) else { return };
        let Some(off) = OffCpu::of(tid) else { return };
        let waker = Task::current();
        // The task was about to sleep, but continues.
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
        if let Some(tid) = task_field(ctx.arg(0), config::task_pid_offset())
            && let Some(off) = OffCpu::of(tid)
        {
            off.ready(now_ns());
        }
    })
}
