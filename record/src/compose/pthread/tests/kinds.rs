//! Locks that are no mutexes. L is the lock.

use trace_format::{
    EventKind::{Abandon, Acquire, Destroy, Init, Release, TryFail, Wait, Wake},
    LockKind,
    Mode::{Exclusive, Shared},
    wire::api,
};

use crate::compose::script::{Script, row};

const L: u64 = 0x6000;

const READ: u8 = api::of(api::RWLOCK_READ, api::WAITS);
const WRITE: u8 = api::of(api::RWLOCK_WRITE, api::WAITS);
const TRY_WRITE: u8 = api::of(api::RWLOCK_WRITE, api::TRIES);
const SPIN: u8 = api::of(api::SPIN, api::WAITS);
const RETRIED: u8 = api::of(api::SPIN, api::RETRIES);
const BARRIER: u8 = api::of(api::BARRIER, api::WAITS);
const SEM_WAIT: u8 = api::of(api::SEMAPHORE, api::WAITS);
const SEM_TRYWAIT: u8 = api::of(api::SEMAPHORE, api::TRIES);
const SEM_TIMEDWAIT: u8 = api::of(api::SEMAPHORE, api::TIMED);

fn takes(s: &mut Script, ts_ns: u64, tid: u32, function: u8) {
    s.at(ts_ns).task(tid).call(function, L);
    s.at(ts_ns + 10).task(tid).returned(function, L, 0);
}

#[test]
fn readers_share_a_lock_and_a_writer_waits_for_them() {
    let mut s = Script::new();
    takes(&mut s, 100, 11, READ);
    takes(&mut s, 120, 12, READ);
    s.at(150).task(13).call(WRITE, L);
    s.at(200).task(11).gives_back(api::RWLOCK, L);
    s.at(210).task(12).gives_back(api::RWLOCK, L);
    s.at(220).task(13).returned(WRITE, L, 0);
    s.at(300).task(13).gives_back(api::RWLOCK, L);
    s.says([
        row(110, Acquire).task(11).lock(L).mode(Shared).waited(0, 0, 0),
        row(130, Acquire).task(12).lock(L).mode(Shared).waited(0, 0, 0),
        row(150, Wait).task(13).lock(L).mode(Exclusive).peer(11),
        row(200, Release).task(11).lock(L).mode(Shared),
        row(210, Release).task(12).lock(L).mode(Shared),
        row(220, Acquire).task(13).lock(L).mode(Exclusive).waited(70, 0, 0),
        row(300, Release).task(13).lock(L).mode(Exclusive),
    ]);
    assert_eq!(s.kind(L), [LockKind::PthreadRwLock]);
}

#[test]
fn a_reader_waits_for_a_writer_and_not_for_readers() {
    let mut s = Script::new();
    takes(&mut s, 100, 11, WRITE);
    s.at(150).task(12).call(READ, L);
    s.at(200).task(11).gives_back(api::RWLOCK, L);
    s.at(210).task(12).returned(READ, L, 0);
    takes(&mut s, 220, 13, READ);
    assert_eq!(s.waits(), [(L, Some(0)), (L, Some(60)), (L, Some(0))]);
}

#[test]
fn a_release_by_somebody_whose_acquisition_was_not_seen_has_the_mode_that_the_lock_tells() {
    let mut s = Script::new();
    s.at(100).task(11).words(8, 0).gives_back(api::RWLOCK, L);
    s.at(200).task(11).words(3, 11).gives_back(api::RWLOCK, L);
    s.says([
        row(100, Release).task(11).lock(L).mode(Shared),
        row(200, Release).task(11).lock(L).mode(Exclusive),
    ]);
}

#[test]
fn a_writer_that_asks_again_is_refused_and_does_not_wait() {
    let mut s = Script::new();
    takes(&mut s, 100, 11, WRITE);
    s.at(200).task(11).words(3, 11).call(READ, L);
    s.at(210).task(11).returned(READ, L, i64::from(libc::EDEADLK));
    s.at(220).task(12).words(3, 11).call(TRY_WRITE, L);
    s.at(230).task(12).returned(TRY_WRITE, L, i64::from(libc::EBUSY));
    assert_eq!(
        s.rows()[1..],
        [
            row(210, TryFail).task(11).lock(L).mode(Shared).errno(libc::EDEADLK),
            row(230, TryFail).task(12).lock(L).mode(Exclusive).errno(libc::EBUSY),
        ]
    );
}

#[test]
fn a_spin_lock_waits_without_a_futex() {
    let mut s = Script::new();
    takes(&mut s, 100, 11, SPIN);
    s.at(150).task(12).stack(2).call(SPIN, L);
    s.at(200).task(11).gives_back(api::SPIN, L);
    s.at(210).task(12).returned(SPIN, L, 0);
    assert_eq!(s.waits(), [(L, Some(0)), (L, Some(60))]);
    assert_eq!(s.kind(L), [LockKind::PthreadSpin]);
}

