//! Threads told as what they wrote; times are nanoseconds, so a record's time is its tick.

use std::{collections::BTreeMap, ops::Range};

use proptest::prelude::*;
use trace_format::preload::{api, clock};

use super::{super::clock::Reading, *};

const LATER: u64 = 1 << 40;

fn lanes() -> Lanes {
    let reading = |at| Reading { ticks: at, ns: at, doubt: 0 };
    Lanes::new(Timeline::new(reading(0), reading(LATER)))
}

fn acquired(ts_ns: u64, address: u64) -> Unit {
    let record = Record::new(ts_ns, op::ACQUIRED, api::MUTEX, address, 0);
    [record.head, record.body]
}

fn begin(begun_ns: u64) -> Part {
    let image = Arc::new(Image { pid: 5, ..Image::default() });
    Part::Begin(Life { image, tid: 5, own_tid: 5, begun_ns, comm: [0; 16] })
}

fn units(times: &[u64]) -> Part {
    Part::Units(times.iter().map(|&ts| acquired(ts, ts)).collect())
}

fn batch(settled_ns: u64, parts: Vec<(u32, Part)>, busy: &[u32]) -> Batch {
    Batch { settled_ns, parts, busy: busy.to_vec(), ..Batch::default() }
}

/// The times of the records that are let go.
fn released(lanes: &mut Lanes, bound_ns: u64) -> Vec<u64> {
    let mut out = Vec::new();
    lanes.release(bound_ns, &mut usize::MAX.clone(), |ts_ns, _, step| {
        if let Step::Record(record, _) = step {
            assert_eq!(record.address(), ts_ns);
            out.push(ts_ns);
        }
    });
    out
}

#[test]
fn records_of_two_threads_come_in_the_order_of_time() {
    let mut lanes = lanes();
    lanes.take_in(batch(
        100,
        vec![(0, begin(0)), (0, units(&[10, 30, 50])), (1, begin(0)), (1, units(&[20, 25, 60]))],
        &[],
    ));
    assert_eq!(released(&mut lanes, u64::MAX), [10, 20, 25, 30, 50, 60]);
    assert_eq!((lanes.pending(), lanes.counted().delivered), (0, 6));
}

#[test]
fn nothing_after_the_bound_or_after_what_is_settled_is_let_go() {
    let mut lanes = lanes();
    lanes.take_in(batch(40, vec![(0, begin(0)), (0, units(&[10, 30, 50]))], &[]));
    assert_eq!(released(&mut lanes, 30), [10], "the bound itself is not included");
    assert_eq!(released(&mut lanes, u64::MAX), [30]);
    lanes.take_in(batch(70, vec![], &[]));
    assert_eq!(released(&mut lanes, u64::MAX), [50]);
}

#[test]
fn a_thread_in_the_middle_of_a_record_holds_back_what_is_younger_than_its_last() {
    let mut lanes = lanes();
    let parts = vec![(0, begin(0)), (0, units(&[10])), (1, begin(0)), (1, units(&[5, 15, 25]))];
    lanes.take_in(batch(100, parts, &[0]));
    assert_eq!(released(&mut lanes, u64::MAX), [5, 10]);
    assert_eq!(lanes.settled_ns(), 10);
    lanes.take_in(batch(200, vec![(0, units(&[12, 20]))], &[]));
    assert_eq!(released(&mut lanes, u64::MAX), [12, 15, 20, 25]);
    assert_eq!(lanes.counted().late, 0);
}

#[test]
fn what_is_lost_is_counted_once_whether_told_in_its_place_or_at_the_end() {
    let mut lanes = lanes();
    let lost = Record::new(20, op::LOST, 0, 3, 0);
    let parts = vec![
        (0, begin(0)),
        (0, Part::Units(vec![acquired(10, 10), [lost.head, lost.body]])),
        (0, Part::End(End { ended_ns: 30, lost: 8, ..End::default() })),
    ];
    lanes.take_in(batch(100, parts, &[]));
    let mut untold = 0;
    lanes.release(u64::MAX, &mut 100, |_, _, step| {
        if let Step::End(_, lost) = step {
            untold = lost;
        }
    });
    assert_eq!((untold, lanes.counted().lost, lanes.counted().delivered), (5, 8, 1));
}

