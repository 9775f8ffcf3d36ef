//! Checks the guard: its slots are filled from outside, so that it must drop calls, and each dropped call is counted once
//! and reported in the rows.
//!
//! needs: root, gcc

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;

use trace_format::EventKind::Wake;

#[path = "support/guard_slots.rs"]
mod guard_slots;
mod support;

use guard_slots::{GuardSlots, SLOTS, owner};
use support::{Program, Recording, skipped};

const CALLS: u64 = 5_000;

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn the_guard_drops_nested_calls_of_a_task_and_counts_each() {
    if skipped() {
        return;
    }
    let mut program = Program::start("futex", 2, CALLS);
    let (inside, other) = (program.threads[0], program.threads[1]);
    let recording = Recording::begin(&program, None);
    let slots = GuardSlots::find();
    slots.give(1, owner(program.pid(), inside));
    program.round();
    slots.give(1, 0);
    program.round();
    let recorded = recording.end();
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
    let mut program = Program::start("futex", 2, CALLS);
    let recording = Recording::begin(&program, None);
    let slots = GuardSlots::find();
    // Tasks that do not exist.
    slots.give(SLOTS, owner(u32::MAX, u32::MAX - 1));
    program.round();
    slots.give(SLOTS, 0);
    program.round();
    let recorded = recording.end();
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
    let mut program = Program::start("sleep", 1, WAITS);
    let recording = Recording::begin(&program, None);
    let slots = GuardSlots::find();
    slots.give(1, owner(program.pid(), program.threads[0]));
    program.round();
    slots.give(1, 0);
    let recorded = recording.end();
    let loss = recorded.loss();
    assert_eq!((recorded.guard("futex_enter"), recorded.guard("futex_exit")), (WAITS, WAITS), "{loss:?}");
    assert_eq!(recorded.lost_in_rows(), 2 * WAITS);
}
