//! Histories of threads that record themselves. A thread's number is that of its life, too.

use std::sync::Arc;

use trace_format::{
    EventKind::{Abandon, Acquire, Destroy, Init, Lost, Release, TryFail, Wait, Wake},
    wire::{WireEvent, code},
};

use super::*;
use crate::{compose::Composer, order, preload::lanes::Image};

const MUTEX: u64 = 0x1000;
const COND: u64 = 0x2000;

/// What was told, and the rows that it made.
struct Told {
    composer: Composer,
    rows: Vec<Event>,
}

/// A row without what most tests don't ask about: time, what, mode, how long, why.
type Short = (i64, EventKind, Option<Mode>, Option<i64>, Option<i32>);

impl Told {
    fn with_filters(filters: Filters) -> Self {
        let tasks = Tasks::new([], Box::new(|_, _| None));
        let composer = Composer::new(tasks, false, false).with_preload(false, false, filters);
        Self { composer, rows: Vec::new() }
    }

    fn new() -> Self {
        let mut told = Self::with_filters(Filters::default());
        told.thread(1).thread(2);
        told
    }

    /// With a kernel side that records futexes.
    fn with_kernel() -> Self {
        let mut told = Self::new();
        told.composer = Composer::new(Tasks::new([], Box::new(|_, _| None)), true, false).with_preload(
            true,
            false,
            Filters::default(),
        );
        told.thread(1).thread(2);
        told
    }

    fn thread(&mut self, tid: u32) -> &mut Self {
        let image = Arc::new(Image { id: 0, pid: 1, new_program: true, ts_ns: 1, known: None });
        let comm = *b"thread\0\0\0\0\0\0\0\0\0\0";
        let life = Life { image, tid, own_tid: tid + 100, begun_ns: 2, comm };
        self.step(2, tid, &Step::Begin(&life))
    }

    fn step(&mut self, ts_ns: u64, tid: u32, step: &Step<'_>) -> &mut Self {
        self.composer.step(ts_ns, tid, step, &mut self.rows);
        self
    }

    fn tell(&mut self, ts_ns: u64, tid: u32, (op, api): (u8, u8), address: u64, rest: &[Unit]) -> &mut Self {
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
        self.tell(ts_ns, tid, (op, api::MUTEX), MUTEX, &[])
    }

