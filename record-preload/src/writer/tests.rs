//! Writers of several threads, and a reader that follows their links.

use std::{collections::HashSet, vec, vec::Vec};

use proptest::{collection::vec as list, prelude::*};
use trace_format::preload::{MIN_CHUNK_BYTES, pool::Cursor, state};

use super::*;
use crate::slot;

#[path = "../../tests/support/chunks.rs"]
mod chunks;
mod session;

use chunks::Chunks;
use session::{Memory, Session, free};

#[test]
fn records_continue_in_other_chunks_and_chunks_are_used_again() {
    let memory = Memory::new(3);
    let (mut session, mut owned) = (Session::start(&memory), HashSet::new());
    for _ in 0..100 {
        (0..200).for_each(|_| session.put());
        session.drain(&memory, &mut owned);
        assert!(free(&memory) >= 2 - u64::from(session.limit().load(Ordering::Relaxed) == limit::NO_CHUNK));
    }
    assert_eq!(session.slot().lost.load(Ordering::Relaxed), 0);
    session.end(&memory, &mut owned);
    assert_eq!(free(&memory), 3);
}

#[test]
fn an_empty_pool_reports_its_losses_before_the_next_record() {
    let memory = Memory::new(1);
    let (mut session, mut owned) = (Session::start(&memory), HashSet::new());
    (0..131).for_each(|_| session.put());
    assert_eq!(session.slot().lost.load(Ordering::Relaxed), 3);
    session.drain(&memory, &mut owned);
    assert_eq!((session.read.len(), session.reported, free(&memory)), (128, 0, 0));
    // The reader has followed the link of the slot by now, so that the thread can close its chunk.
    session.put();
    session.drain(&memory, &mut owned);
    assert_eq!((session.read.len(), session.reported, free(&memory)), (128, 0, 1));
    session.put();
    session.drain(&memory, &mut owned);
    assert_eq!((session.read.last(), session.reported), (Some(&132), 4));
    session.end(&memory, &mut owned);
}

#[test]
fn one_thread_can_have_the_whole_pool_and_many_share_it() {
    let memory = Memory::new(8);
    let mut owned = HashSet::new();
    let mut alone = Session::start(&memory);
    (0..8 * 128).for_each(|_| alone.put());
    assert_eq!((alone.slot().lost.load(Ordering::Relaxed), free(&memory)), (0, 0));
    alone.end(&memory, &mut owned);
    // More threads than chunks: each writes while the others are idle.
    let mut threads: Vec<Session> = (0..100).map(|_| Session::start(&memory)).collect();
    for round in 0..3 {
        for thread in &mut threads {
            thread.put();
            thread.drain(&memory, &mut owned);
            thread.take_chunk(&memory, &mut owned);
            thread.take_chunk(&memory, &mut owned);
            assert_eq!((thread.slot().lost.load(Ordering::Relaxed), thread.read.len()), (0, round + 1));
        }
    }
    assert_eq!(free(&memory), 8);
    threads.into_iter().for_each(|thread| thread.end(&memory, &mut owned));
}

#[test]
fn a_thread_that_writes_after_its_chunk_was_revoked_keeps_it() {
    let memory = Memory::new(2);
    let (mut session, mut owned) = (Session::start(&memory), HashSet::new());
    session.put();
    session.drain(&memory, &mut owned);
    session.take_chunk(&memory, &mut owned);
    session.put();
    session.take_chunk(&memory, &mut owned);
    session.put();
    assert_eq!(free(&memory), 1);
    session.end(&memory, &mut owned);
}

#[test]
fn a_thread_can_write_to_another_chunk_before_klock_releases_the_one_that_it_took() {
    let memory = Memory::new(2);
    let (mut session, mut owned) = (Session::start(&memory), HashSet::new());
    session.put();
    session.drain(&memory, &mut owned);
    session.limit().store(limit::NO_CHUNK, Ordering::Relaxed);
    session.put();
    session.cursor.close(&mut Chunks { pool: memory.pool(), owned: &mut owned });
    session.drain(&memory, &mut owned);
    assert_eq!((&session.read, free(&memory)), (&vec![0, 1], 1));
    session.end(&memory, &mut owned);
}

