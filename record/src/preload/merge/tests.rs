//! Threads as the chunks that they wrote. Times are nanoseconds, so the time of a record is its tick.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use proptest::prelude::*;
use trace_format::preload::{LOW_MASK, api, clock};

use super::{
    super::{
        batch::ProcessImage,
        budget::{Ledger, Limits, Owner},
        clock::Reading,
        fake,
    },
    *,
};

const LATER: u64 = 1 << 40;

fn merger() -> Merger {
    let reading = |at| Reading { ticks: at, ns: at, error: 0 };
    Merger::new(Timeline::new(reading(0), reading(LATER)))
}

fn acquired(ts_ns: u64, address: u64) -> Unit {
    let record = Record::new(ts_ns, op::ACQUIRED, api::MUTEX, address, 0);
    [record.head, record.body]
}

fn start(start_ns: u64) -> Chunk {
    let image = Arc::new(ProcessImage { pid: 5, ..fake::image() });
    Chunk::Start(ThreadSession { image, tid: 5, is_seen: true, own_tid: 5, start_ns, comm: [0; 16] })
}

fn units(times: &[u64]) -> Chunk {
    Chunk::Units(times.iter().map(|&ts| acquired(ts, ts)).collect())
}

fn batch(settled_ns: u64, chunks: Vec<(u32, Chunk)>, busy: &[u32]) -> Batch {
    Batch { settled_ns, chunks, busy: busy.to_vec(), ..Batch::default() }
}

fn emitted(merger: &mut Merger, bound_ns: u64) -> Vec<u64> {
    let mut out = Vec::new();
    merger.emit(bound_ns, &mut usize::MAX.clone(), |ts_ns, _, step| {
        if let Step::Record(record, _) = step {
            assert_eq!(record.address(), ts_ns);
            out.push(ts_ns);
        }
    });
    out
}

#[test]
fn a_merger_whose_indices_are_out_of_range_is_not_valid() {
    let valid = || {
        let mut merger = merger();
        let chunks = vec![(0, start(0)), (0, units(&[10, 30, 50])), (1, start(0)), (1, units(&[20]))];
        merger.add_batch(batch(100, chunks, &[]));
        merger.emit(15, &mut usize::MAX.clone(), |_, _, _| {});
        merger
    };
    assert!(valid().is_valid());
    let changes: [fn(&mut Merger); 5] = [
        |merger| merger.next.push(Reverse((1, 2))),
        |merger| merger.next.push(Reverse((1, 0))),
        |merger| merger.streams[0].next = 4,
        |merger| merger.streams[1].chunks.clear(),
        |merger| merger.state.pending -= 1,
    ];
    for (at, change) in changes.iter().enumerate() {
        let mut merger = valid();
        change(&mut merger);
        assert!(!merger.is_valid(), "{at}");
    }
}

#[test]
fn a_batch_whose_sessions_are_not_dense_does_not_follow() {
    let merger = merger();
    assert!(merger.is_next(&batch(1, vec![(1, start(0)), (0, start(0))], &[])));
    assert!(!merger.is_next(&batch(1, vec![(u32::MAX, start(0))], &[])));
    let image = Arc::new(ProcessImage { id: u32::MAX, ..fake::image() });
    let session = ThreadSession { image, tid: 5, is_seen: true, own_tid: 5, start_ns: 0, comm: [0; 16] };
    assert!(!merger.is_next(&batch(1, vec![(0, Chunk::Start(session))], &[])));
}

#[test]
fn records_of_two_threads_are_emitted_in_the_order_of_time() {
    let mut merger = merger();
    merger.add_batch(batch(
        100,
        vec![(0, start(0)), (0, units(&[10, 30, 50])), (1, start(0)), (1, units(&[20, 25, 60]))],
        &[],
    ));
    assert_eq!(emitted(&mut merger, u64::MAX), [10, 20, 25, 30, 50, 60]);
    assert_eq!((merger.pending(), merger.stats().delivered), (0, 6));
}

#[test]
fn the_clock_of_a_process_in_a_time_namespace_is_shifted_by_its_offset() {
    const BACK: i64 = -1_000_000;
    let of = |ahead_ns: i64, ticks_ahead: u64| {
        let image = ProcessImage { pid: 5, clock_ahead_ns: ahead_ns, ticks_ahead, ..fake::image() };
        assert_eq!((image.time_ns(2_000_000), image.time_ns(0)), ((2_000_000 - ahead_ns) as u64, 0));
        let image = Arc::new(image);
        Chunk::Start(ThreadSession { image, tid: 5, is_seen: true, own_tid: 5, start_ns: 0, comm: [0; 16] })
    };
    let at = |ticks: i64, ns: u64| Chunk::Units(vec![acquired(ticks as u64 & LOW_MASK, ns)]);
    let mut merger = merger();
    let chunks = vec![
        (0, of(7_000, 7_000)),
        (0, at(7_010, 10)),
        (1, of(BACK, BACK as u64)),
        (1, at(20 + BACK, 20)),
        // The clock of the records is the time-stamp counter, which no namespace changes.
        (2, of(7_000, 0)),
        (2, at(30, 30)),
    ];
    merger.add_batch(batch(100, chunks, &[]));
    assert_eq!(emitted(&mut merger, u64::MAX), [10, 20, 30]);
}