    /// The kernel side: the task of this number and a futex word.
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
        self.composer.record(&order::Record::Event(event), &mut self.rows);
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
fn a_free_mutex_is_acquired_without_a_wait_and_released() {
    let mut told = Told::new();
    told.mutex(10, 1, op::ACQUIRED).mutex(30, 1, op::RELEASED);
    assert_eq!(told.short(), [(10, Acquire, X, Some(0), None), (30, Release, X, None, None)]);
    let acquire = told.rows[0];
    assert_eq!((acquire.blocked_ns, acquire.runq_ns, acquire.cpu), (Some(0), Some(0), None));
}

#[test]
fn a_wait_names_the_owner_by_its_number_and_ends_with_the_lock_or_without() {
    let mut told = Told::new();
    told.mutex(10, 1, op::ACQUIRED)
        .tell(20, 2, (op::WAIT, api::MUTEX), MUTEX, &[[101, 0]])
        .tell(50, 2, (op::FAILED, api::MUTEX), MUTEX, &[[110, 0]])
        .tell(60, 2, (op::WAIT, api::MUTEX), MUTEX, &[[999, 0]])
        .mutex(70, 1, op::RELEASED)
        .mutex(75, 2, op::WAITED);
    assert_eq!(
        told.short()[1..],
        [
            (20, Wait, X, None, None),
            (50, Abandon, X, Some(30), Some(110)),
            (60, Wait, X, None, None),
            (70, Release, X, None, None),
            (75, Acquire, X, Some(15), None),
        ]
    );
    assert_eq!((told.rows[1].peer_task, told.rows[3].peer_task), (told.rows[0].task, None));
    let acquire = told.rows[5];
    assert_eq!((acquire.blocked_ns, acquire.runq_ns), (None, None), "no kernel side told");
}

#[test]
fn what_is_refused_at_once_never_waited() {
    let mut told = Told::new();
    told.tell(10, 1, (op::FAILED, api::MUTEX), MUTEX, &[[16, 0]]);
    assert_eq!(told.short(), [(10, TryFail, X, None, Some(16))]);
}

#[test]
fn a_mutex_whose_owner_died_is_acquired_all_the_same() {
    let mut told = Told::new();
    told.mutex(10, 1, op::ACQUIRED_DEAD).tell(20, 2, (op::WAIT, api::MUTEX), MUTEX, &[[0, 0]]).mutex(
        30,
        2,
        op::WAITED_DEAD,
    );
    assert_eq!(
        told.short(),
        [
            (10, Acquire, X, Some(0), Some(130)),
            (20, Wait, X, None, None),
            (30, Acquire, X, Some(10), Some(130))
        ]
    );
}

#[test]
fn an_rwlock_is_given_back_as_it_was_taken_though_the_call_does_not_say() {
    let mut told = Told::new();
    let lock = 0x3000;
    told.tell(10, 1, (op::ACQUIRED, api::RWLOCK_READ), lock, &[])
        .tell(11, 1, (op::ACQUIRED, api::RWLOCK_READ), lock, &[])
        .tell(12, 1, (op::RELEASED, api::RWLOCK), lock, &[])
        .tell(13, 1, (op::RELEASED, api::RWLOCK), lock, &[])
        .tell(20, 1, (op::ACQUIRED, api::RWLOCK_WRITE), lock, &[])
        .tell(21, 1, (op::RELEASED, api::RWLOCK), lock, &[])
        .tell(22, 1, (op::RELEASED, api::RWLOCK), lock, &[]);
    let modes: Vec<_> = told.rows.iter().map(|row| row.mode).collect();
    assert_eq!(modes, [S, S, S, S, X, X, None]);
    assert_eq!(told.kinds(), [LockKind::PthreadRwLock]);
}

#[test]
fn a_wait_on_a_condition_gives_the_mutex_back_and_takes_it_again() {
    let mut told = Told::new();
    told.mutex(10, 1, op::ACQUIRED)
        .tell(20, 1, (op::CONDITION, api::CONDITION), MUTEX, &[[COND, 0]])
        .tell(90, 1, (op::CONDITION_DONE, api::CONDITION), MUTEX, &[[COND, 0]])
        .tell(100, 1, (op::CONDITION, api::CONDITION), MUTEX, &[[COND, 0]])
        .tell(150, 1, (op::CONDITION_DONE, api::CONDITION), MUTEX, &[[COND, 110]]);
    assert_eq!(
        told.short()[1..],
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
    assert_eq!(told.kinds(), [LockKind::PthreadMutex, LockKind::CondVar]);
}

#[test]
fn semaphores_and_barriers_wait_without_being_held() {
    let mut told = Told::new();
    told.tell(10, 1, (op::ACQUIRED, api::SEMAPHORE), 0x50, &[])
        .tell(11, 1, (op::POSTED, api::SEMAPHORE), 0x50, &[])
        .tell(12, 1, (op::FAILED, api::SEMAPHORE), 0x50, &[[11, 0]])
        .tell(20, 1, (op::WAIT, api::BARRIER), 0x60, &[[0, 0]])
        .tell(30, 1, (op::WAITED, api::BARRIER), 0x60, &[]);
    assert_eq!(
        told.short(),
        [
            (10, Acquire, None, Some(0), None),
            (11, Wake, None, None, None),
            (12, TryFail, None, None, Some(11)),
            (20, Wait, None, None, None),
            (30, Acquire, None, Some(10), None),
        ]
    );
    assert_eq!(told.kinds(), [LockKind::UserSemaphore, LockKind::Barrier]);
}

#[test]
fn an_address_that_is_initialised_or_destroyed_is_another_lock_afterwards() {
    let mut told = Told::new();
    told.mutex(10, 1, op::ACQUIRED)
        .mutex(11, 1, op::INIT)
        .mutex(12, 1, op::ACQUIRED)
        .mutex(13, 1, op::DESTROY)
        .mutex(14, 1, op::ACQUIRED);
    let kinds: Vec<_> = told.rows.iter().map(|row| row.kind).collect();
    assert_eq!(kinds, [Acquire, Init, Acquire, Destroy, Acquire]);
    let locks: Vec<_> = told.rows.iter().map(|row| row.lock.unwrap().0).collect();
    assert_eq!(locks, [0, 1, 1, 1, 2]);
    let mut told = Told::new();
    told.mutex(10, 1, op::INIT);
    assert_eq!(told.kinds(), [LockKind::PthreadMutex], "no lock was there before");
}

#[test]
fn the_stack_of_a_wait_is_that_of_its_end_and_an_unknown_one_is_none() {
    let mut told = Told::new();
    let stack = Record::new(5, op::STACK, 0, 2, 0);
    told.step(5, 1, &Step::Record(stack, &[[0x111, 0x222]]));
    told.with_stack(10, 1, (op::WAIT, api::MUTEX), MUTEX, &[[0, 0]], 1).mutex(20, 1, op::WAITED).with_stack(
        30,
        1,
        (op::RELEASED, api::MUTEX),
        MUTEX,
        &[],
        2,
    );
    let stacks: Vec<_> = told.rows.iter().map(|row| row.stack).collect();
    assert_eq!(stacks, [Some(StackId(0)), Some(StackId(0)), None]);
    assert_eq!(told.composer.stacks.take_new()[0].1.user, crate::stacks::Half::Calls([0x111, 0x222].into()));
}

#[test]
fn nothing_is_paired_across_what_a_thread_lost() {
    let mut told = Told::new();
    told.tell(10, 1, (op::WAIT, api::MUTEX), MUTEX, &[[0, 0]]).tell(20, 1, (op::LOST, 0), 7, &[]).mutex(
        30,
        1,
        op::WAITED,
    );
    assert_eq!(told.short()[1..], [(20, Lost, None, None, None), (30, Acquire, X, None, None)]);
    assert_eq!((told.rows[1].count, told.rows[1].task), (Some(7), told.rows[0].task));
    assert_eq!(told.composer.tally().unpaired, 1);
}

#[test]
fn a_signal_handler_may_lock_while_its_thread_waits() {
    let mut told = Told::new();
    told.tell(10, 1, (op::WAIT, api::MUTEX), MUTEX, &[[0, 0]])
        .tell(15, 1, (op::ACQUIRED, api::MUTEX), 0x9000, &[])
        .tell(16, 1, (op::WAIT, api::MUTEX), 0x9100, &[[0, 0]])
        .tell(18, 1, (op::WAITED, api::MUTEX), 0x9100, &[])
        .mutex(30, 1, op::WAITED);
    let waits: Vec<_> = told.rows.iter().filter_map(|row| row.wait_ns).collect();
    assert_eq!(waits, [0, 2, 20]);
}

#[test]
fn the_kernel_side_tells_how_much_of_a_wait_was_sleep() {
    let mut told = Told::with_kernel();
    told.mutex(10, 1, op::ACQUIRED)
        .tell(20, 2, (op::WAIT, api::MUTEX), MUTEX, &[[0, 0]])
        .futex(22, 2, code::FUTEX_WAIT, MUTEX, (100, 5))
        .futex(60, 2, code::FUTEX_WAIT_DONE, MUTEX, (130, 8))
        .mutex(61, 2, op::WAITED);
    let last = told.rows.last().unwrap();
    assert_eq!((last.wait_ns, last.blocked_ns, last.runq_ns), (Some(41), Some(30), Some(3)));
    assert_eq!(told.rows.len(), 3, "the futex wait is no row of its own");
}

#[test]
fn after_a_condition_the_futex_of_the_mutex_shows_that_it_was_not_free() {
    let mut told = Told::with_kernel();
    told.mutex(10, 1, op::ACQUIRED)
        .tell(20, 1, (op::CONDITION, api::CONDITION), MUTEX, &[[COND, 0]])
        .futex(21, 1, code::FUTEX_WAIT, COND + 32, (0, 0))
        .futex(40, 1, code::FUTEX_WAIT_DONE, COND + 32, (15, 2))
        .futex(42, 1, code::FUTEX_WAIT, MUTEX, (15, 2))
        .futex(70, 1, code::FUTEX_WAIT_DONE, MUTEX, (40, 3))
        .tell(72, 1, (op::CONDITION_DONE, api::CONDITION), MUTEX, &[[COND, 0]]);
    assert_eq!(
        told.short()[3..],
        [(42, Wait, X, None, None), (72, Acquire, None, Some(52), None), (72, Acquire, X, Some(30), None)]
    );
    let (condition, mutex) = (told.rows[4], told.rows[5]);
    assert_eq!((condition.blocked_ns, mutex.blocked_ns, mutex.runq_ns), (Some(15), Some(25), Some(1)));
}

#[test]
fn only_threads_and_locks_that_the_filters_take_make_rows() {
    let filters = Filters { comms: vec!["thread".to_owned()], ..Filters::default() };
    let mut told = Told::with_filters(filters);
    told.thread(1).mutex(10, 1, op::ACQUIRED);
    let other = u64::from_ne_bytes(*b"other\0\0\0");
    told.tell(11, 1, (op::RENAMED, 0), 0, &[[other, 0]]).mutex(12, 1, op::RELEASED);
    assert_eq!(told.short(), [(10, Acquire, X, Some(0), None)]);

    let mut told = Told::with_filters(Filters { addresses: vec![MUTEX], ..Filters::default() });
    told.thread(1).mutex(10, 1, op::ACQUIRED).tell(11, 1, (op::ACQUIRED, api::MUTEX), 0x77, &[]);
    assert_eq!(told.rows.len(), 1);
}

#[test]
fn a_thread_that_ends_leaves_its_name_its_end_and_what_it_lost_last() {
    let mut told = Told::new();
    told.mutex(10, 2, op::ACQUIRED).tell(20, 2, (op::WAIT, api::MUTEX), 0x77, &[[0, 0]]);
    let end = End { ended_ns: 40, comm: *b"worker-2\0\0\0\0\0\0\0\0", lost: 3 };
    told.step(40, 2, &Step::End(&end, 3));
    assert_eq!((told.rows[2].kind, told.rows[2].count), (Lost, Some(3)));
    let row = told.composer.tasks.rows().iter().find(|row| row.tid == 2).unwrap().clone();
    assert_eq!((row.comm.as_deref(), row.start_ns, row.exit_ns), (Some("worker-2"), Some(2), Some(40)));
    assert_eq!(told.composer.tally().unpaired, 1);
}
