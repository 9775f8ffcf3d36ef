//! Histories of switches and of lock calls of threads that record themselves, and the rows that they become.

use std::sync::Arc;

use trace_format::{
    Event, EventKind, Syscall, TaskState,
    preload::{Record as LibraryRecord, op},
    wire::{WireEvent, api, code, departure, flag, stack},
};

use crate::{
    compose::{Composer, script::rows_of, tasks::Tasks},
    kernel::order::Record,
    preload::{
        batch::{ProcessImage, ThreadSession},
        fake,
        merge::Step,
    },
    setup::filters::Filters,
    sources::switches::{
        compose::{Reading, Sleeper},
        records::{Switch, SwitchAction},
    },
};

const LEFT: SwitchAction = SwitchAction::Left { is_runnable: false };
const PREEMPTED: SwitchAction = SwitchAction::Left { is_runnable: true };
const RETURNED: SwitchAction = SwitchAction::Returned;

/// A recording of one process whose thread 1 records itself.
struct History {
    composer: Composer,
    rows: Vec<Event>,
}

impl History {
    fn new(has_kernel_side: bool, filters: Filters) -> Self {
        let tasks = Tasks::new([], Box::new(|_, _| None));
        let composer = Composer::new(tasks, false, false).with_preload(has_kernel_side, filters);
        let mut history = Self { composer, rows: Vec::new() };
        history.start(1);
        history
    }

    /// Starts a thread of the process, whose session has the number of the thread.
    fn start(&mut self, tid: u32) {
        let image = Arc::new(ProcessImage { pid: 1, new_program: true, ts_ns: 1, ..fake::image() });
        let session = ThreadSession {
            image,
            tid,
            is_seen: true,
            own_tid: tid,
            start_ns: 2,
            comm: *b"thread\0\0\0\0\0\0\0\0\0\0",
        };
        let Self { composer, rows } = self;
        rows.extend(rows_of(|out| composer.step(2, tid, &Step::Start(&session), out)));
    }

    fn of_holders() -> Self {
        Self::new(false, Filters::default())
    }

    fn call(&mut self, ts_ns: u64, op: u8, object: u8, address: u64, rest: &[[u64; 2]]) -> &mut Self {
        self.call_of(1, ts_ns, op, object, address, rest)
    }

    fn call_of(
        &mut self,
        tid: u32,
        ts_ns: u64,
        op: u8,
        object: u8,
        address: u64,
        rest: &[[u64; 2]],
    ) -> &mut Self {
        let record = LibraryRecord::new(ts_ns, op, object, address, 0);
        let Self { composer, rows } = self;
        rows.extend(rows_of(|out| composer.step(ts_ns, tid, &Step::Record(record, rest), out)));
        self
    }

    fn mutex(&mut self, ts_ns: u64, op: u8) -> &mut Self {
        self.call(ts_ns, op, api::MUTEX, 0x1000, &[])
    }

    fn kernel(&mut self, event: WireEvent) -> &mut Self {
        let Self { composer, rows } = self;
        rows.extend(rows_of(|out| composer.record(&Record::Event(event), out)));
        self
    }

    fn switch(&mut self, ts_ns: u64, tid: u32, action: SwitchAction) -> &mut Self {
        let switch = Switch { ts_ns, cpu: 3, tgid: 1, tid, action };
        let Self { composer, rows } = self;
        rows.extend(rows_of(|out| composer.record(&Record::Switch(switch), out)));
        self
    }

    fn read(&mut self, ts_ns: i64, call: Option<Syscall>, stopped: Option<TaskState>) {
        self.composer.add_reading(1, Reading { ts_ns, call, stopped });
    }

    /// Returns the time, length and state of the off-CPU rows.
    fn off_cpu(&self) -> Vec<(i64, i64, Option<TaskState>)> {
        let rows = self.rows.iter().filter(|row| row.kind == EventKind::OffCpu);
        rows.map(|row| (row.ts_ns, row.wait_ns.unwrap(), row.state)).collect()
    }
}

#[test]
fn a_holder_that_sleeps_and_is_preempted_has_a_row_for_each_return() {
    let mut history = History::of_holders();
    history.mutex(10, op::ACQUIRED).switch(20, 1, LEFT).switch(50, 1, RETURNED);
    history.switch(60, 1, PREEMPTED).switch(65, 1, RETURNED).mutex(70, op::RELEASED);
    assert_eq!(history.off_cpu(), [(50, 30, Some(TaskState::Asleep)), (65, 5, Some(TaskState::Runnable))]);
    let [asleep, preempted] = [1, 2].map(|at: usize| history.rows[at]);
    assert_eq!((asleep.blocked_ns, asleep.runq_ns), (None, None), "the time of the wake-up is not known");
    assert_eq!((preempted.blocked_ns, preempted.runq_ns), (Some(0), Some(5)));
    assert_eq!(
        (asleep.cpu, asleep.task, asleep.lock, asleep.peer_task),
        (Some(3), history.rows[0].task, None, None)
    );
}