#[test]
fn losses_of_a_signal_handler_are_reported_before_the_next_record() {
    let memory = Memory::new(2);
    let (mut session, mut owned) = (Session::start(&memory), HashSet::new());
    session.put();
    session.lose_nested();
    session.put();
    session.drain(&memory, &mut owned);
    assert_eq!(
        (&session.read, session.reported, session.slot().lost.load(Ordering::Relaxed)),
        (&vec![0, 1], 1, 1)
    );
    assert_eq!((session.reported_nested, session.slot().nested.load(Ordering::Relaxed)), (1, 1));
}

#[test]
fn losses_of_both_reasons_are_reported_one_by_one() {
    let memory = Memory::new(1);
    let (mut session, mut owned) = (Session::start(&memory), HashSet::new());
    (0..130).for_each(|_| session.put());
    session.lose_nested();
    session.tried += 1;
    session.drain(&memory, &mut owned);
    // Closes the chunk, and takes it again.
    (0..2).for_each(|_| {
        session.put();
        session.drain(&memory, &mut owned);
    });
    assert_eq!((session.read.last(), session.reported, session.reported_nested), (Some(&132), 4, 1));
    session.end(&memory, &mut owned);
}

#[test]
fn a_stack_without_room_is_not_counted() {
    let memory = Memory::new(1);
    let mut session = Session::start(&memory);
    (0..127).for_each(|_| session.put());
    assert!(!session.put_stack(3));
    assert_eq!(session.slot().lost.load(Ordering::Relaxed), 0);
}

/// A pool whose threads run at once while a reader drains it and takes idle threads' chunks.
#[test]
fn threads_at_once_deliver_or_count_every_record() {
    const RECORDS: u64 = 200_000;
    /// The number of chunks that were taken from idle threads.
    static TAKEN: AtomicU64 = AtomicU64::new(0);
    struct Shared(Memory);
    // SAFETY: threads use it as the threads of a process do.
    unsafe impl Sync for Shared {}
    let shared = Shared(Memory::new(64));
    let shared = &shared;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|thread| {
                scope.spawn(move || {
                    let mut session = Session::start(&{ shared }.0);
                    session.put();
                    // Idle until a chunk is taken.
                    for _ in 0..300_000 {
                        if TAKEN.load(Ordering::Relaxed) > 0 {
                            break;
                        }
                        std::thread::sleep(core::time::Duration::from_millis(1));
                    }
                    for n in 1..RECORDS {
                        session.put();
                        if (n + thread) % 10_000 == 0 {
                            std::thread::sleep(core::time::Duration::from_millis(3));
                        }
                    }
                    // SAFETY: the slot belongs to this thread.
                    unsafe { slot::end_session(session.writer.slot(), [0; 16], 2) };
                    (session.slot().lost.load(Ordering::Relaxed), session.writer.pending)
                })
            })
            .collect();
        let (mut owned, mut read) = (HashSet::new(), Vec::new());
        let mut cursors: Vec<(Cursor, bool, bool)> = vec![Default::default(); 4];
        let memory = &shared.0;
        let mut ended = 0;
        while ended < 4 {
            for (index, (cursor, revoked, is_over)) in cursors.iter_mut().enumerate() {
                // SAFETY: the slot is in the region.
                let slot = unsafe { memory.region.cast::<u8>().add(4096).cast::<Slot>().add(index) };
                // SAFETY: as klock reads it.
                let (now, busy, head, first, limit) = unsafe {
                    (
                        (*slot).state.load(Ordering::Acquire),
                        (*slot).busy.load(Ordering::Acquire),
                        (*slot).head.load(Ordering::Acquire),
                        &(*slot).first,
                        &(*slot).limit,
                    )
                };
                if *is_over || now != state::LIVE && now != state::EXITED {
                    continue;
                }
                let pool = memory.pool();
                let mut chunks = Chunks { pool, owned: &mut owned };
                let before = cursor.tail();
                while let Some(piece) =
                    cursor.next(&pool, first, MIN_CHUNK_BYTES, head, &mut chunks).expect("valid links")
                {
                    for at in (piece.offset..piece.offset + piece.bytes).step_by(UNIT_BYTES) {
                        let record = Record {
                            head: memory.word(piece.chunk, at),
                            body: memory.word(piece.chunk, at + 8),
                        };
                        read.push((index, record.op(), record.time(), record.address()));
                    }
                }
                if now == state::EXITED {
                    cursor.close(&mut chunks);
                    *is_over = true;
                    ended += 1;
                } else if *revoked {
                    *revoked = false;
                    let (success, failure) = (Ordering::SeqCst, Ordering::Relaxed);
                    if busy == 0
                        && limit.compare_exchange(limit::REVOKED, limit::NO_CHUNK, success, failure).is_ok()
                    {
                        TAKEN.fetch_add(1, Ordering::Relaxed);
                        cursor.close(&mut chunks);
                    }
                } else if busy == 0 && before == head && cursor.has_chunk() {
                    let value = limit.load(Ordering::Relaxed);
                    let (success, failure) = (Ordering::SeqCst, Ordering::Relaxed);
                    *revoked = value >= limit::REPORT
                        && limit.compare_exchange(value, limit::REVOKED, success, failure).is_ok();
                }
            }
            // Longer than a store stays invisible.
            std::thread::sleep(core::time::Duration::from_micros(200));
        }
        let losses: Vec<(u64, u64)> =
            writers.into_iter().map(|thread| thread.join().expect("it ends")).collect();
        let lost: u64 = losses.iter().map(|(lost, _)| lost).sum();
        let pending: u64 = losses.iter().map(|(_, pending)| pending).sum();
        let reported: u64 = read.iter().filter(|(_, op, ..)| *op == op::LOST).map(|(.., count)| count).sum();
        let records: Vec<_> = read.iter().filter(|(_, op, ..)| *op != op::LOST).collect();
        assert_eq!((records.len() as u64 + lost, reported + pending), (4 * RECORDS, lost));
        for index in 0..4 {
            let times: Vec<u64> = records.iter().filter(|r| r.0 == index).map(|r| r.2).collect();
            assert!(times.windows(2).all(|two| two[0] < two[1]), "in the order of each thread");
        }
        assert!(owned.is_empty());
        assert_eq!(free(memory), 64);
        assert!(TAKEN.load(Ordering::Relaxed) > 0, "no chunk of an idle thread was taken");
    });
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Put,
    PutWithPayload,
    PutStack(usize),
    Nested,
    Drain,
    TakeChunk,
    /// The thread ends or is killed, and another one starts.
    Replace,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => Just(Step::Put),
        4 => Just(Step::PutWithPayload),
        2 => (1_usize..=127).prop_map(Step::PutStack),
        1 => Just(Step::Nested),
        3 => Just(Step::Drain),
        3 => Just(Step::TakeChunk),
        1 => Just(Step::Replace),
    ]
}

