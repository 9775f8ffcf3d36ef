//! Compares the records with what a program reports: counts, waits, stacks, threads.

mod support;

use std::process::Command;

use support::{Options, ThreadSession, program, record};
use trace_format::preload::{api, op, reason};

#[test]
fn every_acquisition_of_every_thread_is_recorded_once() {
    let program = program("threads", &[]);
    let outcome = record(&Options::default(), Command::new(program).args(["4", "5000"])).successful();
    let process = &outcome.processes[0];
    assert_eq!((outcome.processes.len(), process.reason, process.lost()), (1, reason::EXEC, 0));
    assert_eq!(process.count(op::ACQUIRED, api::MUTEX), outcome.number("locked"));
    assert_eq!(process.count(op::RELEASED, api::MUTEX), outcome.number("locked"));
    assert_eq!(process.delivered(), 2 * outcome.number("locked"));
    let threads = process.sessions.iter().filter(|session| session.delivered > 0).count();
    assert_eq!(threads, 4);
    assert!(
        process
            .sessions
            .iter()
            .filter(|session| session.delivered > 0)
            .all(|session| session.ended && !session.comm.is_empty())
    );
}

#[test]
fn every_acquisition_of_a_contended_mutex_is_uncontended_or_ends_a_wait() {
    let program = program("threads", &[]);
    let options = Options { max_events: 10_000_000, ..Options::default() };
    let outcome = record(&options, Command::new(program).args(["4", "200000", "1"])).successful();
    let process = &outcome.processes[0];
    let (free, waits, waited) = (
        process.count(op::ACQUIRED, api::MUTEX),
        process.count(op::WAIT, api::MUTEX),
        process.count(op::WAITED, api::MUTEX),
    );
    assert_eq!(free + waited, outcome.number("locked"));
    assert_eq!((waits, process.lost()), (waited, 0));
    assert_eq!(process.count(op::RELEASED, api::MUTEX), outcome.number("locked"));
    let tids: Vec<u32> = process.sessions.iter().map(|session| session.tid).collect();
    let waits =
        process.sessions.iter().flat_map(|session| &session.events).filter(|event| event.op == op::WAIT);
    for wait in waits {
        assert!(wait.first == 0 || tids.contains(&(wait.first as u32)), "{wait:?}");
    }
    // Holds do not overlap. If no acquisition has a fence before its clock, up to 200 of a million do.
    let mut holds: Vec<(u64, u64)> = process.sessions.iter().flat_map(holds).collect();
    holds.sort_unstable();
    assert_eq!(holds.len() as u64, outcome.number("locked"));
    for two in holds.windows(2) {
        assert!(two[1].0 > two[0].1, "holds overlap by {} cycles", two[0].1 - two[1].0);
    }
}

/// Returns the start and end of each hold of the only mutex.
fn holds(session: &ThreadSession) -> Vec<(u64, u64)> {
    let turns: Vec<_> = session.events.iter().filter(|event| event.op != op::WAIT).collect();
    assert!(turns.chunks(2).all(|two| two[0].op != op::RELEASED && two[1].op == op::RELEASED));
    turns.chunks(2).map(|two| (two[0].time, two[1].time)).collect()
}

#[test]
fn a_record_has_the_stack_of_its_call() {
    let program = program("threads", &["-no-pie"]);
    let outcome = record(&Options::default(), Command::new(&program).args(["1", "10"])).successful();
    let session =
        outcome.processes[0].sessions.iter().find(|session| session.delivered > 0).expect("the thread");
    for event in &session.events {
        let stack = event.stack.as_ref().expect("a stack");
        let names: Vec<String> =
            stack.iter().take(2).map(|address| support::function_of(&program, *address)).collect();
        assert_eq!(names, ["once", "work"], "{event:x?}");
    }
}

/// Whether so many of these calls can have been drawn with a probability of one in `every`: within seven
/// standard deviations.
fn is_one_in(every: u32, drawn: u64, calls: u64) -> bool {
    let (drawn, mean) = (drawn as f64, calls as f64 / f64::from(every));
    (drawn - mean).abs() <= 7.0 * mean.sqrt()
}

#[test]
fn sampling_records_one_in_n_acquisitions_with_its_release_also_of_threads_with_a_single_call() {
    let program = program("threads", &[]);
    for words in [["4", "50000", "0", "1"], ["64", "1", "0", "40"]] {
        let options = Options { sample: Some(8), ..Options::default() };
        let outcome = record(&options, Command::new(&program).args(words)).successful();
        let (process, locked) = (&outcome.processes[0], outcome.number("locked"));
        let drawn = process.count(op::ACQUIRED, api::MUTEX);
        assert!(is_one_in(8, drawn, locked), "{drawn} of {locked}");
        assert_eq!((process.count(op::RELEASED, api::MUTEX), process.lost()), (drawn, 0));
    }
}

#[test]
fn sampling_records_every_wait() {
    let program = program("threads", &[]);
    let options = Options { sample: Some(1000), ..Options::default() };
    let outcome = record(&options, Command::new(program).args(["4", "200000", "1"])).successful();
    let process = &outcome.processes[0];
    let (free, waits, waited) = (
        process.count(op::ACQUIRED, api::MUTEX),
        process.count(op::WAIT, api::MUTEX),
        process.count(op::WAITED, api::MUTEX),
    );
    assert_eq!((waits, process.count(op::RELEASED, api::MUTEX)), (waited, free + waited));
    assert!(is_one_in(1000, free, outcome.number("locked") - waited), "{free}, {waited} waits");
}