#[test]
fn nothing_after_the_bound_or_the_settled_time_is_emitted() {
    let mut merger = merger();
    merger.add_batch(batch(40, vec![(0, start(0)), (0, units(&[10, 30, 50]))], &[]));
    assert_eq!(emitted(&mut merger, 30), [10], "the bound itself is not included");
    assert_eq!(emitted(&mut merger, u64::MAX), [30]);
    merger.add_batch(batch(70, vec![], &[]));
    assert_eq!(emitted(&mut merger, u64::MAX), [50]);
}

#[test]
fn a_thread_in_the_middle_of_a_record_holds_back_what_is_later_than_its_last_record() {
    let mut merger = merger();
    let chunks = vec![(0, start(0)), (0, units(&[10])), (1, start(0)), (1, units(&[5, 15, 25]))];
    merger.add_batch(batch(100, chunks, &[0]));
    assert_eq!(emitted(&mut merger, u64::MAX), [5, 10]);
    assert_eq!(merger.settled_ns(), 10);
    merger.add_batch(batch(200, vec![(0, units(&[12, 20]))], &[]));
    assert_eq!(emitted(&mut merger, u64::MAX), [12, 15, 20, 25]);
    assert_eq!(merger.stats().late, 0);
}

#[test]
fn old_times_without_end_of_another_user_do_not_keep_the_records_of_others_back() {
    const S: u64 = 1_000_000_000;
    let mut merger = merger();
    let others = Arc::new(Ledger::new(0, Limits::NONE, Limits::NONE));
    let account = others.open(64201, Owner::default()).unwrap();
    let image = Arc::new(ProcessImage { account, ..fake::image() });
    let hostile = ThreadSession { image, tid: 6, is_seen: true, own_tid: 6, start_ns: 0, comm: [0; 16] };
    merger.add_batch(batch(S, vec![(0, Chunk::Start(hostile)), (1, start(0))], &[]));
    let mut times = Vec::new();
    for round in 2..12 {
        // It publishes as much as is emitted, and something of it is always left.
        let count = if round == 2 { 200 } else { 60 };
        let chunks = vec![
            (0, Chunk::WrittenAfter((round - 1) * S)),
            (0, units(&vec![5; count])),
            (1, units(&[round * S])),
        ];
        merger.add_batch(batch(round * S, chunks, &[]));
        merger.emit(u64::MAX, &mut 60, |ts_ns, id, step| {
            if let (Step::Record(..), 1) = (step, id) {
                times.push(ts_ns);
            }
        });
    }
    assert!(times.starts_with(&[2 * S, 3 * S, 4 * S, 5 * S, 6 * S]), "{times:?}");
    assert_eq!(merger.stats().late, 0);
}

#[test]
fn lost_records_are_counted_once_whether_reported_between_others_or_at_the_exit() {
    let mut merger = merger();
    let lost = Record::new(20, op::LOST, lost::NO_CHUNK, 3, 0);
    let nested = Record::new(20, op::LOST, lost::NESTED, 2, 0);
    let chunks = vec![
        (0, start(0)),
        (0, Chunk::Units(vec![acquired(10, 10), [lost.head, lost.body], [nested.head, nested.body]])),
        (0, Chunk::Exit(ThreadExit { exit_ns: 30, lost: 10, nested: 3, ..ThreadExit::default() })),
    ];
    merger.add_batch(batch(100, chunks, &[]));
    let mut unreported = 0;
    merger.emit(u64::MAX, &mut 100, |_, _, step| {
        if let Step::Exit(_, lost) = step {
            unreported = lost;
        }
    });
    let MergeStats { lost, nested, delivered, .. } = merger.stats();
    assert_eq!((unreported, lost, nested, delivered), (5, 7, 3, 1));
}

#[test]
fn units_without_a_record_are_skipped_and_counted() {
    let mut merger = merger();
    let chunks =
        vec![(0, start(0)), (0, Chunk::Units(vec![[0, 0], acquired(10, 10), [u64::MAX, 1], [7, 7]]))];
    merger.add_batch(batch(100, chunks, &[]));
    assert_eq!(emitted(&mut merger, u64::MAX), [10]);
    assert_eq!((merger.stats().undecodable, merger.pending()), (3, 0));
}

