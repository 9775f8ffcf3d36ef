//! Calls of mutexes and condition variables as scripts, and the rows that they become. M is a mutex, C a
//! condition variable.

use trace_format::{
    EventKind::{Abandon, Acquire, Destroy, Init, Lost, Release, TryFail, Wait},
    LockKind,
    wire::{WireTask, api, code},
};

use crate::compose::script::{COND_WAIT, Script, row};

mod kinds;
mod refused;
mod slow_paths;

const M: u64 = 0x4000;
const C: u64 = 0x5000;

const MUTEX_TRYLOCK: u8 = api::pack(api::MUTEX, api::TRY);
const MUTEX_TIMEDLOCK: u8 = api::pack(api::MUTEX, api::TIMED);
const MUTEX_CLOCKLOCK: u8 = api::pack(api::MUTEX, api::CLOCK);

#[test]
fn an_uncontended_lock_is_acquired_without_a_wait() {
    let mut s = Script::new();
    s.at(100).task(11).stack(1).lock(M);
    s.at(130).task(11).locked(M, 0);
    s.at(200).task(11).stack(2).unlock(M);
    s.expect([
        row(130, Acquire).task(11).lock(M).exclusive().stack(1).waited(0, 0, 0),
        row(200, Release).task(11).lock(M).exclusive().stack(2),
    ]);
    assert_eq!(s.kind(M), [LockKind::PthreadMutex]);
}

#[test]
fn a_call_on_a_held_lock_waits_from_its_begin_and_names_the_holder() {
    let mut s = Script::new();
    s.at(100).task(11).stack(1).lock(M);
    s.at(110).task(11).locked(M, 0);
    s.at(200).task(12).stack(2).lock(M);
    s.at(300).task(11).stack(3).unlock(M);
    s.at(320).task(12).locked(M, 0);
    s.expect([
        row(110, Acquire).task(11).lock(M).exclusive().stack(1).waited(0, 0, 0),
        row(200, Wait).task(12).lock(M).exclusive().stack(2).peer(11),
        row(300, Release).task(11).lock(M).exclusive().stack(3),
        row(320, Acquire).task(12).lock(M).exclusive().stack(2).waited(120, 0, 0),
    ]);
}

#[test]
fn a_long_call_on_a_free_lock_is_not_contended() {
    let mut s = Script::new();
    s.at(100).task(11).lock(M);
    s.at(9_000_000).task(11).locked(M, 0);
    assert_eq!(s.waits(), [(M, Some(0))]);
}

#[test]
fn the_sleep_in_a_contended_call_belongs_to_it_and_makes_no_futex_rows() {
    let mut s = Script::new();
    s.at(100).task(11).lock(M);
    s.at(110).task(11).locked(M, 0);
    s.at(200).task(12).stack(2).lock(M);
    s.at(210).task(12).sums(1_000, 100).futex_wait(M);
    s.at(300).task(11).unlock(M);
    s.at(310).task(11).stack(5).futex_wake(M, 1);
    s.at(330).task(12).sums(1_090, 120).woken_by(11, 5).futex_done(M, 0);
    s.at(340).task(12).sums(1_090, 120).futex_wait(M);
    s.at(390).task(12).sums(1_130, 125).woken_by(13, 6).futex_done(M, 0);
    s.at(400).task(12).locked(M, 0);
    s.expect([
        row(110, Acquire).task(11).lock(M).exclusive().waited(0, 0, 0),
        row(200, Wait).task(12).lock(M).exclusive().stack(2).peer(11),
        row(300, Release).task(11).lock(M).exclusive(),
        row(400, Acquire).task(12).lock(M).exclusive().stack(2).waited(200, 130, 25).peer(13).peer_stack(6),
    ]);
    assert_eq!(s.kind(M), [LockKind::PthreadMutex], "the word is not a lock of its own");
}

#[test]
fn a_call_on_a_lock_that_seemed_free_waits_from_its_first_futex_wait() {
    let mut s = Script::new();
    s.at(100).task(12).stack(2).lock(M);
    s.at(150).task(12).sums(0, 0).futex_wait(M);
    s.at(250).task(12).sums(90, 5).futex_done(M, 0);
    s.at(260).task(12).locked(M, 0);
    s.expect([
        row(150, Wait).task(12).lock(M).exclusive().stack(2),
        row(260, Acquire).task(12).lock(M).exclusive().stack(2).waited(110, 90, 5),
    ]);
}

#[test]
fn without_futex_records_the_sleep_in_a_wait_is_unknown() {
    let mut s = Script::with_futexes(false);
    s.at(100).task(11).lock(M);
    s.at(110).task(11).locked(M, 0);
    s.at(200).task(12).lock(M);
    s.at(320).task(12).locked(M, 0);
    assert_eq!(s.rows()[2], row(320, Acquire).task(12).lock(M).exclusive().wait(120));
}

