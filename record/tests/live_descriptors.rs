//! Checks that names survive floods: three hundred threads, each with a name of its own, start, make calls
//! and exit while the rings of events and the stack map overflow.
//!
//! needs: root, gcc

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;

use record::test_overrides::set_map_sizes;
use trace_format::EventKind;

mod support;

use support::{Program, Recorded, Recording, skipped, spelt, until};

/// Three records of 64 bytes each fit into the quarter of one ring of descriptors that is reserved for them
/// (64 KiB), so that none is lost even if the recorder gets no processor time and all threads run on one CPU.
const THREADS: u64 = 300;
/// All calls together are fewer than the numbers that the stacks can spell.
const CALLS: u64 = 100;

fn record(ring_bytes: usize, sizes: &[(&'static str, u32)]) -> Recorded {
    set_map_sizes(sizes);
    let mut program = Program::start("births", THREADS, CALLS);
    let recording = Recording::begin(&program, Some(ring_bytes));
    program.round();
    let recorded = recording.end();
    set_map_sizes(&[]);
    recorded
}

/// Checks the names, starts and exits of all threads whose calls were recorded. The stack of a call spells
/// the number of its thread. Returns the numbers.
#[track_caller]
fn assert_threads_are_whole(recorded: &Recorded) -> BTreeSet<u64> {
    let loss = recorded.loss();
    let of_tasks = loss.by_program.iter().filter(|row| row.program == "task");
    let (delivered, lost) = of_tasks
        .fold((0, 0), |(delivered, lost), row| (delivered + row.delivered, lost + row.ring_full + row.guard));
    assert_eq!(lost, 0, "{loss:?}");
    // A start, a name and an exit of each thread.
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
            panic!("a thread without start or exit: {task:?}");
        };
        assert!(start < event.ts_ns && event.ts_ns < exit, "{task:?} did {event:?}");
    }
    seen
}

/// Records until more than ten threads were seen while something overflowed. A recorder that gets little
/// processor time drains its ring rarely, and then sees few calls in one recording.
#[track_caller]
fn assert_recordings_are_whole(record: impl Fn() -> Recorded, overflows: impl Fn(&Recorded) -> bool) {
    let mut seen = BTreeSet::new();
    until("more than ten threads are seen", || {
        let recorded = record();
        let threads = assert_threads_are_whole(&recorded);
        if overflows(&recorded) {
            seen.extend(threads);
        }
        (seen.len() > 10).then_some(())
    });
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn short_threads_have_names_starts_and_exits_while_the_ring_of_events_overflows() {
    if skipped() {
        return;
    }
    assert_recordings_are_whole(|| record(4096, &[]), |recorded| recorded.loss().ring_full > 0);
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn stacks_that_overflow_their_map_leave_room_for_names() {
    if skipped() {
        return;
    }
    assert_recordings_are_whole(
        || record(8 << 20, &[("STACKS", 16)]),
        |recorded| {
            let loss = recorded.loss();
            let wakes = recorded.rows(EventKind::Wake).count() as u64;
            assert_eq!(wakes + recorded.lost_in_rows(), THREADS * CALLS, "{loss:?}");
            loss.stacks > 0
        },
    );
}