#[test]
fn the_times_of_a_thread_never_decrease() {
    let mut merger = merger();
    let chunks = vec![(0, start(0)), (0, Chunk::Units(vec![acquired(50, 50), acquired(20, 20)]))];
    merger.add_batch(batch(100, chunks, &[]));
    let mut times = Vec::new();
    merger.emit(u64::MAX, &mut 100, |ts_ns, _, _| times.push(ts_ns));
    assert_eq!(times, [0, 50, 50]);
}

#[test]
fn a_thread_that_publishes_old_times_neither_holds_others_back_for_long_nor_breaks_the_order() {
    const S: u64 = 1_000_000_000;
    let mut merger = merger();
    merger.add_batch(batch(
        10 * S,
        vec![(0, start(0)), (0, units(&[5])), (1, start(0)), (1, units(&[9 * S]))],
        &[0],
    ));
    assert_eq!(merger.settled_ns(), 10 * S, "the thread has a record");
    let mut times = Vec::new();
    merger.emit(u64::MAX, &mut 100, |ts_ns, _, step| {
        if let Step::Record(..) = step {
            times.push(ts_ns);
        }
    });
    assert_eq!(times, [5], "the thread is awaited");
    for round in 11..20 {
        merger.add_batch(batch(round * S, vec![(0, units(&[6]))], &[0]));
        merger.emit(u64::MAX, &mut 100, |ts_ns, _, step| {
            if let Step::Record(..) = step {
                times.push(ts_ns);
            }
        });
        assert!(merger.settled_ns() >= (round - 2) * S);
    }
    assert!(times.contains(&(9 * S)) && times.is_sorted() && times.len() == 11, "{times:?}");
    assert!(merger.stats().late > 0);
}

#[test]
fn records_of_a_process_that_exceeded_a_budget_are_dropped() {
    let mut merger = merger();
    let begun = start(0);
    let Chunk::Start(session) = &begun else { panic!("a start") };
    let image = Arc::clone(&session.image);
    merger.add_batch(batch(100, vec![(0, begun), (0, units(&[10]))], &[]));
    image.account.end(crate::preload::budget::Excess::Chunks);
    merger.add_batch(batch(200, vec![(0, units(&[110, 120])), (1, start(0)), (1, units(&[130]))], &[]));
    assert_eq!(emitted(&mut merger, u64::MAX), [10, 130]);
    assert_eq!(merger.pending(), 0);
}

#[test]
fn the_rest_waits_when_the_budget_is_used_up() {
    let mut merger = merger();
    merger.add_batch(batch(100, vec![(0, start(0)), (0, units(&[10, 20, 30]))], &[]));
    let mut budget = 2;
    assert_eq!(merger.emit(u64::MAX, &mut budget, |_, _, _| {}), 20);
    assert_eq!(emitted(&mut merger, u64::MAX), [20, 30]);
}

#[test]
fn the_clock_of_this_machine_is_known() {
    assert!([clock::MONOTONIC, clock::TSC].contains(&super::super::clock::cheapest()));
}

proptest! {
    /// However the drains cut the records, and whichever threads were in the middle of one: the result is the
    /// full sort, and nothing is late.
    #[test]
    fn drains_in_chunks_emit_the_sorted_whole(
        steps in prop::collection::vec((0_u32..4, 1_u64..50), 0..200),
        mut cuts in prop::collection::vec(0_u64..5_000, 0..10),
        unpublished in prop::collection::vec(0_usize..3, 40),
    ) {
        let mut now = 0;
        let mut all: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for (session, gap) in steps {
            now += gap;
            all.entry(session).or_default().push(now);
        }
        cuts.sort_unstable();
        let mut merger = merger();
        let mut out = Vec::new();
        let mut done: BTreeMap<u32, usize> = BTreeMap::new();
        let mut unpublished = unpublished.into_iter();
        for cut in cuts.into_iter().chain([u64::MAX >> 16]) {
            let last = cut == u64::MAX >> 16;
            let (mut chunks, mut busy) = (Vec::new(), Vec::new());
            for (&session, times) in &all {
                let from = done.get(&session).copied();
                if from.is_none() {
                    chunks.push((session, start(0)));
                }
                let from = from.unwrap_or(0);
                let written = times.partition_point(|&ts| ts < cut);
                // The last records have their times already and are not published.
                let held_back = if last { 0 } else { unpublished.next().unwrap_or(0) };
                let range: Range<usize> = from..written.saturating_sub(held_back).max(from);
                if range.end < written {
                    busy.push(session);
                }
                done.insert(session, range.end);
                if !range.is_empty() {
                    chunks.push((session, units(&times[range])));
                }
            }
            merger.add_batch(batch(cut.saturating_sub(1), chunks, &busy));
            out.extend(emitted(&mut merger, u64::MAX));
        }
        let mut expected: Vec<u64> = all.into_values().flatten().collect();
        expected.sort_unstable();
        prop_assert_eq!(out, expected);
        prop_assert_eq!(merger.stats().late, 0);
    }
}
