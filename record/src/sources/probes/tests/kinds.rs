//! Locks other than mutexes. L is the lock.

use trace_format::{
    EventKind::{Abandon, Acquire, Destroy, Init, Release, TryFail, Wait, Wake},
    LockKind,
    Mode::{Exclusive, Shared},
    wire::api,
};

use crate::compose::script::{Script, row};

const L: u64 = 0x6000;

const READ: u8 = api::pack(api::RWLOCK_READ, api::BLOCKING);
const WRITE: u8 = api::pack(api::RWLOCK_WRITE, api::BLOCKING);
const TRY_WRITE: u8 = api::pack(api::RWLOCK_WRITE, api::TRY);
const SPIN: u8 = api::pack(api::SPIN, api::BLOCKING);
const RETRIED: u8 = api::pack(api::SPIN, api::RETRY);
const BARRIER: u8 = api::pack(api::BARRIER, api::BLOCKING);
const SEM_WAIT: u8 = api::pack(api::SEMAPHORE, api::BLOCKING);
const SEM_TRYWAIT: u8 = api::pack(api::SEMAPHORE, api::TRY);
const SEM_TIMEDWAIT: u8 = api::pack(api::SEMAPHORE, api::TIMED);

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
    s.at(200).task(11).release(api::RWLOCK, L);
    s.at(210).task(12).release(api::RWLOCK, L);
    s.at(220).task(13).returned(WRITE, L, 0);
    s.at(300).task(13).release(api::RWLOCK, L);
    s.expect([
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
fn a_reader_waits_for_a_writer_but_not_for_readers() {
    let mut s = Script::new();
    takes(&mut s, 100, 11, WRITE);
    s.at(150).task(12).call(READ, L);
    s.at(200).task(11).release(api::RWLOCK, L);
    s.at(210).task(12).returned(READ, L, 0);
    takes(&mut s, 220, 13, READ);
    assert_eq!(s.waits(), [(L, Some(0)), (L, Some(60)), (L, Some(0))]);
}

#[test]
fn a_release_without_an_acquisition_has_the_mode_of_the_lock_words() {
    let mut s = Script::new();
    s.at(100).task(11).words(8, 0).release(api::RWLOCK, L);
    s.at(200).task(11).words(3, 11).release(api::RWLOCK, L);
    s.expect([
        row(100, Release).task(11).lock(L).mode(Shared),
        row(200, Release).task(11).lock(L).mode(Exclusive),
    ]);
}

#[test]
fn a_writer_that_locks_again_is_refused_without_a_wait() {
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
            row(230, TryFail).task(12).lock(L).mode(Exclusive).errno(libc::EBUSY).by_try(),
        ]
    );
}

#[test]
fn a_spin_lock_waits_without_a_futex() {
    let mut s = Script::new();
    takes(&mut s, 100, 11, SPIN);
    s.at(150).task(12).stack(2).call(SPIN, L);
    s.at(200).task(11).release(api::SPIN, L);
    s.at(210).task(12).returned(SPIN, L, 0);
    assert_eq!(s.waits(), [(L, Some(0)), (L, Some(60))]);
    assert_eq!(s.kind(L), [LockKind::PthreadSpin]);
}

#[test]
fn a_retried_spin_lock_waits_from_its_first_failed_attempt() {
    let mut s = Script::new();
    s.at(100).task(11).stack(1).acquired(RETRIED, L);
    s.at(150).task(12).stack(2).call(RETRIED, L);
    s.at(160).task(12).stack(2).call(RETRIED, L);
    s.at(200).task(11).release(api::SPIN_UNLOCK_OR_INIT, L);
    s.at(210).task(12).stack(2).acquired(RETRIED, L);
    s.expect([
        row(100, Acquire).task(11).lock(L).mode(Exclusive).stack(1).waited(0, 0, 0),
        row(150, Wait).task(12).lock(L).mode(Exclusive).stack(2).peer(11),
        row(200, Release).task(11).lock(L).mode(Exclusive),
        row(210, Acquire).task(12).lock(L).mode(Exclusive).stack(2).waited(60, 0, 0),
    ]);
    assert_eq!(s.unpaired(), 0);
}

