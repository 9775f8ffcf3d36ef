//! Fork, exec, rename and exit of tasks, so that the names of short-lived threads are known.
//!
//! The tracepoints are `sched_process_fork(parent, child)`, `sched_process_exec(task, old_pid, bprm)` and
//! `sched_process_exit(task)` (`include/trace/events/sched.h`), and `task_rename(task, comm)`
//! (`include/trace/events/task.h`).

use aya_ebpf::{helpers::bpf_get_current_comm, macros::raw_tracepoint, programs::RawTracePointContext};
use trace_format::wire::{WireTask, code, program};

use crate::{
    calls,
    config::{self, ABSENT},
    emit::{DESCRIPTORS, NO_WAKEUP, cpu, now_ns},
    filter::{Task, inherit_target},
    guard::{Outcome, guarded},
    memory::{Comm, comm_at},
    waiting::WaitState,
};

/// Writes a task record to the ring of descriptors.
#[inline(always)]
fn emit_task(code: u8, task: Task, parent: Task, comm: Comm) -> Outcome {
    let cpu = cpu();
    let record = WireTask {
        ts_ns: now_ns(),
        code,
        padding: [0; 3],
        cpu,
        tgid: task.tgid,
        tid: task.tid,
        parent_tgid: parent.tgid,
        parent_tid: parent.tid,
        comm,
        reserved: 0,
    };
    let sent =
        DESCRIPTORS.get(cpu).is_some_and(|ring| ring.output_untyped::<WireTask>(record, NO_WAKEUP).is_ok());
    if sent { Outcome::Delivered } else { Outcome::RingFull }
}

/// The parent in records that have none.
const NO_TASK: Task = Task { tgid: 0, tid: 0 };

#[raw_tracepoint(tracepoint = "sched_process_fork")]
fn task_fork(ctx: RawTracePointContext) -> u32 {
    guarded(program::TASK, |_| {
        let parent = Task::current();
        let address: u64 = ctx.arg(1);
        let Some(child) = Task::at(address) else { return Outcome::Filtered };
        let followed = parent.is_followed();
        if !inherit_target(parent, child, followed) {
            return Outcome::NoPlace;
        }
        if !followed {
            return Outcome::Filtered;
        }
        let offset = config::task_comm_offset();
        let comm = if offset == ABSENT { [0; 16] } else { comm_at(address + u64::from(offset)) };
        emit_task(code::TASK_FORK, child, parent, comm)
    })
}

#[raw_tracepoint(tracepoint = "sched_process_exec")]
fn task_exec(ctx: RawTracePointContext) -> u32 {
    guarded(program::TASK, |_| {
        let task = Task::current();
        if !task.is_followed() {
            return Outcome::Filtered;
        }
        let before = Task { tgid: 0, tid: ctx.arg(1) };
        emit_task(code::TASK_EXEC, task, before, bpf_get_current_comm().unwrap_or([0; 16]))
    })
}

#[raw_tracepoint(tracepoint = "sched_process_exit")]
fn task_exit(_ctx: RawTracePointContext) -> u32 {
    guarded(program::TASK, |_| {
        let task = Task::current();
        // The wait of a task that is killed has no end.
        WaitState::forget(task.tid);
        calls::forget(task);
        if !task.is_followed() {
            return Outcome::Filtered;
        }
        emit_task(code::TASK_EXIT, task, NO_TASK, bpf_get_current_comm().unwrap_or([0; 16]))
    })
}

#[raw_tracepoint(tracepoint = "task_rename")]
fn task_rename(ctx: RawTracePointContext) -> u32 {
    guarded(program::TASK, |_| {
        // Not necessarily the current task: threads can rename each other through /proc.
        let (address, comm): (u64, u64) = (ctx.arg(0), ctx.arg(1));
        let Some(renamed) = Task::at(address) else { return Outcome::Filtered };
        if !Task::current().is_followed() {
            return Outcome::Filtered;
        }
        emit_task(code::TASK_RENAME, renamed, NO_TASK, comm_at(comm))
    })
}
