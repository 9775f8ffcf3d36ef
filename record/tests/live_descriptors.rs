//! Names survive floods: two thousand threads, each with a name of its own, are born, make calls and are gone, while the rings
//! of events and the stack map overflow. Needs root; run by `cargo xtask test`.

#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::collections::BTreeSet;

use record::rehearsal::set_map_sizes;
use trace_format::EventKind;

mod support;

use support::{Program, Recorded, Recording, skipped, spelt};

const THREADS: u64 = 2_000;
/// All calls together are fewer than what the stacks can spell.
const CALLS: u64 = 16;

fn record(ring_bytes: usize, sizes: &[(&'static str, u32)]) -> Recorded {
    set_map_sizes(sizes);
    let mut program = Program::start("births", THREADS, CALLS);
    let recording = Recording::begin(&program, Some(ring_bytes));
    program.round();
    let recorded = recording.end();
    set_map_sizes(&[]);
    recorded
}

/// Of every call that was recorded, its stack says which thread made it: that one's name, birth and end must be there.
#[track_caller]
fn assert_every_life_is_whole(recorded: &Recorded) {
    let loss = recorded.loss();
    let of_tasks = loss.by_program.iter().filter(|row| row.program == "task");
    let (delivered, lost) = of_tasks
        .fold((0, 0), |(delivered, lost), row| (delivered + row.delivered, lost + row.ring_full + row.guard));
    assert_eq!(lost, 0, "{loss:?}");
    // A birth, a name and an end of each thread.
    assert_eq!(delivered, 3 * THREADS, "{loss:?}");
    let mut seen = BTreeSet::new();
    for event in recorded.rows(EventKind::Wake) {
        let task = recorded.task(event);
        let number = recorded.user_stack(event).and_then(spelt).map(|number| number as u64 / CALLS);
        if let Some(number) = number {
            assert_eq!(task.comm, Some(format!("born-{number}")), "{event:?}");
            seen.insert(number);
        }
        let (Some(start), Some(exit)) = (task.start_ns, task.exit_ns) else {
            panic!("a life without begin or end: {task:?}");
        };
        assert!(start < event.ts_ns && event.ts_ns < exit, "{task:?} did {event:?}");
    }
    assert!(seen.len() > 10, "too few threads were seen: {seen:?}, {loss:?}");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn names_and_lives_of_short_threads_are_whole_while_the_ring_of_events_overflows() {
    if skipped() {
        return;
    }
    let recorded = record(4096, &[]);
    assert!(recorded.loss().ring_full > 0, "{:?}", recorded.loss());
    assert_every_life_is_whole(&recorded);
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn stacks_that_overflow_their_map_leave_room_for_names() {
    if skipped() {
        return;
    }
    let recorded = record(8 << 20, &[("STACKS", 16)]);
    let loss = recorded.loss();
    assert_every_life_is_whole(&recorded);
    assert!(loss.stacks > 0, "too few stacks to fill the ring of descriptors: {loss:?}");
    let wakes = recorded.rows(EventKind::Wake).count() as u64;
    assert_eq!(wakes + recorded.lost_in_rows(), THREADS * CALLS, "{loss:?}");
}
