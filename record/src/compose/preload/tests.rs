//! Histories of threads that record themselves, and the rows that they become. The number of a session is the
//! thread's id.

use std::sync::Arc;

use proptest::prelude::*;
use trace_format::{
    CallKind, EventColumns,
    EventKind::{Abandon, Acquire, Destroy, Init, Lost, Release, TryFail, Wait, Wake},
    LockKind, Mode,
    wire::{WireEvent, code},
};

use super::*;
use crate::{
    compose::{
        Composer,
        locks::Locks,
        script::rows_of,
        stacks::Stacks,
        tasks::{ProcessKey, Tasks},
    },
    kernel::order,
    preload::fake,
};

mod threads;

const MUTEX: u64 = 0x1000;
const COND: u64 = 0x2000;

/// A recording, and its rows so far.
struct History {
    composer: Composer,
    rows: Vec<Event>,
}

/// The columns of a row that most tests check: time, kind, mode, wait, errno.
type Short = (i64, EventKind, Option<Mode>, Option<i64>, Option<i32>);

impl History {
    fn with_filters(filters: Filters) -> Self {
        let tasks = Tasks::new([], Box::new(|_, _| None));
        let composer = Composer::new(tasks, false, false).with_preload(false, filters);
        Self { composer, rows: Vec::new() }
    }

    fn new() -> Self {
        let mut history = Self::with_filters(Filters::default());
        history.thread(1).thread(2);
        history
    }

    /// A recording with a kernel side that records futexes.
    fn with_kernel() -> Self {
        let mut history = Self::new();
        history.composer = Composer::new(Tasks::new([], Box::new(|_, _| None)), true, false)
            .with_preload(false, Filters::default());
        history.thread(1).thread(2);
        history
    }

    fn thread(&mut self, tid: u32) -> &mut Self {
        let image = Arc::new(ProcessImage { pid: 1, new_program: true, ts_ns: 1, ..fake::image() });
        let comm = *b"thread\0\0\0\0\0\0\0\0\0\0";
        let session = ThreadSession { image, tid, is_seen: true, own_tid: tid + 100, start_ns: 2, comm };
        self.step(2, tid, &Step::Start(&session))
    }

    fn step(&mut self, ts_ns: u64, tid: u32, step: &Step<'_>) -> &mut Self {
        let Self { composer, rows } = self;
        rows.extend(rows_of(|out| composer.step(ts_ns, tid, step, out)));
        self
    }

    fn record(
        &mut self,
        ts_ns: u64,
        tid: u32,
        (op, api): (u8, u8),
        address: u64,
        rest: &[Unit],
    ) -> &mut Self {
        self.with_stack(ts_ns, tid, (op, api), address, rest, 0)
    }

    fn with_stack(
        &mut self,
        ts_ns: u64,
        tid: u32,
        (op, api): (u8, u8),
        address: u64,
        rest: &[Unit],
        stack: u16,
    ) -> &mut Self {
        let record = Record::new(ts_ns, op, api, address, stack);
        self.step(ts_ns, tid, &Step::Record(record, rest))
    }

    fn mutex(&mut self, ts_ns: u64, tid: u32, op: u8) -> &mut Self {
        self.record(ts_ns, tid, (op, api::MUTEX), MUTEX, &[])
    }

    /// Adds a record of the kernel side about a thread and a futex word.
    fn futex(
        &mut self,
        ts_ns: u64,
        tid: u32,
        code: u8,
        word: u64,
        (blocked_ns, runq_ns): (u64, u64),
    ) -> &mut Self {
        let event = WireEvent {
            ts_ns,
            tgid: 1,
            tid,
            code,
            address: word,
            blocked_ns,
            runq_ns,
            ..WireEvent::default()
        };
        let Self { composer, rows } = self;
        rows.extend(rows_of(|out| composer.record(&order::Record::Event(event), out)));
        self
    }

    fn short(&self) -> Vec<Short> {
        self.rows.iter().map(|row| (row.ts_ns, row.kind, row.mode, row.wait_ns, row.errno)).collect()
    }

    fn kinds(&self) -> Vec<LockKind> {
        self.composer.locks.rows().iter().map(|row| row.kind).collect()
    }
}