#[test]
fn a_trylock_fails_or_succeeds_and_never_waits() {
    let mut s = Script::new();
    s.at(100).task(11).call(MUTEX_TRYLOCK, M);
    s.at(110).task(11).returned(MUTEX_TRYLOCK, M, 0);
    s.at(120).task(12).stack(4).call(MUTEX_TRYLOCK, M);
    s.at(130).task(12).returned(MUTEX_TRYLOCK, M, 16);
    s.expect([
        row(110, Acquire).task(11).lock(M).exclusive().waited(0, 0, 0).by_try(),
        row(130, TryFail).task(12).lock(M).exclusive().stack(4).errno(16).by_try(),
    ]);
}

#[test]
fn a_timed_lock_that_gives_up_is_an_abandoned_wait() {
    let mut s = Script::new();
    s.at(100).task(11).lock(M);
    s.at(110).task(11).locked(M, 0);
    s.at(200).task(12).stack(4).call(MUTEX_TIMEDLOCK, M);
    s.at(210).task(12).futex_wait(M);
    s.at(290).task(12).sums(75, 2).futex_done(M, -110);
    s.at(300).task(12).returned(MUTEX_TIMEDLOCK, M, 110);
    s.expect([
        row(110, Acquire).task(11).lock(M).exclusive().waited(0, 0, 0),
        row(200, Wait).task(12).lock(M).exclusive().stack(4).peer(11).timed(),
        row(300, Abandon).task(12).lock(M).exclusive().stack(4).waited(100, 75, 2).errno(110),
    ]);
}

#[test]
fn a_timed_lock_with_an_invalid_time_fails_without_a_wait() {
    let mut s = Script::new();
    s.at(100).task(11).stack(1).call(MUTEX_CLOCKLOCK, M);
    s.at(110).task(11).returned(MUTEX_CLOCKLOCK, M, 22);
    s.expect([row(110, TryFail).task(11).lock(M).exclusive().stack(1).errno(22).timed()]);
}

#[test]
fn a_recursive_lock_does_not_contend_with_itself_and_is_held_until_the_last_unlock() {
    let mut s = Script::new();
    s.at(100).task(11).lock(M);
    s.at(110).task(11).locked(M, 0);
    s.at(120).task(11).lock(M);
    s.at(130).task(11).locked(M, 0);
    s.at(140).task(11).unlock(M);
    s.at(150).task(12).lock(M);
    s.at(160).task(11).unlock(M);
    s.at(170).task(12).locked(M, 0);
    s.at(180).task(12).unlock(M);
    assert_eq!(s.waits(), [(M, Some(0)), (M, Some(0)), (M, Some(20))]);
    assert_eq!(s.kinds_of_rows(M), [Acquire, Acquire, Release, Wait, Release, Acquire, Release]);
}

#[test]
fn a_lock_of_a_dead_owner_is_acquired_with_eownerdead() {
    let mut s = Script::new();
    s.at(100).task(11).lock(M);
    s.at(110).task(11).locked(M, 130);
    s.expect([row(110, Acquire).task(11).lock(M).exclusive().waited(0, 0, 0).errno(130)]);
}

#[test]
fn a_condition_wait_releases_the_mutex_and_acquires_it_again() {
    let mut s = Script::new();
    s.at(100).task(11).lock(M);
    s.at(110).task(11).locked(M, 0);
    s.at(200).task(11).stack(3).cond_wait(C, M);
    s.at(210).task(11).sums(0, 0).futex_wait(C + 40);
    s.at(250).task(12).lock(M);
    s.at(260).task(12).locked(M, 0);
    s.at(300).task(12).futex_wake(C + 40, 1);
    s.at(310).task(11).sums(80, 10).woken_by(12, 8).futex_done(C + 40, 0);
    s.at(320).task(11).sums(80, 10).futex_wait(M);
    s.at(350).task(12).unlock(M);
    s.at(370).task(11).sums(110, 15).woken_by(12, 9).futex_done(M, 0);
    s.at(380).task(11).returned(COND_WAIT, M, 0);
    let rows: Vec<_> = s.rows().into_iter().skip(1).collect();
    assert_eq!(
        rows,
        [
            row(200, Release).task(11).lock(M).exclusive().stack(3),
            row(200, Wait).task(11).lock(C).stack(3),
            row(260, Acquire).task(12).lock(M).exclusive().waited(0, 0, 0),
            row(320, Wait).task(11).lock(M).exclusive().stack(3).peer(12),
            row(350, Release).task(12).lock(M).exclusive(),
            row(380, Acquire).task(11).lock(C).stack(3).waited(180, 80, 10).peer(12).peer_stack(8),
            row(380, Acquire).task(11).lock(M).exclusive().stack(3).waited(60, 30, 5).peer(12).peer_stack(9),
        ]
    );
    assert_eq!(s.kind(C), [LockKind::CondVar]);
    assert_eq!(s.kind(C + 40), []);
}

