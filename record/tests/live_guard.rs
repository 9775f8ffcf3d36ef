//! Checks the guard: its slots are filled from outside, so that it must drop calls, and each dropped call is
//! counted once and reported in the rows.
//!
//! needs: root, gcc

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;

use trace_format::EventKind::Wake;

#[path = "support/guard_slots.rs"]
mod guard_slots;
mod support;

use guard_slots::{GuardSlots, SLOTS, owner};
use support::{Program, Recorded, Recording, skipped, until};

const CALLS: u64 = 5_000;

/// Records a program while slots belong to a task during its first round, and no slot during the others.
/// Repeats that if a program of a task that is not recorded freed one of them: it held the slot when it was
/// given away.
fn record(
    what: &str,
    (threads, calls): (u64, u64),
    rounds: u32,
    slots_of: impl Fn(&Program) -> (usize, u64),
) -> (Program, Recorded) {
    until("no other program frees a slot", || {
        let mut program = Program::start(what, threads, calls);
        let recording = Recording::begin(&program, None);
        let slots = GuardSlots::find();
        let (count, owner) = slots_of(&program);
        slots.give(count, owner);
        program.round();
        let belonged = slots.belong(count, owner);
        slots.give(count, 0);
        (1..rounds).for_each(|_| program.round());
        let recorded = recording.end();
        belonged.then_some((program, recorded))
    })
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn the_guard_drops_nested_calls_of_a_task_and_counts_each() {
    if skipped() {
        return;
    }
    let (program, recorded) =
        record("futex", (2, CALLS), 2, |program| (1, owner(program.pid(), program.threads[0])));
    let (inside, other) = (program.threads[0], program.threads[1]);
    let loss = recorded.loss();
    assert_eq!(recorded.guard("futex_enter"), CALLS, "{loss:?}");
    assert_eq!((loss.guard, loss.events()), (CALLS, CALLS), "{loss:?}");
    assert_eq!(recorded.lost_in_rows(), CALLS, "the rows say what the footer says");
    assert_eq!(recorded.rows_of(Wake, inside), CALLS, "with its slot free, it is recorded again");
    assert_eq!(recorded.rows_of(Wake, other), 2 * CALLS, "another task takes another slot");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn every_call_is_dropped_and_counted_if_no_slot_is_free() {
    if skipped() {
        return;
    }
    // Tasks that do not exist.
    let (_, recorded) = record("futex", (2, CALLS), 2, |_| (SLOTS, owner(u32::MAX, u32::MAX - 1)));
    let loss = recorded.loss();
    assert_eq!((loss.guard, loss.events()), (2 * CALLS, 2 * CALLS), "{loss:?}");
    assert_eq!(recorded.lost_in_rows(), 2 * CALLS);
    assert_eq!(recorded.rows(Wake).count() as u64, 2 * CALLS);
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn the_kernels_counts_of_skipped_nested_runs_are_reported_by_program() {
    if skipped() {
        return;
    }
    let program = Program::start("futex", 1, CALLS);
    let recording = Recording::begin(&program, None);
    let files = fs::read_dir("/proc/self/fdinfo").unwrap();
    let texts = files.filter_map(|file| fs::read_to_string(file.ok()?.path()).ok());
    let programs: Vec<String> =
        texts.filter(|text| text.contains("prog_tag:") && !text.contains("link_id:")).collect();
    assert!(programs.len() >= 5, "{programs:?}");
    for text in &programs {
        assert!(text.contains("recursion_misses:"), "Linux 5.12 and later have it: {text}");
    }
    assert_eq!(recording.end().loss().recursion_misses, 0);
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_wait_that_the_guard_drops_counts_as_two_events() {
    if skipped() {
        return;
    }
    const WAITS: u64 = 20;
    let (_, recorded) =
        record("sleep", (1, WAITS), 1, |program| (1, owner(program.pid(), program.threads[0])));
    let loss = recorded.loss();
    assert_eq!((recorded.guard("futex_enter"), recorded.guard("futex_exit")), (WAITS, WAITS), "{loss:?}");
    assert_eq!(recorded.lost_in_rows(), 2 * WAITS);
}
