//! Starts, joins and ends of threads: the program sees the same results with and without the library, and the
//! records match them.

mod support;

use std::process::Command;

use support::{Event, Options, Outcome, program, record};
use trace_format::preload::{api, call, op};

/// A join: what it did, the thread and the errno.
type Join = (String, u64, u64);

fn joins(text: &str) -> Vec<Join> {
    let parse = |line: &str| {
        let (call, result) = line.split_once(" = ")?;
        let (how, thread) = call.split_once(' ').expect("a thread");
        let errno = result.split(' ').next().expect("an answer").parse().expect("a number");
        Some((how.to_owned(), thread.parse().expect("a number"), errno))
    };
    text.lines().filter_map(parse).collect()
}

fn recorded() -> Outcome {
    record(&Options::default(), &mut Command::new(program("joins", &[]))).successful()
}

/// Returns the records of joins, by thread and in its order, as the program says them.
fn found(outcome: &Outcome) -> Vec<Join> {
    let mut found = Vec::new();
    for session in outcome.processes.iter().flat_map(|process| &process.sessions) {
        let mut waits: Option<&Event> = None;
        for event in &session.thread_events {
            let how = match (event.op, waits) {
                (op::INIT | op::POSTED | op::STARTED, _) => continue,
                (op::WAIT, None) => {
                    waits = Some(event);
                    continue;
                }
                (op::WAITED, Some(_)) => "waits",
                (op::FAILED, Some(_)) => "gives-up",
                (op::ACQUIRED, None) => "at-once",
                (op::FAILED, None) => "refused",
                _ => panic!("{event:?} after {waits:?}"),
            };
            if let Some(wait) = waits.take() {
                assert_eq!((wait.address, wait.call), (event.address, event.call));
            }
            let errno = if event.op == op::FAILED { event.first } else { 0 };
            found.push((how.to_owned(), event.address, errno));
        }
        assert_eq!(waits, None);
    }
    found
}

#[test]
fn the_program_sees_the_same_results_without_the_library() {
    let program = program("joins", &[]);
    let alone = Command::new(&program).output().expect("it runs");
    let outcome = record(&Options::default(), &mut Command::new(&program)).successful();
    let strip = |text: &str| -> Vec<String> {
        let without_thread = |line: &str| match line.split_once(" = ") {
            Some((call, result)) => format!("{} = {result}", call.split(' ').next().expect("a word")),
            None => line.to_owned(),
        };
        text.lines().map(without_thread).collect()
    };
    assert_eq!(strip(&outcome.stdout), strip(&String::from_utf8_lossy(&alone.stdout)));
    assert!(outcome.stdout.contains("cancelled 1\n") && outcome.stdout.contains("number 21\n"));
}

#[test]
fn joins_are_recorded_as_the_program_says() {
    let outcome = recorded();
    let mut said = joins(&outcome.stdout);
    let mut found = found(&outcome);
    // The program does not say the joins of threads that joined others, and the one that is cancelled.
    let cancelled: Vec<_> = found.iter().filter(|join| join.2 == libc::ECANCELED as u64).collect();
    assert_eq!(cancelled.len(), 1, "{found:?}");
    assert_eq!(cancelled[0].0, "gives-up");
    for join in &mut said {
        if join.0 == "refused" && join.2 == 0 {
            panic!("{join:?} succeeded");
        }
    }
    found.retain(|join| join.2 != libc::ECANCELED as u64);
    for join in &said {
        let at = found.iter().position(|other| other == join);
        let at = at.unwrap_or_else(|| panic!("{join:?} is not among {found:?}"));
        found.remove(at);
    }
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(outcome.processes.len(), 2);
    assert!(found.iter().all(|join| join.2 == 0), "{found:?}");
    for errno in [libc::EBUSY, libc::ETIMEDOUT, libc::EINVAL, libc::EDEADLK] {
        assert!(said.iter().any(|join| join.2 == errno as u64), "{errno} in {said:?}");
    }
}

#[test]
fn a_join_names_the_thread_and_a_thread_its_creation_start_and_end() {
    let outcome = recorded();
    let process = &outcome.processes[0];
    let main =
        process.sessions.iter().find(|session| session.tid == process.pid).expect("main has a session");
    assert_eq!(main.count(op::STARTED, api::THREAD), 0);
    for session in process.sessions.iter().filter(|session| session.tid != process.pid) {
        let own: Vec<&Event> = session
            .thread_events
            .iter()
            .filter(|event| matches!(event.op, op::STARTED | op::POSTED))
            .collect();
        let ops: Vec<u8> = own.iter().map(|event| event.op).collect();
        assert_eq!(ops, [op::STARTED, op::POSTED], "{session:?}");
        assert_eq!(own[0].address, own[1].address);
        let thread = own[0].address;
        let creations = main
            .thread_events
            .iter()
            .filter(|event| (event.op, event.address) == (op::INIT, thread))
            .filter(|event| event.stack.is_some());
        assert!(creations.count() >= 1, "{thread:x}");
        let waits = process.sessions.iter().flat_map(|session| &session.thread_events);
        let (from, to) = (own[0].time, own[1].time);
        for wait in waits.filter(|event| (event.op, event.address) == (op::WAIT, thread)) {
            if wait.time > from && wait.time < to {
                assert_eq!(wait.first, u64::from(session.tid), "{wait:?}");
            }
        }
    }
    let bits = |op: u8| {
        let events = main.thread_events.iter().filter(move |event| event.op == op);
        events.map(|event| event.call).collect::<Vec<_>>()
    };
    assert!(bits(op::ACQUIRED).contains(&call::TRY) && bits(op::WAITED).contains(&call::TIMED));
}