#[test]
fn a_thread_without_a_lock_and_a_thread_that_does_not_record_itself_have_no_rows() {
    let mut history = History::of_holders();
    history.switch(3, 1, LEFT).switch(9, 1, RETURNED);
    history.mutex(10, op::ACQUIRED).switch(20, 2, LEFT).switch(30, 2, RETURNED);
    history.mutex(40, op::RELEASED).switch(50, 1, LEFT).switch(60, 1, RETURNED);
    assert_eq!(history.off_cpu(), []);
}

#[test]
fn a_lock_counts_until_it_was_released_as_often_as_it_was_taken() {
    let mut history = History::of_holders();
    history.mutex(10, op::ACQUIRED).mutex(11, op::ACQUIRED).mutex(12, op::RELEASED);
    history.switch(20, 1, LEFT).switch(30, 1, RETURNED);
    history.mutex(40, op::RELEASED).switch(50, 1, LEFT).switch(60, 1, RETURNED);
    assert_eq!(history.off_cpu(), [(30, 10, Some(TaskState::Asleep))]);
}

#[test]
fn a_condition_wait_releases_its_mutex_only_and_a_semaphore_is_never_held() {
    let mut history = History::of_holders();
    history.mutex(10, op::ACQUIRED).call(11, op::ACQUIRED, api::SEMAPHORE, 0x3000, &[]);
    history.call(20, op::CONDITION_WAIT, api::CONDITION, 0x1000, &[[0x2000, 0]]);
    history.switch(30, 1, LEFT).switch(40, 1, RETURNED);
    history.call(50, op::CONDITION_WAITED, api::CONDITION, 0x1000, &[[0x2000, 0]]);
    history.switch(60, 1, LEFT).switch(70, 1, RETURNED);
    assert_eq!(history.off_cpu(), [(70, 10, Some(TaskState::Asleep))]);
}

#[test]
fn with_a_kernel_side_every_return_is_a_row() {
    let mut history = History::new(true, Filters::default());
    history.switch(3, 1, LEFT).switch(9, 1, RETURNED).switch(20, 2, LEFT).switch(30, 2, RETURNED);
    assert_eq!(history.off_cpu(), [(9, 6, Some(TaskState::Asleep)), (30, 10, Some(TaskState::Asleep))]);
}

#[test]
fn returns_that_a_program_reports_are_rows_of_holders_only_unless_others_hold_locks_too() {
    let rows = |has_holders_only: bool| {
        let mut history = History::new(true, Filters::default());
        if has_holders_only {
            history.composer.has_holders_only = true;
        }
        let none = stack::NONE;
        let event = |ts_ns, tid, state, flags| WireEvent {
            ts_ns,
            code: code::OFF_CPU,
            tgid: 1,
            tid,
            extra: ts_ns - 4,
            value: departure::pack(state, departure::UNKNOWN_SYSCALL),
            flags,
            runq_ns: if state == 0 { 4 } else { 0 },
            kernel_stack: none,
            user_stack: none,
            peer_kernel_stack: none,
            peer_user_stack: none,
            ..WireEvent::default()
        };
        history.kernel(event(5, 1, 0, 0)).mutex(10, op::ACQUIRED);
        history.kernel(event(20, 1, 1, flag::NO_WAIT_STATE)).kernel(event(30, 2, 0, 0));
        history.kernel(event(40, 1, 0, 0)).mutex(50, op::RELEASED).kernel(event(60, 1, 0, 0));
        history
    };
    let holder = [(20, 4, Some(TaskState::Interruptible)), (40, 4, Some(TaskState::Runnable))];
    let history = rows(true);
    assert_eq!(history.off_cpu(), holder);
    let [asleep, preempted] =
        [20, 40].map(|ts_ns| *history.rows.iter().find(|row| row.ts_ns == ts_ns).unwrap());
    assert_eq!((asleep.blocked_ns, asleep.runq_ns), (None, None), "the time of the wake-up is not known");
    assert_eq!((preempted.blocked_ns, preempted.runq_ns, preempted.stack), (Some(0), Some(4), None));
    assert_eq!(rows(false).off_cpu().len(), 5);
}

#[test]
fn nothing_is_paired_across_a_loss_or_an_exit() {
    let mut history = History::of_holders();
    history
        .mutex(10, op::ACQUIRED)
        .switch(20, 1, LEFT)
        .switch(25, 2, SwitchAction::Lost(7))
        .switch(30, 1, RETURNED);
    history.switch(40, 1, LEFT).switch(41, 1, SwitchAction::Exited).switch(50, 1, RETURNED);
    assert_eq!(history.off_cpu(), []);
    let lost = history.rows.iter().find(|row| row.kind == EventKind::Lost).unwrap();
    assert_eq!((lost.ts_ns, lost.cpu, lost.count, lost.task), (25, Some(3), Some(7), None));
}

