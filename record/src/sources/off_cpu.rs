//! Off-CPU time: each record, made when a task returns to a CPU, becomes one row of the same time. It
//! concerns no lock and no wait: if a task waited for a lock, other records report that.

use trace_format::{
    Event, EventKind, Syscall, TaskState,
    run_info::{Covers, SCHED, Source},
    wire::{WireEvent, departure},
};

use super::TraceSource;
use crate::{
    compose::header::Header,
    setup::{filters::Filters, plan::Attachment},
};

/// Limits of recording off-CPU time.
const LIMITS: &[&str] = &[
    "off-CPU time: what began before the recording, or lasts beyond it, is not recorded",
    "off-CPU time: a waker is the task that ran; if an interrupt did it, the task that it came upon",
];

/// Returns the source as a trace lists it.
pub(crate) fn source(filters: &Filters) -> Source {
    let source =
        TraceSource { name: SCHED, kinds: &[], uncontended: false, holds: false, limits: LIMITS }.to_source();
    let min_block_ns = Some(filters.min_block_ns);
    Source { covers: Some(Covers::All), ready: Some(true), min_block_ns, ..source }
}

/// Returns the programs and their hooks.
pub(crate) fn attachments() -> [Attachment; 4] {
    [
        Attachment::raw("off_cpu_wakeup", "sched_wakeup"),
        Attachment::raw("off_cpu_waking", "sched_waking"),
        Attachment::raw("off_cpu_in", "sched_switch"),
        Attachment::raw("off_cpu_out", "sched_switch"),
    ]
}

/// Returns the row of a return.
pub(crate) fn row(at: &Header, event: &WireEvent) -> Event {
    Event {
        task: Some(at.task),
        cpu: at.cpu,
        stack: at.stack,
        wait_ns: Some(at.ts_ns.saturating_sub(event.extra as i64).max(0)),
        blocked_ns: at.times.map(|times| times.blocked_ns),
        runq_ns: at.times.map(|times| times.runq_ns),
        peer_task: at.waker.map(|(task, _)| task).or(at.owner),
        peer_stack: at.waker.and_then(|(_, stack)| stack),
        state: state_of(departure::state(event.value)),
        syscall: Syscall::of_number(departure::syscall(event.value)),
        ..Event::new(at.ts_ns, EventKind::OffCpu, 0)
    }
}

/// The meaning of `task_struct.__state` (`include/linux/sched.h`, 5.10 to 7.2). `None` if the task was being
/// woken when it left the CPU: its state before is not known then.
fn state_of(state: u32) -> Option<TaskState> {
    const INTERRUPTIBLE: u32 = 0x1;
    const UNINTERRUPTIBLE: u32 = 0x2;
    const STOPPED: u32 = 0x4;
    const TRACED: u32 = 0x8;
    const PARKED: u32 = 0x40;
    const NOLOAD: u32 = 0x400;
    /// PREEMPT_RT (5.16): waits for a spinlock, which sleeps there.
    const RTLOCK_WAIT: u32 = 0x1000;
    let has = |bits: u32| state & bits != 0;
    match state {
        0 => Some(TaskState::Runnable),
        _ if has(STOPPED) => Some(TaskState::Stopped),
        _ if has(TRACED) => Some(TaskState::Traced),
        _ if has(PARKED) => Some(TaskState::Parked),
        _ if has(UNINTERRUPTIBLE) && has(NOLOAD) => Some(TaskState::Idle),
        _ if has(UNINTERRUPTIBLE | RTLOCK_WAIT) => Some(TaskState::Uninterruptible),
        _ if has(INTERRUPTIBLE) => Some(TaskState::Interruptible),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use trace_format::{
        EventKind::OffCpu,
        TaskState,
        wire::departure::{NO_SYSCALL, UNKNOWN_SYSCALL},
    };

    use super::state_of;
    use crate::compose::script::{Script, row};

    #[test]
    fn a_return_to_the_cpu_is_one_row_with_times_and_waker() {
        let mut s = Script::new();
        s.at(5_000).task(11).stack(3).sums(3_000, 1_000).woken_by(12, 4).off_cpu(1_000, 1);
        s.expect([row(5_000, OffCpu)
            .task(11)
            .stack(3)
            .waited(4_000, 3_000, 1_000)
            .peer(12)
            .peer_stack(4)
            .state(TaskState::Interruptible)]);
    }

    #[test]
    fn a_preempted_task_was_runnable_all_the_time_and_another_one_ran_instead() {
        let mut s = Script::new();
        s.at(5_000).task(11).stack(3).sums(0, 4_000).owned_by(14).off_cpu(1_000, 0);
        s.expect([row(5_000, OffCpu)
            .task(11)
            .stack(3)
            .waited(4_000, 0, 4_000)
            .peer(14)
            .state(TaskState::Runnable)]);
    }

    #[test]
    fn a_return_has_the_system_call_in_which_the_task_left_unless_that_is_not_known() {
        let mut s = Script::new();
        let numbers = [libc::SYS_fsync as i32, NO_SYSCALL, 400, UNKNOWN_SYSCALL];
        for (ts_ns, number) in (1_000..).zip(numbers) {
            s.at(ts_ns).task(11).off_cpu_in(number, 990, 0x402);
        }
        let rows = (1_000..).zip(numbers).map(|(ts_ns, number)| {
            row(ts_ns, OffCpu).task(11).waited(ts_ns - 990, 0, 0).state(TaskState::Idle).syscall(number)
        });
        s.expect::<4>(rows.collect::<Vec<_>>().try_into().unwrap());
        assert_eq!(s.syscalls(), ["fsync", "-", "syscall_400", ""]);
    }

    #[test]
    fn an_interrupt_that_woke_a_task_counts_as_the_idle_task_of_its_cpu() {
        let mut s = Script::new();
        s.at(5_000).task(11).cpu(2).woken_by(0, 4).on_cpu_of_waker(3).off_cpu(1_000, 1);
        assert_eq!(s.wakers(), [Some("swapper/3")]);
    }

    #[test]
    fn off_cpu_time_ends_no_wait_and_begins_none() {
        let mut s = Script::new();
        s.at(100).task(11).futex_wait(0x60);
        s.at(400).task(11).sums(200, 90).off_cpu(110, 1);
        s.at(450).task(11).sums(200, 90).futex_done(0x60, 0);
        assert_eq!(s.waits(), [(0x60, Some(350))]);
    }

    #[test]
    fn states_of_the_kernel_have_names() {
        let words = |state| state_of(state).map(TaskState::as_str);
        for (state, expected) in [
            (0, Some("runnable")),
            (0x1, Some("interruptible")),
            (0x2001, Some("interruptible")),
            (0x2, Some("uninterruptible")),
            (0x102, Some("uninterruptible")),
            (0x402, Some("idle")),
            (0x104, Some("stopped")),
            (0x8, Some("traced")),
            (0x40, Some("parked")),
            (0x1000, Some("uninterruptible")),
            (0x200, None),
        ] {
            assert_eq!(words(state), expected, "{state:#x}");
        }
    }
}
