//! Every function with its outcomes: the program sees the same with the library and without, and the records are what its
//! answers mean.

mod support;

use std::process::Command;

use support::{Event, Options, program, record};
use trace_format::preload::{api, op};

/// A line of what tests/programs/calls.c prints: `FUNCTION(arguments) ADDRESS = ANSWER ERRNO`.
#[derive(Debug)]
struct Said {
    function: String,
    address: u64,
    answer: i32,
    errno: i32,
}

fn said(text: &str) -> Vec<Said> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (call, result) = line.rsplit_once(" = ").expect("an answer");
            let (call, address) = call.rsplit_once(' ').expect("an address");
            let (answer, errno) = result.split_once(' ').expect("an errno");
            Said {
                function: call.split('(').next().expect("a name").to_owned(),
                address: address.parse().expect("a number"),
                answer: answer.parse().expect("a number"),
                errno: errno.parse().expect("a number"),
            }
        })
        .collect()
}

/// What records a call with that answer makes: operation, kind, lock and errno.
fn expected(said: &Said, mutex_of_condition: u64) -> Vec<(u8, u8, u64, u64)> {
    let function = said.function.trim_start_matches("pthread_");
    let (family, verb) = function.split_once('_').expect("FAMILY_VERB");
    let kind = match (family, verb) {
        ("mutex" | "mtx", _) => api::MUTEX,
        ("rwlock", verb) if verb.contains("rd") => api::RWLOCK_READ,
        ("rwlock", verb) if verb.contains("wr") => api::RWLOCK_WRITE,
        ("rwlock", _) => api::RWLOCK,
        ("spin", _) => api::SPIN,
        ("cond" | "cnd", _) => api::CONDITION,
        ("barrier", _) => api::BARRIER,
        ("sem", _) => api::SEMAPHORE,
        _ => panic!("{said:?}"),
    };
    let errno = match (family, said.answer) {
        (_, 0) => 0,
        ("sem", _) => said.errno,
        // threads.h's numbers for busy and for a time that is up.
        ("mtx" | "cnd", 1) => libc::EBUSY,
        ("mtx" | "cnd", 4) => libc::ETIMEDOUT,
        (_, answer) => answer,
    };
    let one = |op| vec![(op, kind, said.address, 0)];
    let failed = (op::FAILED, kind, said.address, errno as u64);
    let waits = matches!(verb, "lock" | "rdlock" | "wrlock" | "wait")
        || verb.starts_with("timed")
        || verb.starts_with("clock");
    match (family, verb, errno) {
        (_, "init", 0) => one(op::INIT),
        (_, "destroy", 0) => one(op::DESTROY),
        (_, "unlock", 0) => one(op::RELEASED),
        ("sem", "post", 0) => one(op::POSTED),
        (_, "init" | "destroy" | "unlock" | "post" | "consistent", _) => vec![],
        ("cond" | "cnd", _, libc::EPERM) => vec![failed],
        ("cond" | "cnd", _, _) => vec![
            (op::CONDITION, kind, mutex_of_condition, 0),
            (op::CONDITION_DONE, kind, mutex_of_condition, errno as u64),
        ],
        ("barrier", _, _) => vec![(op::WAIT, kind, said.address, 0), (op::WAITED, kind, said.address, 0)],
        (_, _, 0) => one(op::ACQUIRED),
        (_, _, libc::EOWNERDEAD) => one(op::ACQUIRED_DEAD),
        (_, _, libc::ETIMEDOUT) if waits => vec![(op::WAIT, kind, said.address, 0), failed],
        _ => vec![failed],
    }
}

fn told(event: &Event) -> (u8, u8, u64, u64) {
    let errno = match event.op {
        op::FAILED => event.first,
        op::CONDITION_DONE => event.second,
        _ => 0,
    };
    (event.op, event.api, event.address, errno)
}

#[test]
fn the_program_sees_what_it_sees_without() {
    let program = program("calls", &[]);
    let alone = Command::new(&program).output().expect("it runs");
    let outcome = record(&Options::default(), &mut Command::new(&program)).good();
    let strip = |text: &str| -> Vec<(String, i32, i32)> {
        said(text).into_iter().map(|said| (said.function, said.answer, said.errno)).collect()
    };
    assert_eq!(strip(&outcome.stdout), strip(&String::from_utf8_lossy(&alone.stdout)));
}

#[test]
fn the_records_are_what_the_answers_mean() {
    let outcome = record(&Options::default(), &mut Command::new(program("calls", &[]))).good();
    let process = &outcome.processes[0];
    let said = said(&outcome.stdout);
    let mut expected_next = Vec::new();
    let mut mutex = 0;
    for said in &said {
        if said.function.ends_with("mutex_lock") || said.function == "mtx_init" {
            mutex = said.address;
        }
        expected_next.extend(expected(said, mutex).into_iter().map(|expected| (expected, said)));
    }
    // Its threads run one at a time.
    let events = process.events();
    for (event, (expected, said)) in events.iter().zip(&expected_next) {
        assert_eq!(told(event), *expected, "{said:?} {event:?}");
    }
    assert_eq!((events.len(), process.lost()), (expected_next.len(), 0));
}

#[test]
fn a_wait_names_the_owner_if_the_lock_does() {
    let outcome = record(&Options::default(), &mut Command::new(program("calls", &[]))).good();
    let process = &outcome.processes[0];
    let main = process.lives.iter().find(|life| life.tid == process.pid).expect("main has a life").tid;
    for event in process.events().into_iter().filter(|event| event.op == op::WAIT) {
        match event.api {
            api::MUTEX => assert_eq!(event.first, main.into(), "{event:?}"),
            api::RWLOCK_READ => assert_eq!(event.first, main.into(), "{event:?}"),
            // Once readers have it, once a writer.
            api::RWLOCK_WRITE => assert!(event.first == 0 || event.first == main.into(), "{event:?}"),
            _ => assert_eq!(event.first, 0, "{event:?}"),
        }
    }
}