proptest! {
    /// Whatever threads, handlers and klock do in whatever order: every record is delivered in order, or
    /// counted as lost, and every chunk comes back.
    #[test]
    fn every_record_is_delivered_or_counted_and_no_chunk_is_missing(
        steps in list((0_usize..4, step(), 1_usize..60), 1..200),
        chunks in 1_u32..9,
    ) {
        let memory = Memory::new(chunks);
        let mut owned = HashSet::new();
        let mut sessions: Vec<Session> = (0..4).map(|_| Session::start(&memory)).collect();
        for (index, step, count) in steps {
            let session = &mut sessions[index];
            match step {
                Step::Put => (0..count).for_each(|_| session.put()),
                Step::PutWithPayload => (0..count).for_each(|_| session.put_with_payload()),
                Step::PutStack(frames) => drop(session.put_stack(frames)),
                Step::Nested => {
                    session.lose_nested();
                    session.tried += 1;
                }
                Step::Drain => session.drain(&memory, &mut owned),
                Step::TakeChunk => {
                    session.drain(&memory, &mut owned);
                    session.take_chunk(&memory, &mut owned);
                }
                Step::Replace => {
                    let new = Session::start(&memory);
                    mem::replace(session, new).end(&memory, &mut owned);
                }
            }
            prop_assert!(free(&memory) + owned.len() as u64 <= u64::from(chunks));
        }
        sessions.into_iter().for_each(|session| session.end(&memory, &mut owned));
        prop_assert!(owned.is_empty());
        prop_assert_eq!(free(&memory), u64::from(chunks));
    }
}
