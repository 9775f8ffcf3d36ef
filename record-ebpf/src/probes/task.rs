//! Births, new programs, new names and ends of tasks, so that the names of short-lived threads are right.
//!
//! `sched_process_fork(parent, child)`, `sched_process_exec(task, old_pid, bprm)`, `sched_process_exit(task)`
//! (`include/trace/events/sched.h`), `task_rename(task, comm)` (`include/trace/events/task.h`).

use aya_ebpf::{
    bindings::BPF_ANY,
    helpers::{bpf_get_current_comm, bpf_probe_read_kernel},
    macros::raw_tracepoint,
    programs::RawTracePointContext,
};
use trace_format::wire::{WireTask, code, program};

use super::sched::field;
use crate::{
    calls,
    config::{self, ABSENT, target},
    emit::{NO_WAKEUP, cpu, now_ns},
    filter::Task,
    guard::{Outcome, guarded},
    maps::{DESCRIPTORS, TARGETS},
    waiting::WaitState,
};

type Comm = [u8; 16];

#[inline(always)]
fn comm_at(address: u64) -> Comm {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel(address as *const Comm) }.unwrap_or([0; 16])
}

#[inline(always)]
fn describe(what: u8, task: Task, parent: Task, comm: Comm) -> Outcome {
    let cpu = cpu();
    let record = WireTask {
        ts_ns: now_ns(),
        code: what,
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

const NOBODY: Task = Task { tgid: 0, tid: 0 };

/// Makes a process that a followed one started a target, and one that got the number of a target by chance none. False if it
/// should be a target and found no place.
#[inline(always)]
fn choose(parent: Task, child: Task, followed: bool) -> bool {
    let by_process = config::target_mode() == target::PROCESSES;
    if by_process && child.tgid == parent.tgid {
        return true;
    }
    if by_process && followed && config::follow_children() == 1 {
        return TARGETS.insert(child.tgid, 1, BPF_ANY as u64).is_ok();
    }
    // The owner of the number is gone, for it is free to be given again.
    let number = if by_process { child.tgid } else { child.tid };
    if TARGETS.get_ptr(number).is_some() {
        let _ = TARGETS.remove(number);
    }
    true
}

#[raw_tracepoint(tracepoint = "sched_process_fork")]
fn task_fork(ctx: RawTracePointContext) -> u32 {
    guarded(program::TASK, |_| {
        let parent = Task::current();
        let child: u64 = ctx.arg(1);
        let ids = (field(child, config::task_tgid_offset()), field(child, config::task_pid_offset()));
        let (Some(tgid), Some(tid)) = ids else { return Outcome::Filtered };
        let followed = parent.is_followed();
        if !choose(parent, Task { tgid, tid }, followed) {
            return Outcome::NoPlace;
        }
        if !followed {
            return Outcome::Filtered;
        }
        let offset = config::task_comm_offset();
        let comm = if offset == ABSENT { [0; 16] } else { comm_at(child + u64::from(offset)) };
        describe(code::TASK_FORK, Task { tgid, tid }, parent, comm)
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
        describe(code::TASK_EXEC, task, before, bpf_get_current_comm().unwrap_or([0; 16]))
    })
}

#[raw_tracepoint(tracepoint = "sched_process_exit")]
fn task_exit(_ctx: RawTracePointContext) -> u32 {
    guarded(program::TASK, |_| {
        let task = Task::current();
        // A task that is killed while it waits never ends its wait.
        WaitState::forget(task.tid);
        calls::forget(task);
        if !task.is_followed() {
            return Outcome::Filtered;
        }
        describe(code::TASK_EXIT, task, NOBODY, bpf_get_current_comm().unwrap_or([0; 16]))
    })
}

#[raw_tracepoint(tracepoint = "task_rename")]
fn task_rename(ctx: RawTracePointContext) -> u32 {
    guarded(program::TASK, |_| {
        // Mostly its own name, but another thread of the process may do it through /proc.
        let (renamed, comm): (u64, u64) = (ctx.arg(0), ctx.arg(1));
        let ids = (field(renamed, config::task_tgid_offset()), field(renamed, config::task_pid_offset()));
        let (Some(tgid), Some(tid)) = ids else { return Outcome::Filtered };
        if !Task::current().is_followed() {
            return Outcome::Filtered;
        }
        describe(code::TASK_RENAME, Task { tgid, tid }, NOBODY, comm_at(comm))
    })
}