const X: Option<Mode> = Some(Mode::Exclusive);
const S: Option<Mode> = Some(Mode::Shared);

#[test]
fn an_uncontended_mutex_is_acquired_without_a_wait_and_released() {
    let mut history = History::new();
    history.mutex(10, 1, op::ACQUIRED).mutex(30, 1, op::RELEASED);
    assert_eq!(history.short(), [(10, Acquire, X, Some(0), None), (30, Release, X, None, None)]);
    let acquire = history.rows[0];
    assert_eq!((acquire.blocked_ns, acquire.runq_ns, acquire.cpu), (Some(0), Some(0), None));
}

#[test]
fn a_try_and_a_time_out_are_told_of_locks_and_conditions_but_not_of_the_mutex_that_a_condition_takes_back() {
    let mut history = History::new();
    let timed = api::CONDITION | call::TIMED;
    history
        .record(10, 1, (op::ACQUIRED, api::MUTEX | call::TRY), MUTEX, &[])
        .record(15, 2, (op::FAILED, api::MUTEX | call::TRY), MUTEX, &[[16, 0]])
        .record(20, 2, (op::WAIT, api::MUTEX | call::TIMED), MUTEX, &[[101, 0]])
        .mutex(30, 1, op::RELEASED)
        .record(40, 2, (op::WAITED, api::MUTEX | call::TIMED), MUTEX, &[])
        .record(50, 2, (op::CONDITION_WAIT, timed), MUTEX, &[[COND, 0]])
        .record(60, 2, (op::CONDITION_WAITED, timed), MUTEX, &[[COND, 0]]);
    let (tried, timed) = (Some(CallKind::Try), Some(CallKind::Timed));
    let calls: Vec<_> = history.rows.iter().map(|row| (row.ts_ns, row.kind, row.call)).collect();
    assert_eq!(
        calls,
        [
            (10, Acquire, tried),
            (15, TryFail, tried),
            (20, Wait, timed),
            (30, Release, None),
            (40, Acquire, timed),
            (50, Release, None),
            (50, Wait, timed),
            (60, Acquire, timed),
            (60, Acquire, None),
        ]
    );
}

#[test]
fn a_wait_names_the_owner_and_ends_with_or_without_the_lock() {
    let mut history = History::new();
    history
        .mutex(10, 1, op::ACQUIRED)
        .record(20, 2, (op::WAIT, api::MUTEX), MUTEX, &[[101, 0]])
        .record(50, 2, (op::FAILED, api::MUTEX), MUTEX, &[[110, 0]])
        .record(60, 2, (op::WAIT, api::MUTEX), MUTEX, &[[999, 0]])
        .mutex(70, 1, op::RELEASED)
        .mutex(75, 2, op::WAITED);
    assert_eq!(
        history.short()[1..],
        [
            (20, Wait, X, None, None),
            (50, Abandon, X, Some(30), Some(110)),
            (60, Wait, X, None, None),
            (70, Release, X, None, None),
            (75, Acquire, X, Some(15), None),
        ]
    );
    assert_eq!((history.rows[1].peer_task, history.rows[3].peer_task), (history.rows[0].task, None));
    let acquire = history.rows[5];
    assert_eq!((acquire.blocked_ns, acquire.runq_ns), (None, None), "no kernel side recorded futexes");
}

#[test]
fn a_call_that_is_refused_at_once_does_not_wait() {
    let mut history = History::new();
    history.record(10, 1, (op::FAILED, api::MUTEX), MUTEX, &[[16, 0]]);
    assert_eq!(history.short(), [(10, TryFail, X, None, Some(16))]);
}

#[test]
fn a_mutex_of_a_dead_owner_is_acquired() {
    let mut history = History::new();
    history
        .mutex(10, 1, op::ACQUIRED_OWNER_DIED)
        .record(20, 2, (op::WAIT, api::MUTEX), MUTEX, &[[0, 0]])
        .mutex(30, 2, op::WAITED_OWNER_DIED);
    assert_eq!(
        history.short(),
        [
            (10, Acquire, X, Some(0), Some(130)),
            (20, Wait, X, None, None),
            (30, Acquire, X, Some(10), Some(130))
        ]
    );
}

