//! Off-CPU time of the recorded tasks without stacks and wakers: enough to say what the holder of a lock did.
//! Attached only if that is recorded. [`sched`](super::sched) documents the arguments of the tracepoint.
//!
//! One program for both tasks of a switch, because every switch of a recorded program pays for it. The
//! scheduler calls it with interrupts disabled, so that one reading of the clock does for both.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};
use trace_format::wire::{code, program};

use super::off_cpu::{TASK_DEAD, selects_thread};
use crate::{
    config,
    emit::{emit, event_at, now_ns},
    filter::Task,
    guard::{Outcome, guarded_or_nested_of, is_active, unguarded},
    memory::task_field,
    off_cpu::{Departure, OffCpu, Stacks},
    syscall,
};

/// A departure that needs the guard, because it changes which tasks the map has. All fields are set in any
/// case, so that the verifier finds none unset.
#[derive(Clone, Copy)]
struct Change {
    /// The task left for the first time.
    is_first: bool,
    /// The task never runs again.
    is_last: bool,
    departure: Departure,
}

impl Change {
    const NONE: Self =
        Self { is_first: false, is_last: false, departure: Departure { state: 0, syscall: 0, next: 0 } };
}

/// Notes that the current task leaves its CPU, if it left one before.
#[inline(always)]
fn leave(task: Task, (previous, next): (u64, u64), preempted: bool, now_ns: u64) -> Change {
    if task.tid == 0 {
        return Change::NONE;
    }
    let known = OffCpu::of(task.tid);
    // A known task was recorded, and has the name that it had then unless tasks are selected by name.
    let is_recorded =
        (known.is_some() && config::comms() == 0) || task.is_recorded() && selects_thread(previous);
    if !is_recorded {
        return Change::NONE;
    }
    let task_state = task_field(previous, config::task_state_offset()).unwrap_or(0);
    let state = if preempted { 0 } else { task_state };
    if task_state & TASK_DEAD != 0 {
        return Change { is_last: known.is_some(), ..Change::NONE };
    }
    let departure = Departure { state, syscall: syscall::of_current(), next };
    if let Some(off) = known {
        off.leave(task, departure, false, Stacks::NONE, now_ns);
        return Change::NONE;
    }
    Change { is_first: true, departure, ..Change::NONE }
}

#[raw_tracepoint(tracepoint = "sched_switch")]
fn switch(ctx: RawTracePointContext) -> u32 {
    let now = now_ns();
    let task = Task::current();
    let (preempted, previous, next): (u64, u64, u64) = (ctx.arg(0), ctx.arg(1), ctx.arg(2));
    if !is_active() {
        return unguarded(program::SWITCH, || {});
    }
    let change = leave(task, (previous, next), preempted & 1 == 1, now);
    if change.is_first || change.is_last {
        guarded_or_nested_of(change.is_first, program::SWITCH, |run| {
            if change.is_last {
                OffCpu::forget(run, task.tid);
                return Outcome::Filtered;
            }
            let Some(off) = OffCpu::of_or_new(task.tid) else { return Outcome::NoPlace };
            off.leave(task, change.departure, false, Stacks::NONE, now);
            Outcome::Filtered
        });
    }
    let tid = task_field(next, config::task_pid_offset()).unwrap_or(0);
    let left = if tid == 0 { None } else { OffCpu::of(tid).and_then(OffCpu::enter) };
    let Some(left) = left else { return unguarded(program::SWITCH, || {}) };
    let off_ns = left.duration_ns(now);
    let is_selected = off_ns >= config::min_block_ns() && off_ns <= config::max_block_ns();
    // klock stops a command that it starts, and no waker is recorded here that would tell it from a debugger.
    if !is_selected || left.was_traced() {
        return unguarded(program::SWITCH, || {});
    }
    guarded_or_nested_of(true, program::SWITCH, |run| {
        let mut event = event_at(run, left.task(tid), code::OFF_CPU, now);
        left.describe_plainly(&mut event);
        emit(run, &mut event)
    })
}