#[test]
fn a_spin_lock_that_is_told_after_its_attempts_waits_from_the_first_that_failed() {
    let mut s = Script::new();
    s.at(100).task(11).stack(1).takes(RETRIED, L);
    s.at(150).task(12).stack(2).call(RETRIED, L);
    s.at(160).task(12).stack(2).call(RETRIED, L);
    s.at(200).task(11).gives_back(api::SPIN_UNLOCK_OR_INIT, L);
    s.at(210).task(12).stack(2).takes(RETRIED, L);
    s.says([
        row(100, Acquire).task(11).lock(L).mode(Exclusive).stack(1).waited(0, 0, 0),
        row(150, Wait).task(12).lock(L).mode(Exclusive).stack(2).peer(11),
        row(200, Release).task(11).lock(L).mode(Exclusive),
        row(210, Acquire).task(12).lock(L).mode(Exclusive).stack(2).waited(60, 0, 0),
    ]);
    assert_eq!(s.unpaired(), 0);
}

#[test]
fn what_gives_a_spin_lock_back_or_initialises_it_is_told_by_who_holds_it() {
    let either = api::SPIN_UNLOCK_OR_INIT;
    let mut s = Script::new();
    s.at(100).task(11).words(0, 0).gives_back(either, L);
    s.at(110).task(11).takes(RETRIED, L);
    s.at(120).task(11).words(0, 0).gives_back(either, L);
    s.at(130).task(11).words(1, 0).gives_back(either, L);
    s.at(140).task(12).words(0, 0).gives_back(either, L);
    assert_eq!(s.story(L), [Init, Acquire, Release, Init, Release]);
    assert_eq!(s.kind(L).len(), 2, "it was initialised twice");
}

#[test]
fn everybody_waits_at_a_barrier_the_last_one_too() {
    let mut s = Script::new();
    s.at(90).task(11).extra(2).begins(api::BARRIER, L);
    s.at(100).task(11).stack(1).call(BARRIER, L);
    s.at(110).task(11).sums(0, 0).futex_wait(L + 4);
    s.at(200).task(12).stack(2).call(BARRIER, L);
    s.at(210).task(12).futex_wake(L + 4, 1);
    s.at(220).task(12).returned(BARRIER, L, -1);
    s.at(230).task(11).sums(90, 5).woken_by(12, 7).futex_done(L + 4, 0);
    s.at(240).task(11).returned(BARRIER, L, 0);
    s.says([
        row(90, Init).task(11).lock(L),
        row(100, Wait).task(11).lock(L).stack(1),
        row(200, Wait).task(12).lock(L).stack(2),
        row(220, Acquire).task(12).lock(L).stack(2).waited(20, 0, 0),
        row(240, Acquire).task(11).lock(L).stack(1).waited(140, 90, 5).peer(12).peer_stack(7),
    ]);
    assert_eq!(s.kind(L), [LockKind::Barrier]);
}

#[test]
fn a_semaphore_is_waited_for_if_it_counts_zero_and_its_post_is_a_wake() {
    let mut s = Script::new();
    s.at(100).task(11).words(1, 0).call(SEM_WAIT, L);
    s.at(110).task(11).returned(SEM_WAIT, L, 0);
    s.at(150).task(12).words(0, 0).call(SEM_WAIT, L);
    s.at(160).task(12).sums(0, 0).futex_wait(L);
    s.at(200).task(11).words(0, 0).post(L);
    s.at(210).task(11).futex_wake(L, 1);
    s.at(220).task(12).sums(40, 10).futex_done(L, 0);
    s.at(230).task(12).returned(SEM_WAIT, L, 0);
    s.says([
        row(110, Acquire).task(11).lock(L).waited(0, 0, 0),
        row(150, Wait).task(12).lock(L),
        row(200, Wake).task(11).lock(L),
        row(230, Acquire).task(12).lock(L).waited(80, 40, 10),
    ]);
    assert_eq!(s.kind(L), [LockKind::UserSemaphore]);
}

#[test]
fn why_a_semaphore_was_not_had_is_told_by_its_futex_for_the_call_returns_minus_one() {
    let mut s = Script::new();
    s.at(100).task(11).words(0, 0).call(SEM_TRYWAIT, L);
    s.at(110).task(11).returned(SEM_TRYWAIT, L, -1);
    for (begin, error) in [(200, libc::ETIMEDOUT), (300, libc::EINTR)] {
        s.at(begin).task(11).words(0, 0).call(SEM_TIMEDWAIT, L);
        s.at(begin + 10).task(11).sums(0, 0).futex_wait(L);
        s.at(begin + 20).task(11).sums(8, 1).futex_done(L, -i64::from(error));
        s.at(begin + 30).task(11).returned(SEM_TIMEDWAIT, L, -1);
    }
    s.at(400).task(11).words(0, 0).extra(1).call(SEM_TIMEDWAIT, L);
    s.at(410).task(11).returned(SEM_TIMEDWAIT, L, -1);
    s.says([
        row(110, TryFail).task(11).lock(L).errno(libc::EAGAIN),
        row(200, Wait).task(11).lock(L),
        row(230, Abandon).task(11).lock(L).waited(30, 8, 1).errno(libc::ETIMEDOUT),
        row(300, Wait).task(11).lock(L),
        row(330, Abandon).task(11).lock(L).waited(30, 8, 1).errno(libc::EINTR),
        row(410, TryFail).task(11).lock(L).errno(libc::EINVAL),
    ]);
}

#[test]
fn a_lock_of_any_kind_has_its_own_life() {
    let mut s = Script::new();
    for (at, object) in (0..).zip([api::RWLOCK, api::SPIN, api::CONDITION, api::SEMAPHORE]) {
        let lock = L + at * 64;
        s.at(100).task(11).begins(object, lock);
        s.at(200).task(11).ends(object, lock);
        assert_eq!(s.story(lock), [Init, Destroy]);
    }
}
