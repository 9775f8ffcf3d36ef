//! Slow paths of locks of Rust and Go. L is the lock.

use trace_format::{
    EventKind::{Acquire, Wait, Wake},
    LockKind,
    Mode::{Exclusive, Shared},
    wire::api,
};

use crate::compose::script::{Script, row};

const L: u64 = 0x6000;
const RUST: u8 = api::pack(api::RUST_MUTEX, api::BLOCKING);
const READ: u8 = api::pack(api::RUST_RWLOCK_READ, api::BLOCKING);
const WRITE: u8 = api::pack(api::RUST_RWLOCK_WRITE, api::BLOCKING);
const GO: u8 = api::pack(api::GO_MUTEX, api::BLOCKING);

/// The task of the goroutine that was seen first, second, ...
fn goroutine(number: i32) -> u32 {
    (-number).cast_unsigned()
}

#[test]
fn a_contended_call_of_rust_waits_from_its_entry_and_its_futex_waits_are_no_rows() {
    let mut s = Script::new();
    s.at(100).task(11).stack(3).call(RUST, L);
    s.at(110).task(11).sums(0, 0).futex_wait(L);
    s.at(300).task(12).stack(4).futex_wake(L, 1);
    s.at(320).task(11).sums(180, 10).woken_by(12, 4).futex_done(L, 0);
    s.at(330).task(11).returned(RUST, L, 77);
    s.expect([
        row(100, Wait).task(11).lock(L).exclusive().stack(3),
        row(330, Acquire).task(11).lock(L).exclusive().stack(3).waited(230, 180, 10).peer(12).peer_stack(4),
    ]);
    assert_eq!(s.kind(L), [LockKind::RustMutex]);
}

#[test]
fn futexes_of_no_call_make_no_rows_where_only_locks_of_rust_are_recorded() {
    let mut s = Script::without_futexes();
    s.at(100).task(11).sums(0, 0).futex_wait(0x9000);
    s.at(110).task(12).futex_wake(0x9000, 1);
    s.at(120).task(11).sums(10, 0).futex_done(0x9000, 0);
    s.at(200).task(11).call(RUST, L);
    s.at(210).task(11).sums(10, 0).futex_wait(L);
    s.at(300).task(11).sums(90, 0).futex_done(L, 0);
    s.at(310).task(11).returned(RUST, 0, 0);
    s.expect([
        row(200, Wait).task(11).lock(L).exclusive(),
        row(310, Acquire).task(11).lock(L).exclusive().waited(110, 80, 0),
    ]);
    assert_eq!(s.kind(0x9000), []);
}

#[test]
fn the_second_waiter_for_a_mutex_of_rust_does_not_name_the_first_as_its_holder() {
    let mut s = Script::new();
    s.at(100).task(11).call(RUST, L);
    s.at(200).task(11).returned(RUST, 0, 0);
    s.at(300).task(12).call(RUST, L);
    s.at(310).task(12).sums(0, 0).futex_wait(L);
    s.expect([
        row(100, Wait).task(11).lock(L).exclusive(),
        row(200, Acquire).task(11).lock(L).exclusive().waited(100, 0, 0),
        row(300, Wait).task(12).lock(L).exclusive(),
    ]);
}

#[test]
fn a_writer_of_a_rust_rwlock_sleeps_on_its_second_word() {
    let mut s = Script::new();
    s.at(100).task(11).call(WRITE, L);
    s.at(110).task(11).sums(0, 0).futex_wait(L + 4);
    s.at(120).task(12).call(READ, L);
    s.at(200).task(11).sums(90, 0).futex_done(L + 4, 0);
    s.at(210).task(11).returned(WRITE, 0, 0);
    s.at(220).task(12).returned(READ, 0, 0);
    s.expect([
        row(100, Wait).task(11).lock(L).exclusive(),
        row(120, Wait).task(12).lock(L).mode(Shared),
        row(210, Acquire).task(11).lock(L).exclusive().waited(110, 90, 0),
        row(220, Acquire).task(12).lock(L).mode(Shared).waited(100, 0, 0),
    ]);
    assert_eq!(s.kind(L), [LockKind::RustRwLock]);
}

#[test]
fn a_goroutine_that_goes_on_in_another_thread_is_the_same_task() {
    let mut s = Script::new();
    s.at(100).task(11).stack(3).extra(0xc000).call(GO, L);
    // The thread runs another goroutine meanwhile, which waits, too.
    s.at(150).task(11).stack(3).extra(0xd000).call(GO, L);
    s.at(160).task(11).sums(0, 0).futex_wait(0x9000);
    s.at(200).task(13).stack(5).extra(0xe000).go_release(L);
    s.at(230).task(12).extra(0xc000).returned(GO, 0, 0);
    s.at(300).task(12).extra(0xd000).returned(GO, 0, 0);
    s.expect([
        row(100, Wait).task(goroutine(1)).lock(L).exclusive().stack(3),
        row(150, Wait).task(goroutine(2)).lock(L).exclusive().stack(3),
        row(160, Wait).task(11).lock(0x9000),
        row(200, Wake).task(goroutine(3)).lock(L).stack(5),
        row(230, Acquire)
            .task(goroutine(1))
            .lock(L)
            .mode(Exclusive)
            .stack(3)
            .wait(130)
            .peer(goroutine(3))
            .peer_stack(5),
        row(300, Acquire)
            .task(goroutine(2))
            .lock(L)
            .mode(Exclusive)
            .stack(3)
            .wait(150)
            .peer(goroutine(3))
            .peer_stack(5),
    ]);
    assert_eq!(s.kind(L), [LockKind::GoMutex]);
}

#[test]
fn a_call_of_go_that_begins_again_with_a_larger_stack_is_one_wait() {
    let mut s = Script::new();
    s.at(100).task(11).extra(0xc000).call(GO, L);
    s.at(101).task(11).extra(0xc000).call(GO, L);
    s.at(300).task(11).extra(0xc000).returned(GO, 0, 0);
    assert_eq!(s.kinds_of_rows(L), [Wait, Acquire]);
    assert_eq!((s.waits(), s.unpaired()), (vec![(L, Some(200))], 0));
}

#[test]
fn a_release_before_a_wait_of_go_did_not_end_it() {
    let mut s = Script::new();
    s.at(100).task(12).extra(0xe000).go_release(L);
    s.at(200).task(11).extra(0xc000).call(GO, L);
    s.at(300).task(11).extra(0xc000).returned(GO, 0, 0);
    assert_eq!(s.rows()[2].peer_task(), None);
}

#[test]
fn a_wait_of_go_is_not_paired_across_a_loss_or_with_another_process() {
    let mut s = Script::new();
    s.at(100).task(11).extra(0xc000).call(GO, L);
    s.at(150).process(20).task(21).extra(0xc000).returned(GO, 0, 0);
    s.at(200).task(12).lost(1).futex_wake(0x70, 0);
    s.at(300).task(11).extra(0xc000).returned(GO, 0, 0);
    assert_eq!(s.waits(), []);
    assert_eq!(s.unpaired(), 2);
}