#[test]
fn an_rwlock_is_released_in_the_mode_in_which_it_was_acquired() {
    let mut history = History::new();
    let lock = 0x3000;
    history
        .record(10, 1, (op::ACQUIRED, api::RWLOCK_READ), lock, &[])
        .record(11, 1, (op::ACQUIRED, api::RWLOCK_READ), lock, &[])
        .record(12, 1, (op::RELEASED, api::RWLOCK), lock, &[])
        .record(13, 1, (op::RELEASED, api::RWLOCK), lock, &[])
        .record(20, 1, (op::ACQUIRED, api::RWLOCK_WRITE), lock, &[])
        .record(21, 1, (op::RELEASED, api::RWLOCK), lock, &[])
        .record(22, 1, (op::RELEASED, api::RWLOCK), lock, &[]);
    let modes: Vec<_> = history.rows.iter().map(|row| row.mode).collect();
    assert_eq!(modes, [S, S, S, S, X, X, None]);
    assert_eq!(history.kinds(), [LockKind::PthreadRwLock]);
}

#[test]
fn a_condition_wait_releases_the_mutex_and_acquires_it_again() {
    let mut history = History::new();
    history
        .mutex(10, 1, op::ACQUIRED)
        .record(20, 1, (op::CONDITION_WAIT, api::CONDITION), MUTEX, &[[COND, 0]])
        .record(90, 1, (op::CONDITION_WAITED, api::CONDITION), MUTEX, &[[COND, 0]])
        .record(100, 1, (op::CONDITION_WAIT, api::CONDITION), MUTEX, &[[COND, 0]])
        .record(150, 1, (op::CONDITION_WAITED, api::CONDITION), MUTEX, &[[COND, 110]]);
    assert_eq!(
        history.short()[1..],
        [
            (20, Release, X, None, None),
            (20, Wait, None, None, None),
            (90, Acquire, None, Some(70), None),
            (90, Acquire, X, Some(0), None),
            (100, Release, X, None, None),
            (100, Wait, None, None, None),
            (150, Abandon, None, Some(50), Some(110)),
            (150, Acquire, X, Some(0), None),
        ]
    );
    assert_eq!(history.kinds(), [LockKind::PthreadMutex, LockKind::CondVar]);
}

#[test]
fn semaphores_and_barriers_are_awaited_but_not_held() {
    let mut history = History::new();
    history
        .record(10, 1, (op::ACQUIRED, api::SEMAPHORE), 0x50, &[])
        .record(11, 1, (op::POSTED, api::SEMAPHORE), 0x50, &[])
        .record(12, 1, (op::FAILED, api::SEMAPHORE), 0x50, &[[11, 0]])
        .record(20, 1, (op::WAIT, api::BARRIER), 0x60, &[[0, 0]])
        .record(30, 1, (op::WAITED, api::BARRIER), 0x60, &[]);
    assert_eq!(
        history.short(),
        [
            (10, Acquire, None, Some(0), None),
            (11, Wake, None, None, None),
            (12, TryFail, None, None, Some(11)),
            (20, Wait, None, None, None),
            (30, Acquire, None, Some(10), None),
        ]
    );
    assert_eq!(history.kinds(), [LockKind::UserSemaphore, LockKind::Barrier]);
}

#[test]
fn initialising_or_destroying_a_lock_starts_another_one() {
    let mut history = History::new();
    history
        .mutex(10, 1, op::ACQUIRED)
        .mutex(11, 1, op::INIT)
        .mutex(12, 1, op::ACQUIRED)
        .mutex(13, 1, op::DESTROY)
        .mutex(14, 1, op::ACQUIRED);
    let kinds: Vec<_> = history.rows.iter().map(|row| row.kind).collect();
    assert_eq!(kinds, [Acquire, Init, Acquire, Destroy, Acquire]);
    let locks: Vec<_> = history.rows.iter().map(|row| row.lock.unwrap().0).collect();
    assert_eq!(locks, [0, 1, 1, 1, 2]);
    let mut history = History::new();
    history.mutex(10, 1, op::INIT);
    assert_eq!(history.kinds(), [LockKind::PthreadMutex], "no lock was there before");
}