#[test]
fn filters_leave_out_short_and_long_times() {
    let mut history =
        History::new(false, Filters { min_block_ns: 5, max_block_ns: 20, ..Filters::default() });
    history.mutex(10, op::ACQUIRED);
    for (from, until) in [(20, 24), (30, 35), (40, 60), (70, 91)] {
        history.switch(from, 1, LEFT).switch(until, 1, RETURNED);
    }
    assert_eq!(history.off_cpu().iter().map(|row| row.1).collect::<Vec<_>>(), [5, 20]);
}

#[test]
fn rows_stay_in_the_order_of_time_if_a_record_comes_late() {
    let mut history = History::of_holders();
    history.mutex(10, op::ACQUIRED).switch(20, 1, LEFT);
    history.call(40, op::ACQUIRED, api::MUTEX, 0x1000, &[]).switch(30, 1, RETURNED);
    assert!(history.rows.is_sorted_by_key(|row| row.ts_ns), "{:?}", history.rows);
}

#[test]
fn a_thread_with_too_many_locks_to_remember_keeps_its_rows() {
    let mut history = History::of_holders();
    for lock in 0..100 {
        history.call(10, op::ACQUIRED, api::MUTEX, 0x1000 + lock * 64, &[]);
    }
    for lock in 0..100 {
        history.call(20, op::RELEASED, api::MUTEX, 0x1000 + lock * 64, &[]);
    }
    history.switch(30, 1, LEFT).switch(40, 1, RETURNED);
    assert_eq!(history.off_cpu().len(), 1);
}

/// A history in which thread 1 has a mutex for which thread 2 waits since 15.
fn awaited() -> History {
    let mut history = History::of_holders();
    history.start(2);
    history.mutex(10, op::ACQUIRED).call_of(2, 15, op::WAIT, api::MUTEX, 0x1000, &[[1, 0]]);
    history
}

/// Returns the names of the calls of the off-CPU rows; empty if not known.
fn calls(history: &History) -> Vec<String> {
    let rows = history.rows.iter().filter(|row| row.kind == EventKind::OffCpu);
    rows.map(|row| row.syscall.map_or_else(String::new, |call| call.to_string())).collect()
}

#[test]
fn the_call_of_a_sleeper_is_asked_for_once_and_only_while_others_wait_for_it() {
    let sleeper = [Sleeper { pid: 1, tid: 1 }];
    let mut history = awaited();
    history.switch(20, 1, LEFT).switch(21, 2, LEFT);
    assert_eq!(history.composer.sleepers(14), [], "nobody waited yet");
    assert_eq!(history.composer.sleepers(19), [], "it did not sleep yet");
    assert_eq!(history.composer.sleepers(20), sleeper);
    assert_eq!(history.composer.sleepers(30), [], "asked already");
    history.switch(50, 1, RETURNED).switch(60, 1, PREEMPTED);
    assert_eq!(history.composer.sleepers(90), [], "preempted");
    history.switch(100, 1, RETURNED).switch(110, 1, LEFT);
    assert_eq!(history.composer.sleepers(110), sleeper, "another sleep");
    let mut other = awaited();
    other.mutex(16, op::RELEASED).call(17, op::ACQUIRED, api::MUTEX, 0x2000, &[]).switch(20, 1, LEFT);
    assert_eq!(other.composer.sleepers(30), [], "it has another lock");
}

#[test]
fn a_row_has_the_call_that_was_read_before_the_task_returned() {
    let [nanosleep, read] = ["nanosleep", "read"].map(|name| name.parse::<Syscall>().unwrap());
    let mut history = awaited();
    history.switch(20, 1, LEFT);
    history.read(40, Some(nanosleep), None);
    history.switch(50, 1, RETURNED).switch(60, 1, LEFT);
    history.read(80, Some(read), Some(TaskState::Stopped));
    history.switch(70, 1, RETURNED);
    history.read(85, Some(read), Some(TaskState::Stopped));
    history.switch(90, 1, LEFT).switch(95, 1, RETURNED);
    assert_eq!(calls(&history), ["nanosleep", "", ""]);
    let are_asleep = history.off_cpu().iter().all(|(.., state)| *state == Some(TaskState::Asleep));
    assert!(are_asleep, "{:?}", history.off_cpu());
}

#[test]
fn a_holder_that_was_stopped_while_others_waited_is_not_asleep() {
    let mut history = awaited();
    history.switch(20, 1, LEFT);
    history.read(40, None, Some(TaskState::Stopped));
    history.switch(50, 1, RETURNED);
    assert_eq!(history.off_cpu(), [(50, 30, Some(TaskState::Stopped))]);
}
