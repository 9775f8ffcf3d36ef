//! Situations in which a recorder may stumble: forks, signals, cancellations, ends of threads, foreign stacks, full rings.

mod support;

use std::{path::PathBuf, process::Command, sync::OnceLock};

use support::{Options, Outcome, Process, record};
use trace_format::preload::{api, op, why};

fn scenes() -> &'static PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| support::program("scenes", &["-ldl"]))
}

/// One scene of tests/programs/scenes.c, which has to end well.
fn play(options: &Options, words: &[&str]) -> Outcome {
    record(options, Command::new(scenes()).args(words)).good()
}

fn acquired(process: &Process) -> u64 {
    process.count(op::ACQUIRED, api::MUTEX) + process.count(op::WAITED, api::MUTEX)
}

/// Pairs that every program of the scenes does before main.
const EARLY: u64 = 2;

#[test]
fn a_child_has_a_region_of_its_own_and_leaves_its_parents_alone() {
    let outcome = play(&Options::default(), &["forks"]);
    let said: Vec<(u32, u64)> = outcome.processes.iter().map(|p| (p.why, acquired(p))).collect();
    assert_eq!(said, [(why::EXEC, 50 + EARLY), (why::FORK, 25), (why::FORK, 30)]);
    assert_eq!(u64::from(outcome.processes[1].pid), outcome.number("child"));
    for process in &outcome.processes {
        assert!(
            process.lives.iter().any(|life| life.tid == process.pid),
            "the first thread has its own name"
        );
        assert_eq!(acquired(process), process.count(op::RELEASED, api::MUTEX));
    }
}

#[test]
fn a_child_that_no_handler_of_fork_announces_is_noticed() {
    let outcome = play(&Options::default(), &["raw-fork"]);
    let said: Vec<(u32, u64)> = outcome.processes.iter().map(|p| (p.why, acquired(p))).collect();
    assert_eq!(said, [(why::EXEC, 50 + EARLY), (why::FORK, 20)]);
}

#[test]
fn children_of_many_threads_are_recorded_each() {
    let outcome =
        play(&Options { bytes: 4 << 20, ring_bytes: 65536, ..Options::default() }, &["fork-in-threads"]);
    let (children, parents): (Vec<_>, Vec<_>) = outcome.processes.iter().partition(|p| p.why == why::FORK);
    assert_eq!((parents.len(), children.len()), (1, 80));
    assert_eq!(acquired(parents[0]), 4 * 20 * 3 + EARLY);
    assert!(children.iter().all(|child| acquired(child) == 7));
}

#[test]
fn programs_that_are_executed_are_recorded_and_their_parents_go_on() {
    let outcome = play(&Options::default(), &["executes"]);
    let said: Vec<(u32, u64)> = outcome.processes.iter().map(|p| (p.why, acquired(p))).collect();
    let program = (why::EXEC, 20 + EARLY);
    assert_eq!(said, [(why::EXEC, 40 + EARLY), program, program, program]);
}

#[test]
fn a_handler_that_locks_loses_at_most_itself() {
    // A ring that holds it all, however seldom it is read.
    let outcome = play(&Options { bytes: 1 << 30, ring_bytes: 64 << 20, ..Options::default() }, &["signals"]);
    let process = &outcome.processes[0];
    let calls = 2 * (outcome.number("pairs") + outcome.number("handled") + EARLY);
    assert_eq!(process.delivered() + process.lost(), calls);
    // Never a record of the program itself.
    assert!(process.lost() <= 2 * outcome.number("handled"));
    assert!(process.count(op::ACQUIRED, api::MUTEX) >= outcome.number("pairs"));
}

#[test]
fn a_jump_out_of_a_handler_does_not_end_the_recording() {
    let outcome = play(&Options::default(), &["jumps"]);
    let process = &outcome.processes[0];
    assert!(process.count(op::ACQUIRED, api::MUTEX) >= 100);
    let last = process.lives[0].events.iter().rev().take(200);
    assert_eq!(last.filter(|event| event.op == op::RELEASED).count(), 100);
}