#[test]
fn a_condition_wait_that_times_out_is_abandoned_and_has_the_mutex() {
    let mut s = Script::new();
    s.at(200).task(11).cond_wait(C, M);
    s.at(900).task(11).returned(COND_WAIT, M, 110);
    s.at(950).task(12).lock(M);
    s.expect([
        row(200, Release).task(11).lock(M).exclusive(),
        row(200, Wait).task(11).lock(C),
        row(900, Abandon).task(11).lock(C).waited(700, 0, 0).errno(110),
        row(900, Acquire).task(11).lock(M).exclusive().waited(0, 0, 0),
        row(950, Wait).task(12).lock(M).exclusive().peer(11),
    ]);
}

#[test]
fn a_task_in_a_condition_wait_does_not_hold_the_mutex() {
    let mut s = Script::new();
    s.at(100).task(11).lock(M);
    s.at(110).task(11).locked(M, 0);
    s.at(200).task(11).cond_wait(C, M);
    s.at(250).task(12).lock(M);
    s.at(260).task(12).locked(M, 0);
    assert_eq!(s.waits(), [(M, Some(0)), (M, Some(0))]);
}

#[test]
fn a_foreign_futex_inside_a_call_is_a_lock_of_its_own() {
    let mut s = Script::new();
    s.at(100).task(11).lock(M);
    s.at(110).task(11).futex_wait(M + 40);
    s.at(120).task(11).futex_done(M + 40, 0);
    s.at(130).task(11).locked(M, 0);
    assert_eq!(s.waits(), [(M + 40, Some(10)), (M, Some(0))]);
    assert_eq!(s.kind(M + 40), [LockKind::Futex]);
}

#[test]
fn initialising_a_mutex_starts_another_lock_and_destroying_it_ends_it() {
    let mut s = Script::new();
    s.at(100).task(11).stack(1).init(M);
    s.at(200).task(11).destroy(M);
    s.at(300).task(11).stack(2).init(M);
    s.at(310).task(11).lock(M);
    s.at(320).task(11).locked(M, 0);
    assert_eq!(s.kinds_of_rows(M), [Init, Destroy, Init, Acquire]);
    let locks = s.composer().locks.rows();
    assert_eq!(locks.len(), 2);
    assert!(locks.iter().all(|lock| lock.init_stack.is_some()));
    assert_eq!((locks[0].last_ns, locks[1].first_ns), (200, 300));
}

#[test]
fn the_return_of_a_call_that_began_before_the_recording_is_an_acquisition_of_unknown_wait() {
    let mut s = Script::new();
    s.at(100).task(11).locked(M, 0);
    s.at(150).task(12).lock(M);
    s.expect([
        row(100, Acquire).task(11).lock(M).exclusive(),
        row(150, Wait).task(12).lock(M).exclusive().peer(11),
    ]);
    assert_eq!(s.unpaired(), 1);
}

#[test]
fn the_return_of_an_unknown_call_on_an_unknown_lock_is_counted() {
    let mut s = Script::new();
    s.at(100).task(11).locked(0, 0);
    s.expect([]);
    assert_eq!(s.unpaired(), 1);
}

#[test]
fn a_return_without_an_address_ends_the_last_call_of_its_function() {
    let mut s = Script::new();
    s.at(100).task(11).lock(M);
    s.at(110).task(11).locked(0, 0);
    s.at(120).task(11).stack(3).cond_wait(C, M);
    s.at(200).task(11).returned(COND_WAIT, 0, 0);
    s.at(210).task(11).locked(0, 0);
    assert_eq!(s.waits(), [(M, Some(0)), (C, Some(80)), (M, Some(0))]);
    assert_eq!(s.unpaired(), 1, "the return without a call");
}

#[test]
fn a_call_that_never_returned_does_not_end_with_another_one() {
    let mut s = Script::new();
    s.at(100).task(11).lock(M);
    s.at(200).task(11).lock(M + 64);
    s.at(300).task(11).locked(M, 0);
    assert_eq!(s.waits(), [(M, Some(0))]);
    assert_eq!(s.unpaired(), 1, "the call on the other lock");
}

