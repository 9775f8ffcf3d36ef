//! Difficult situations for the recorder: forks, signals, cancellations, thread exits, foreign stacks and
//! empty pools.

mod support;

use std::{collections::BTreeSet, path::PathBuf, process::Command, sync::OnceLock};

use support::{Options, Outcome, Process, record};
use trace_format::preload::{api, op, reason};

fn scenarios() -> &'static PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| support::program("scenarios", &["-ldl"]))
}

/// Runs a scenario of tests/programs/scenarios.c, which must succeed.
fn run_scenario(options: &Options, words: &[&str]) -> Outcome {
    record(options, Command::new(scenarios()).args(words)).successful()
}

fn acquired(process: &Process) -> u64 {
    process.count(op::ACQUIRED, api::MUTEX) + process.count(op::WAITED, api::MUTEX)
}

/// Lock/unlock pairs of every scenario before main.
const STARTUP_PAIRS: u64 = 2;

#[test]
fn a_child_has_its_own_region_and_does_not_use_its_parents() {
    let outcome = run_scenario(&Options::default(), &["forks"]);
    let found: Vec<(u32, u64)> = outcome.processes.iter().map(|p| (p.reason, acquired(p))).collect();
    assert_eq!(found, [(reason::EXEC, 50 + STARTUP_PAIRS), (reason::FORK, 25), (reason::FORK, 30)]);
    assert_eq!(u64::from(outcome.processes[1].pid), outcome.number("child"));
    for process in &outcome.processes {
        assert!(
            process.sessions.iter().any(|session| session.tid == process.pid),
            "the first thread has its own name"
        );
        assert_eq!(acquired(process), process.count(op::RELEASED, api::MUTEX));
    }
}

#[test]
fn a_child_of_a_raw_fork_is_detected() {
    let outcome = run_scenario(&Options::default(), &["raw-fork"]);
    let found: Vec<(u32, u64)> = outcome.processes.iter().map(|p| (p.reason, acquired(p))).collect();
    assert_eq!(found, [(reason::EXEC, 50 + STARTUP_PAIRS), (reason::FORK, 20)]);
}

#[test]
fn children_of_many_threads_are_recorded() {
    let outcome = run_scenario(&Options { pool_bytes: 1 << 20, ..Options::default() }, &["fork-in-threads"]);
    let (children, parents): (Vec<_>, Vec<_>) =
        outcome.processes.iter().partition(|p| p.reason == reason::FORK);
    assert_eq!((parents.len(), children.len()), (1, 80));
    assert_eq!(acquired(parents[0]), 4 * 20 * 3 + STARTUP_PAIRS);
    assert!(children.iter().all(|child| acquired(child) == 7));
}

#[test]
fn executed_programs_are_recorded_and_their_parents_continue() {
    let outcome = run_scenario(&Options::default(), &["executes"]);
    let found: Vec<(u32, u64)> = outcome.processes.iter().map(|p| (p.reason, acquired(p))).collect();
    let program = (reason::EXEC, 20 + STARTUP_PAIRS);
    assert_eq!(found, [(reason::EXEC, 40 + STARTUP_PAIRS), program, program, program]);
}

#[test]
fn a_signal_handler_that_locks_loses_at_most_its_own_records() {
    // Large enough to hold all records.
    let outcome = run_scenario(&Options { pool_bytes: 512 << 20, ..Options::default() }, &["signals"]);
    let process = &outcome.processes[0];
    let calls = 2 * (outcome.number("pairs") + outcome.number("handled") + STARTUP_PAIRS);
    assert_eq!(process.delivered() + process.lost(), calls);
    // No record of the program itself is lost.
    assert!(process.lost() <= 2 * outcome.number("handled"));
    assert_eq!(process.nested(), process.lost());
    assert!(process.count(op::ACQUIRED, api::MUTEX) >= outcome.number("pairs"));
}

#[test]
fn a_jump_out_of_a_handler_does_not_end_the_recording() {
    let outcome = run_scenario(&Options { max_events: usize::MAX, ..Options::default() }, &["jumps"]);
    let process = &outcome.processes[0];
    // A jump out of a call loses that call at most.
    let (jumped, pairs) = (outcome.number("jumped"), outcome.number("pairs"));
    assert!(process.nested() <= jumped, "{} lost calls, {jumped} jumps", process.nested());
    let acquired = process.count(op::ACQUIRED, api::MUTEX);
    assert!(acquired + jumped >= pairs, "{acquired} of {pairs}, {jumped} jumps");
    let events: Vec<_> = process.events().iter().map(|event| (event.op, event.address)).collect();
    let (before, last) = events.split_at(events.len() - 200);
    let other = last[0].1;
    assert!(before.iter().any(|event| event.1 != other));
    let odd = last.chunks(2).position(|pair| pair != [(op::ACQUIRED, other), (op::RELEASED, other)]);
    assert_eq!(odd, None, "{:?} before {last:?}", before.last());
}