#[test]
fn cancelled_waits_end_and_say_so() {
    let outcome = play(&Options::default(), &["cancels"]);
    let process = &outcome.processes[0];
    let waits = process.count(op::CONDITION, api::CONDITION);
    assert_eq!(process.count(op::CONDITION_DONE, api::CONDITION), waits);
    let semaphores = process.count(op::WAIT, api::SEMAPHORE);
    assert_eq!(process.count(op::FAILED, api::SEMAPHORE), semaphores);
    assert!(waits > 10 && semaphores > 10, "{waits} {semaphores}");
    for event in process.events() {
        match event.op {
            op::CONDITION_DONE => assert_eq!(event.second, libc::ECANCELED as u64),
            op::FAILED if event.api == api::SEMAPHORE => assert_eq!(event.first, libc::ECANCELED as u64),
            _ => {}
        }
    }
    assert_eq!(acquired(process), process.count(op::RELEASED, api::MUTEX) + 1);
}

#[test]
fn locks_in_destructors_are_recorded_or_counted() {
    let outcome = play(&Options::default(), &["destructors"]);
    let process = &outcome.processes[0];
    let calls = 2 * (100 * 5 + EARLY);
    assert_eq!(process.delivered() + process.unplaced_events, calls);
    assert_eq!(process.lives.iter().filter(|life| life.ended).count(), 100);
}

#[test]
fn slots_are_used_again() {
    let outcome =
        play(&Options { bytes: 64 << 20, ring_bytes: 65536, ..Options::default() }, &["one-by-one", "3000"]);
    let process = &outcome.processes[0];
    assert_eq!((acquired(process), process.unplaced), (9000 + EARLY, 0));
    assert!(process.lives.iter().all(|life| life.slot < 1000));
    assert_eq!(process.lives.iter().filter(|life| life.ended).count(), 3000);
}

#[test]
fn many_threads_at_once_have_smaller_rings_and_those_without_room_are_counted() {
    let options = Options { bytes: 2 << 20, ring_bytes: 65536, least_ring_bytes: 8192, ..Options::default() };
    let outcome = play(&options, &["at-once", "300"]);
    let process = &outcome.processes[0];
    let sizes: Vec<u64> = process.lives.iter().map(|life| life.ring_bytes).collect();
    assert!(sizes.contains(&65536) && sizes.contains(&8192), "{sizes:?}");
    assert!(process.unplaced > 0);
    // Of each thread 3 pairs and one wait at the barrier, which is one event where it is not recorded; main's own.
    let barriers = process.count(op::WAITED, api::BARRIER);
    let pairs = acquired(process);
    let init = process.count(op::INIT, api::BARRIER);
    assert_eq!(pairs * 2 + barriers + init + process.unplaced_events, 300 * 7 + 2 * EARLY + 1);
}

#[test]
fn on_another_stack_there_is_the_call_site() {
    let outcome = play(&Options::default(), &["another-stack"]);
    let events = outcome.processes[0].events();
    let frames = |op: u8| {
        let mut counts: Vec<usize> = events
            .iter()
            .filter(|event| event.op == op)
            .map(|event| event.stack.as_ref().expect("a stack").len())
            .collect();
        counts.dedup();
        counts
    };
    // By turns of the handler, and of a function that was called by two.
    assert!(
        frames(op::ACQUIRED).windows(2).skip(2).all(|two| two.contains(&1)),
        "{:?}",
        frames(op::ACQUIRED)
    );
}

#[test]
#[cfg(target_arch = "x86_64")]
fn garbage_in_the_frame_pointer_harms_nobody() {
    let outcome = play(&Options::default(), &["garbage-frames"]);
    let process = &outcome.processes[0];
    assert_eq!(acquired(process), 100_000 + EARLY);
    for event in process.events() {
        assert!(event.stack.is_some(), "there is a call site always");
    }
}

#[test]
fn libraries_come_and_go() {
    let library = support::program("opened", &["-shared", "-fPIC"]);
    let outcome = play(&Options::default(), &["opens", library.to_str().expect("a plain name")]);
    assert_eq!(acquired(&outcome.processes[0]), 20 + EARLY);
}

#[test]
fn errno_is_the_calls_own() {
    let outcome = play(&Options::default(), &["errno"]);
    assert_eq!(outcome.processes[0].count(op::FAILED, api::SEMAPHORE), 1);
}

#[test]
fn names_of_threads_follow() {
    let outcome = play(&Options::default(), &["named"]);
    let life = outcome.processes[0].lives.iter().find(|life| !life.names.is_empty()).expect("a life");
    assert_eq!(life.names, ["renamed-once", "renamed-twice"]);
    assert_eq!(life.comm, "renamed-twice");
}
