//! Calls that are refused, and locks whose words show more than the records before. M is a mutex.

use trace_format::{
    EventKind::{Abandon, Acquire, Release, TryFail, Wait},
    wire::api,
};

use crate::compose::script::{MUTEX_LOCK, Script, row};

const M: u64 = 0x4000;
const CLOCKLOCK: u8 = api::pack(api::MUTEX, api::CLOCK);

const NORMAL: u32 = 0;
const ERRORCHECK: u32 = 2;
const ROBUST: u32 = 16;
const INHERITS: u32 = 32;
const OWNER_DIED: u32 = 0x4000_0000;

/// Threads 11 and 12 have been seen.
fn two_threads() -> Script {
    let mut s = Script::new();
    for tid in [11, 12] {
        s.at(1).task(tid).lock(M + 4096);
        s.at(2).task(tid).locked(M + 4096, 0);
        s.at(3).task(tid).unlock(M + 4096);
    }
    s
}

#[test]
fn a_mutex_that_checks_its_owner_is_not_released_by_another_thread() {
    for (kind, first) in [(ERRORCHECK, 1), (ERRORCHECK | ROBUST, 11), (INHERITS, 11)] {
        let mut s = two_threads();
        s.at(100).task(11).lock(M);
        s.at(110).task(11).locked(M, 0);
        s.at(120).task(12).words(first, 11).mutex(kind, 1).unlock(M);
        s.at(130).task(11).words(first, 11).mutex(kind, 1).unlock(M);
        s.at(140).task(11).words(0, 0).mutex(kind, 0).unlock(M);
        assert_eq!(s.kinds_of_rows(M), [Acquire, Release], "kind {kind}");
    }
}

#[test]
fn a_mutex_that_does_not_check_its_owner_is_released_by_any_thread() {
    let mut s = two_threads();
    s.at(100).task(11).lock(M);
    s.at(110).task(11).locked(M, 0);
    s.at(120).task(12).words(1, 11).mutex(NORMAL, 1).unlock(M);
    assert_eq!(s.kinds_of_rows(M), [Acquire, Release]);
}

#[test]
fn a_lock_that_was_acquired_before_the_recording_is_released() {
    let mut s = two_threads();
    s.at(100).task(11).words(1, 11).mutex(ERRORCHECK, 1).unlock(M);
    // The thread id as a process in a PID namespace sees it.
    s.at(200).task(11).words(1, 3).mutex(ERRORCHECK, 1).unlock(M);
    assert_eq!(s.kinds_of_rows(M), [Release, Release]);
}

#[test]
fn a_mutex_in_use_is_not_destroyed() {
    let mut s = two_threads();
    s.at(100).task(11).lock(M);
    s.at(110).task(11).locked(M, 0);
    s.at(120).task(12).words(1, 11).mutex(NORMAL, 1).destroy(M);
    s.at(130).task(11).unlock(M);
    assert_eq!(s.kinds_of_rows(M), [Acquire, Release]);
}

#[test]
fn the_lock_word_names_an_owner_from_before_the_recording() {
    let mut s = two_threads();
    s.at(100).task(12).words(2, 11).call(MUTEX_LOCK, M);
    s.at(300).task(12).locked(M, 0);
    s.at(400).task(12).words(1, 12).call(MUTEX_LOCK, M);
    assert_eq!(
        s.rows()[4..],
        [
            row(100, Wait).task(12).lock(M).exclusive().peer(11),
            row(300, Acquire).task(12).lock(M).exclusive().waited(200, 0, 0),
        ],
        "no task waits for itself, except in a futex"
    );
}

#[test]
fn a_lock_word_alone_does_not_make_a_call_wait_during_a_release() {
    let mut s = two_threads();
    s.at(100).task(11).lock(M);
    s.at(110).task(11).locked(M, 0);
    s.at(200).task(11).words(1, 11).unlock(M);
    s.at(201).task(12).words(1, 11).call(MUTEX_LOCK, M);
    s.at(220).task(12).locked(M, 0);
    assert_eq!(s.waits()[2..], [(M, Some(0)), (M, Some(0))]);
}

#[test]
fn a_call_on_a_lock_with_a_free_word_does_not_wait_for_a_recorded_holder() {
    let mut s = two_threads();
    s.at(100).task(11).lock(M);
    s.at(110).task(11).locked(M, 0);
    s.at(200).task(12).words(0, 0).call(MUTEX_LOCK, M);
    s.at(210).task(12).locked(M, 0);
    assert_eq!(s.waits()[2..], [(M, Some(0)), (M, Some(0))]);
}

#[test]
fn a_mutex_of_a_dead_owner_is_acquired_without_a_wait() {
    /// `FUTEX_LOCK_PI`
    const LOCK_PI: u8 = 6;
    let mut s = two_threads();
    s.at(100).task(11).lock(M);
    s.at(110).task(11).locked(M, 0);
    s.at(200).task(12).words(OWNER_DIED, 11).call(MUTEX_LOCK, M);
    s.at(210).task(12).sums(0, 0).futex_command(M, LOCK_PI);
    s.at(220).task(12).sums(0, 0).futex_done(M, 0);
    s.at(230).task(12).locked(M, 130);
    assert_eq!(
        s.rows().last(),
        Some(&row(230, Acquire).task(12).lock(M).exclusive().waited(0, 0, 0).errno(130))
    );
    assert_eq!(s.kinds_of_rows(M), [Acquire, Acquire]);
}

#[test]
fn a_call_with_an_invalid_clock_does_not_wait_on_a_held_lock() {
    let mut s = two_threads();
    s.at(100).task(11).lock(M);
    s.at(110).task(11).locked(M, 0);
    s.at(200).task(12).words(1, 11).extra(1).call(CLOCKLOCK, M);
    s.at(210).task(12).returned(CLOCKLOCK, M, 22);
    s.at(300).task(12).words(1, 11).call(CLOCKLOCK, M);
    s.at(310).task(12).returned(CLOCKLOCK, M, 110);
    assert_eq!(s.kinds_of_rows(M), [Acquire, TryFail, Wait, Abandon]);
}

#[test]
fn invalid_counts_of_semaphores_and_barriers_are_refused() {
    let mut s = Script::new();
    s.at(100).task(11).extra(1 << 31).init_of(api::SEMAPHORE, M);
    s.at(110).task(11).extra(0).init_of(api::BARRIER, M);
    s.at(120).task(11).words(0x7fff_ffff, 0).post(M);
    s.expect([]);
}