#[test]
fn what_is_no_record_is_passed_over_and_counted() {
    let mut lanes = lanes();
    let parts = vec![(0, begin(0)), (0, Part::Units(vec![[0, 0], acquired(10, 10), [u64::MAX, 1], [7, 7]]))];
    lanes.take_in(batch(100, parts, &[]));
    assert_eq!(released(&mut lanes, u64::MAX), [10]);
    assert_eq!((lanes.counted().undecodable, lanes.pending()), (3, 0));
}

#[test]
fn a_thread_that_claims_an_earlier_time_than_before_is_not_believed() {
    let mut lanes = lanes();
    let parts = vec![(0, begin(0)), (0, Part::Units(vec![acquired(50, 50), acquired(20, 20)]))];
    lanes.take_in(batch(100, parts, &[]));
    let mut times = Vec::new();
    lanes.release(u64::MAX, &mut 100, |ts_ns, _, _| times.push(ts_ns));
    assert_eq!(times, [0, 50, 50]);
}

#[test]
fn when_the_budget_is_spent_the_rest_waits() {
    let mut lanes = lanes();
    lanes.take_in(batch(100, vec![(0, begin(0)), (0, units(&[10, 20, 30]))], &[]));
    let mut budget = 2;
    assert_eq!(lanes.release(u64::MAX, &mut budget, |_, _, _| {}), 20);
    assert_eq!(released(&mut lanes, u64::MAX), [20, 30]);
}

#[test]
fn this_machines_clock_is_one_that_the_lanes_know() {
    assert!([clock::MONOTONIC, clock::TSC].contains(&super::super::clock::cheapest()));
}

proptest! {
    /// However the drains cut what the threads wrote, and whoever was in the middle of a record: the result is the full sort,
    /// and nothing is late.
    #[test]
    fn drains_in_parts_give_what_one_sort_of_everything_gives(
        steps in prop::collection::vec((0_u32..4, 1_u64..50), 0..200),
        mut cuts in prop::collection::vec(0_u64..5_000, 0..10),
        unpublished in prop::collection::vec(0_usize..3, 40),
    ) {
        let mut now = 0;
        let mut all: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for (lane, gap) in steps {
            now += gap;
            all.entry(lane).or_default().push(now);
        }
        cuts.sort_unstable();
        let mut lanes = lanes();
        let mut out = Vec::new();
        let mut done: BTreeMap<u32, usize> = BTreeMap::new();
        let mut unpublished = unpublished.into_iter();
        for cut in cuts.into_iter().chain([u64::MAX >> 16]) {
            let last = cut == u64::MAX >> 16;
            let (mut parts, mut busy) = (Vec::new(), Vec::new());
            for (&lane, times) in &all {
                let from = done.get(&lane).copied();
                if from.is_none() {
                    parts.push((lane, begin(0)));
                }
                let from = from.unwrap_or(0);
                let written = times.partition_point(|&ts| ts < cut);
                // The last ones have their time already and are not published.
                let held_back = if last { 0 } else { unpublished.next().unwrap_or(0) };
                let range: Range<usize> = from..written.saturating_sub(held_back).max(from);
                if range.end < written {
                    busy.push(lane);
                }
                done.insert(lane, range.end);
                if !range.is_empty() {
                    parts.push((lane, units(&times[range])));
                }
            }
            lanes.take_in(batch(cut.saturating_sub(1), parts, &busy));
            out.extend(released(&mut lanes, u64::MAX));
        }
        let mut expected: Vec<u64> = all.into_values().flatten().collect();
        expected.sort_unstable();
        prop_assert_eq!(out, expected);
        prop_assert_eq!(lanes.counted().late, 0);
    }
}