#[test]
fn a_function_that_releases_or_initialises_a_spin_lock_does_what_its_holder_allows() {
    let either = api::SPIN_UNLOCK_OR_INIT;
    let mut s = Script::new();
    s.at(100).task(11).words(0, 0).release(either, L);
    s.at(110).task(11).acquired(RETRIED, L);
    s.at(120).task(11).words(0, 0).release(either, L);
    s.at(130).task(11).words(1, 0).release(either, L);
    s.at(140).task(12).words(0, 0).release(either, L);
    assert_eq!(s.kinds_of_rows(L), [Init, Acquire, Release, Init, Release]);
    assert_eq!(s.kind(L).len(), 2, "it was initialised twice");
}

#[test]
fn all_callers_wait_at_a_barrier_including_the_last_one() {
    let mut s = Script::new();
    s.at(90).task(11).extra(2).init_of(api::BARRIER, L);
    s.at(100).task(11).stack(1).call(BARRIER, L);
    s.at(110).task(11).sums(0, 0).futex_wait(L + 4);
    s.at(200).task(12).stack(2).call(BARRIER, L);
    s.at(210).task(12).futex_wake(L + 4, 1);
    s.at(220).task(12).returned(BARRIER, L, -1);
    s.at(230).task(11).sums(90, 5).woken_by(12, 7).futex_done(L + 4, 0);
    s.at(240).task(11).returned(BARRIER, L, 0);
    s.expect([
        row(90, Init).task(11).lock(L),
        row(100, Wait).task(11).lock(L).stack(1),
        row(200, Wait).task(12).lock(L).stack(2),
        row(220, Acquire).task(12).lock(L).stack(2).waited(20, 0, 0),
        row(240, Acquire).task(11).lock(L).stack(1).waited(140, 90, 5).peer(12).peer_stack(7),
    ]);
    assert_eq!(s.kind(L), [LockKind::Barrier]);
}

#[test]
fn a_call_waits_for_a_semaphore_at_zero_and_a_post_is_a_wake() {
    let mut s = Script::new();
    s.at(100).task(11).words(1, 0).call(SEM_WAIT, L);
    s.at(110).task(11).returned(SEM_WAIT, L, 0);
    s.at(150).task(12).words(0, 0).call(SEM_WAIT, L);
    s.at(160).task(12).sums(0, 0).futex_wait(L);
    s.at(200).task(11).words(0, 0).post(L);
    s.at(210).task(11).futex_wake(L, 1);
    s.at(220).task(12).sums(40, 10).futex_done(L, 0);
    s.at(230).task(12).returned(SEM_WAIT, L, 0);
    s.expect([
        row(110, Acquire).task(11).lock(L).waited(0, 0, 0),
        row(150, Wait).task(12).lock(L),
        row(200, Wake).task(11).lock(L),
        row(230, Acquire).task(12).lock(L).waited(80, 40, 10),
    ]);
    assert_eq!(s.kind(L), [LockKind::UserSemaphore]);
}

#[test]
fn the_errno_of_a_failed_semaphore_call_comes_from_its_futex() {
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
    s.expect([
        row(110, TryFail).task(11).lock(L).errno(libc::EAGAIN).by_try(),
        row(200, Wait).task(11).lock(L).timed(),
        row(230, Abandon).task(11).lock(L).waited(30, 8, 1).errno(libc::ETIMEDOUT),
        row(300, Wait).task(11).lock(L).timed(),
        row(330, Abandon).task(11).lock(L).waited(30, 8, 1).errno(libc::EINTR),
        row(410, TryFail).task(11).lock(L).errno(libc::EINVAL).timed(),
    ]);
}

#[test]
fn locks_of_all_kinds_are_initialised_and_destroyed() {
    let mut s = Script::new();
    for (at, object) in (0..).zip([api::RWLOCK, api::SPIN, api::CONDITION, api::SEMAPHORE]) {
        let lock = L + at * 64;
        s.at(100).task(11).init_of(object, lock);
        s.at(200).task(11).destroy_of(object, lock);
        assert_eq!(s.kinds_of_rows(lock), [Init, Destroy]);
    }
}