#[test]
fn a_wait_and_its_end_have_one_stack_and_an_unknown_stack_is_none() {
    let mut history = History::new();
    let stack = Record::new(5, op::STACK, 0, 2, 0);
    history.step(5, 1, &Step::Record(stack, &[[0x111, 0x222]]));
    history
        .with_stack(10, 1, (op::WAIT, api::MUTEX), MUTEX, &[[0, 0]], 1)
        .mutex(20, 1, op::WAITED)
        .with_stack(30, 1, (op::RELEASED, api::MUTEX), MUTEX, &[], 2);
    let stacks: Vec<_> = history.rows.iter().map(|row| row.stack).collect();
    assert_eq!(stacks, [Some(StackId(0)), Some(StackId(0)), None]);
    assert_eq!(
        history.composer.stacks.take_new()[0].1.user,
        crate::compose::stacks::Half::Calls([0x111, 0x222].into())
    );
}

#[test]
fn records_are_not_paired_across_a_loss_of_their_thread() {
    let mut history = History::new();
    history
        .record(10, 1, (op::WAIT, api::MUTEX), MUTEX, &[[0, 0]])
        .record(20, 1, (op::LOST, 0), 7, &[])
        .mutex(30, 1, op::WAITED);
    assert_eq!(history.short()[1..], [(20, Lost, None, None, None), (30, Acquire, X, None, None)]);
    assert_eq!((history.rows[1].count, history.rows[1].task), (Some(7), history.rows[0].task));
    assert_eq!(history.composer.stats.unpaired, 1);
}

#[test]
fn a_signal_handler_may_lock_while_its_thread_waits() {
    let mut history = History::new();
    history
        .record(10, 1, (op::WAIT, api::MUTEX), MUTEX, &[[0, 0]])
        .record(15, 1, (op::ACQUIRED, api::MUTEX), 0x9000, &[])
        .record(16, 1, (op::WAIT, api::MUTEX), 0x9100, &[[0, 0]])
        .record(18, 1, (op::WAITED, api::MUTEX), 0x9100, &[])
        .mutex(30, 1, op::WAITED);
    let waits: Vec<_> = history.rows.iter().filter_map(|row| row.wait_ns).collect();
    assert_eq!(waits, [0, 2, 20]);
}

#[test]
fn the_kernel_side_reports_the_sleep_in_a_wait() {
    let mut history = History::with_kernel();
    history
        .mutex(10, 1, op::ACQUIRED)
        .record(20, 2, (op::WAIT, api::MUTEX), MUTEX, &[[0, 0]])
        .futex(22, 2, code::FUTEX_WAIT, MUTEX, (100, 5))
        .futex(60, 2, code::FUTEX_WAIT_DONE, MUTEX, (130, 8))
        .mutex(61, 2, op::WAITED);
    let last = history.rows.last().unwrap();
    assert_eq!((last.wait_ns, last.blocked_ns, last.runq_ns), (Some(41), Some(30), Some(3)));
    assert_eq!(history.rows.len(), 3, "the futex wait has no row of its own");
}

#[test]
fn a_futex_wait_after_a_condition_wait_shows_that_the_mutex_was_contended() {
    let mut history = History::with_kernel();
    history
        .mutex(10, 1, op::ACQUIRED)
        .record(20, 1, (op::CONDITION_WAIT, api::CONDITION), MUTEX, &[[COND, 0]])
        .futex(21, 1, code::FUTEX_WAIT, COND + 32, (0, 0))
        .futex(40, 1, code::FUTEX_WAIT_DONE, COND + 32, (15, 2))
        .futex(42, 1, code::FUTEX_WAIT, MUTEX, (15, 2))
        .futex(70, 1, code::FUTEX_WAIT_DONE, MUTEX, (40, 3))
        .record(72, 1, (op::CONDITION_WAITED, api::CONDITION), MUTEX, &[[COND, 0]]);
    assert_eq!(
        history.short()[3..],
        [(42, Wait, X, None, None), (72, Acquire, None, Some(52), None), (72, Acquire, X, Some(30), None)]
    );
    let (condition, mutex) = (history.rows[4], history.rows[5]);
    assert_eq!((condition.blocked_ns, mutex.blocked_ns, mutex.runq_ns), (Some(15), Some(25), Some(1)));
}