#[test]
fn cancelled_waits_have_an_end_with_ecanceled() {
    let outcome = run_scenario(&Options::default(), &["cancels"]);
    let process = &outcome.processes[0];
    let waits = process.count(op::CONDITION_WAIT, api::CONDITION);
    assert_eq!(process.count(op::CONDITION_WAITED, api::CONDITION), waits);
    let semaphores = process.count(op::WAIT, api::SEMAPHORE);
    assert_eq!(process.count(op::FAILED, api::SEMAPHORE), semaphores);
    assert!(waits > 10 && semaphores > 10, "{waits} {semaphores}");
    for event in process.events() {
        match event.op {
            op::CONDITION_WAITED => assert_eq!(event.second, libc::ECANCELED as u64),
            op::FAILED if event.api == api::SEMAPHORE => assert_eq!(event.first, libc::ECANCELED as u64),
            _ => {}
        }
    }
    assert_eq!(acquired(process), process.count(op::RELEASED, api::MUTEX) + 1);
}

#[test]
fn locks_in_destructors_are_recorded_or_counted() {
    let outcome = run_scenario(&Options::default(), &["destructors"]);
    let process = &outcome.processes[0];
    let calls = 2 * (100 * 5 + STARTUP_PAIRS);
    assert_eq!(process.delivered() + process.unrecorded_events, calls);
    assert_eq!(process.sessions.iter().filter(|session| session.ended).count(), 100);
}

#[test]
fn slots_are_reused() {
    // A chunk for each thread: on a busy machine all threads may exit before the first one is read.
    support::until("a thread starts after another one was read to its end", || {
        let outcome = run_scenario(&Options::default(), &["one-by-one", "3000"]);
        let process = &outcome.processes[0];
        assert_eq!((acquired(process), process.unrecorded_events), (9000 + STARTUP_PAIRS, 0));
        assert_eq!(process.sessions.iter().filter(|session| session.ended).count(), 3000);
        let slots: BTreeSet<_> = process.sessions.iter().map(|session| session.slot).collect();
        (slots.len() < process.sessions.len()).then_some(())
    });
}

#[test]
fn more_threads_than_chunks_are_recorded_or_counted() {
    // As many threads as slots are more than this machine may have.
    let options = Options { pool_bytes: 64 * 2048, chunk_bytes: 2048, ..Options::default() };
    let outcome = run_scenario(&options, &["at-once", "300"]);
    let process = &outcome.processes[0];
    assert_eq!((process.sessions.len(), process.unrecorded_events), (301, 0));
    // 3 pairs and one barrier wait per thread, and main's own. A lost wait is one or two records.
    let barriers = process.count(op::WAITED, api::BARRIER);
    let (pairs, init) = (acquired(process), process.count(op::INIT, api::BARRIER));
    let all = 300 * 7 + 2 * STARTUP_PAIRS + 1;
    let found = pairs * 2 + barriers + init;
    assert!(found <= all && found + process.lost() >= all, "{found} {} {all}", process.lost());
}

#[test]
fn a_call_on_another_stack_has_its_call_site() {
    let outcome = run_scenario(&Options::default(), &["another-stack"]);
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
    // Alternates between the handler and a function with two callers.
    assert!(
        frames(op::ACQUIRED).windows(2).skip(2).all(|two| two.contains(&1)),
        "{:?}",
        frames(op::ACQUIRED)
    );
}

#[test]
#[cfg(target_arch = "x86_64")]
fn an_invalid_frame_pointer_is_harmless() {
    let outcome = run_scenario(&Options::default(), &["garbage-frames"]);
    let process = &outcome.processes[0];
    assert_eq!(acquired(process), 100_000 + STARTUP_PAIRS);
    for event in process.events() {
        assert!(event.stack.is_some(), "there is a call site always");
    }
}

#[test]
fn libraries_can_be_loaded_and_unloaded() {
    let library = support::program("opened", &["-shared", "-fPIC"]);
    let outcome = run_scenario(&Options::default(), &["opens", library.to_str().expect("a plain name")]);
    assert_eq!(acquired(&outcome.processes[0]), 20 + STARTUP_PAIRS);
}

#[test]
fn errno_is_not_changed() {
    let outcome = run_scenario(&Options::default(), &["errno"]);
    assert_eq!(outcome.processes[0].count(op::FAILED, api::SEMAPHORE), 1);
}

#[test]
fn renames_of_threads_are_recorded() {
    let outcome = run_scenario(&Options::default(), &["named"]);
    let session =
        outcome.processes[0].sessions.iter().find(|session| !session.names.is_empty()).expect("a session");
    assert_eq!(session.names, ["renamed-once", "renamed-twice"]);
    assert_eq!(session.comm, "renamed-twice");
}