#[test]
fn after_a_loss_an_open_call_keeps_its_outcome_but_neither_wait_nor_site() {
    let mut s = Script::new();
    s.at(100).task(12).lock(M);
    s.at(110).task(12).locked(M, 0);
    s.at(200).task(11).stack(1).lock(M);
    s.at(500).task(12).lost(3).unlock(M);
    s.at(600).task(11).locked(M, 0);
    s.expect([
        row(110, Acquire).task(12).lock(M).exclusive().waited(0, 0, 0),
        row(200, Wait).task(11).lock(M).exclusive().stack(1).peer(12),
        row(500, Lost).count(3),
        row(500, Release).task(12).lock(M).exclusive(),
        row(600, Acquire).task(11).lock(M).exclusive(),
    ]);
}

#[test]
fn after_a_loss_a_return_ends_an_older_call_only_if_that_call_waited_on_its_lock() {
    let mut s = Script::new();
    s.at(100).task(11).lock(M);
    s.at(100).task(12).lock(M);
    s.at(150).task(12).futex_wait(M);
    s.at(200).task(13).lost(9).futex_wake(0x60, 0);
    s.at(300).task(11).locked(0, 0);
    s.at(310).task(12).futex_done(M, 0);
    s.at(320).task(12).locked(0, 0);
    assert_eq!(s.waits(), [(M, None)]);
    assert_eq!(s.rows().last(), Some(&row(320, Acquire).task(12).lock(M).exclusive()));
    assert_eq!(s.unpaired(), 1);
}

#[test]
fn after_a_loss_no_task_is_blamed_for_a_hold_that_may_be_over() {
    let mut s = Script::new();
    s.at(100).task(12).lock(M);
    s.at(110).task(12).locked(M, 0);
    s.at(500).task(13).lost(1).lock(M + 64);
    s.at(600).task(11).lock(M);
    s.at(610).task(11).locked(M, 0);
    assert_eq!(s.waits(), [(M, Some(0)), (M, Some(0))]);
}

#[test]
fn losses_after_the_last_event_of_a_cpu_are_reported_once_at_the_end() {
    let mut s = Script::new();
    s.at(100).task(11).lost(2).lock(M);
    s.at(200).task(11).cpu(1).lock(M + 64);
    s.finish(&[(0, 2), (1, 4)]);
    assert_eq!(s.lost_rows(), [(100, 0, 2), (200, 1, 4)]);
}

#[test]
fn a_reused_thread_id_does_not_inherit_an_open_call() {
    let mut s = Script::new();
    s.at(100).task(11).lock(M);
    s.task_record(WireTask { ts_ns: 200, code: code::TASK_FORK, tgid: 10, tid: 11, ..Default::default() });
    s.at(300).task(11).locked(M, 0);
    assert_eq!(s.waits(), [(M, None)]);
    assert_eq!(s.composer().tasks.rows().len(), 2);
}

#[test]
fn an_exec_ends_all_locks_of_the_process() {
    let mut s = Script::new();
    s.at(100).task(10).lock(M);
    s.at(110).task(10).locked(M, 0);
    s.task_record(WireTask { ts_ns: 200, code: code::TASK_EXEC, tgid: 10, tid: 10, ..Default::default() });
    s.at(300).task(11).lock(M);
    s.at(310).task(11).locked(M, 0);
    assert_eq!(s.waits(), [(M, Some(0)), (M, Some(0))]);
    assert_eq!(s.kind(M).len(), 2);
}

#[test]
fn the_first_vector_of_the_semantics_becomes_the_expected_rows() {
    let (a, b, c, d, e) = (11, 12, 13, 14, 15);
    let mut s = Script::new();
    s.at(999_900).task(a).stack(10).lock(M);
    s.at(1_000_000).task(a).locked(M, 0);
    s.at(1_200_000).task(b).stack(20).lock(M);
    s.at(1_300_000).task(c).stack(20).lock(M);
    s.at(1_499_000).task(d).stack(30).call(MUTEX_TRYLOCK, M);
    s.at(1_500_000).task(d).returned(MUTEX_TRYLOCK, M, 16);
    s.at(1_600_000).task(e).stack(40).call(MUTEX_TIMEDLOCK, M);
    s.at(1_700_000).task(e).returned(MUTEX_TIMEDLOCK, M, 110);
    s.at(2_000_500).task(a).unlock(M);
    s.at(2_003_000).task(b).locked(M, 0);
    s.at(2_503_999).task(b).unlock(M);
    s.at(2_505_000).task(c).locked(M, 0);
    s.at(2_505_900).task(c).unlock(M);
    assert_eq!(s.waits(), [(M, Some(0)), (M, Some(803_000)), (M, Some(1_205_000))]);
    assert_eq!(
        s.kinds_of_rows(M),
        [Acquire, Wait, Wait, TryFail, Wait, Abandon, Release, Acquire, Release, Acquire, Release]
    );
    assert!(
        s.rows()
            .iter()
            .filter(|r| **r == row(1_600_000, Wait).task(e).lock(M).exclusive().stack(40).peer(a).timed())
            .count()
            == 1
    );
}