#[test]
fn filters_select_threads_and_locks() {
    let filters = Filters { comms: vec!["thread".to_owned()], ..Filters::default() };
    let mut history = History::with_filters(filters);
    history.thread(1).mutex(10, 1, op::ACQUIRED);
    let other = u64::from_ne_bytes(*b"other\0\0\0");
    history.record(11, 1, (op::RENAMED, 0), 0, &[[other, 0]]).mutex(12, 1, op::RELEASED);
    assert_eq!(history.short(), [(10, Acquire, X, Some(0), None)]);

    let mut history = History::with_filters(Filters { addresses: vec![MUTEX], ..Filters::default() });
    history.thread(1).mutex(10, 1, op::ACQUIRED).record(11, 1, (op::ACQUIRED, api::MUTEX), 0x77, &[]);
    assert_eq!(history.rows.len(), 1);
}

#[test]
fn an_exit_records_the_name_the_time_and_the_last_losses() {
    let mut history = History::new();
    history.mutex(10, 2, op::ACQUIRED).record(20, 2, (op::WAIT, api::MUTEX), 0x77, &[[0, 0]]);
    let exit = ThreadExit { exit_ns: 40, comm: *b"worker-2\0\0\0\0\0\0\0\0", lost: 3, nested: 0 };
    history.step(40, 2, &Step::Exit(&exit, 3));
    assert_eq!((history.rows[2].kind, history.rows[2].count), (Lost, Some(3)));
    let row = history.composer.tasks.rows().iter().find(|row| row.tid == 2).unwrap().clone();
    assert_eq!((row.comm.as_deref(), row.start_ns, row.exit_ns), (Some("worker-2"), Some(2), Some(40)));
    assert_eq!(history.composer.stats.unpaired, 1);
}

proptest! {
    /// Rows that need no state of user locks are the rows that the state machine adds, and so are the locks.
    #[test]
    fn simple_rows_are_those_of_the_state_machine(
        records in prop::collection::vec(
            (any::<bool>(), any::<bool>(), 0..4_u8, 1..5_u64, 0..4_u16, 0..3_u64),
            1..80,
        ),
    ) {
        let mut tables = [(); 2].map(|()| {
            (Tasks::new([], Box::new(|_, _| None)), Locks::default(), Stacks::default(), EventColumns::default())
        });
        let mut user = UserLocks::new(false);
        let process = Arc::new(ProcessImage { pid: 1, ..fake::image() });
        let space = Space::Process(ProcessKey(0), 1);
        let image = Image {
            process,
            space,
            tasks: FxHashMap::default(),
            threads: Threads::default(),
            is_over: false,
        };
        let mut sessions = [(); 2].map(|()| Session {
            image: 0,
            tid: 7,
            own_tid: 7,
            task: TaskId(3),
            stacks: vec![StackId(5), StackId(9)],
            is_selected: true,
            has_started: false,
            held: Held::default(),
        });
        let mut ts_ns = 10;
        for (is_acquired, is_spin, call, address, stack, step) in records {
            ts_ns += step as i64;
            let op = if is_acquired { op::ACQUIRED } else { op::RELEASED };
            let api = if is_spin { api::SPIN } else { api::MUTEX } | call << 4;
            let record = Record::new(ts_ns as u64, op, api, address * 8, stack);
            prop_assert!(is_simple(&record));
            for (is_general, ((tasks, locks, stacks, out), session)) in
                [false, true].into_iter().zip(tables.iter_mut().zip(&mut sessions))
            {
                let context = &mut Context { tasks, locks, stacks, unpaired: &mut 0, out };
                if is_general {
                    let header = header(ts_ns, &record, session, &image);
                    let fact = fact(&record, [0, 0], |_| None).expect("a fact");
                    session.held.add(&fact);
                    user.add(&header, &fact, context);
                } else {
                    prop_assert!(simple_row(ts_ns, &record, session, &image, context));
                }
            }
        }
        let [(_, simple_locks, _, simple), (_, locks, _, general)] = &tables;
        prop_assert_eq!(simple.iter().collect::<Vec<_>>(), general.iter().collect::<Vec<_>>());
        prop_assert_eq!(simple_locks.rows(), locks.rows());
        prop_assert_eq!(&sessions[0].held.locks, &sessions[1].held.locks);
        prop_assert_eq!(sessions[0].held.is_unknown, sessions[1].held.is_unknown);
    }
}
