//! Every function with its outcomes: the program sees the same results with and without the library, and the
//! records match the results.

mod support;

use std::process::Command;

use support::{Event, Options, program, record};
use trace_format::preload::{api, call, op};

/// A line of the output of tests/programs/calls.c: `FUNCTION(arguments) ADDRESS = RESULT ERRNO`.
#[derive(Debug)]
struct ProgramCall {
    function: String,
    address: u64,
    answer: i32,
    errno: i32,
}

fn parse_calls(text: &str) -> Vec<ProgramCall> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (call, result) = line.rsplit_once(" = ").expect("an answer");
            let (call, address) = call.rsplit_once(' ').expect("an address");
            let (answer, errno) = result.split_once(' ').expect("an errno");
            ProgramCall {
                function: call.split('(').next().expect("a name").to_owned(),
                address: address.parse().expect("a number"),
                answer: answer.parse().expect("a number"),
                errno: errno.parse().expect("a number"),
            }
        })
        .collect()
}

/// Returns the expected records of a call: operation, kind, lock and errno.
fn expected(call: &ProgramCall, mutex_of_condition: u64) -> Vec<(u8, u8, u64, u64)> {
    let function = call.function.trim_start_matches("pthread_");
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
        _ => panic!("{call:?}"),
    };
    let errno = match (family, call.answer) {
        (_, 0) => 0,
        ("sem", _) => call.errno,
        // The values of threads.h for busy and timed out.
        ("mtx" | "cnd", 1) => libc::EBUSY,
        ("mtx" | "cnd", 4) => libc::ETIMEDOUT,
        (_, answer) => answer,
    };
    let one = |op| vec![(op, kind, call.address, 0)];
    let failed = (op::FAILED, kind, call.address, errno as u64);
    let waits = matches!(verb, "lock" | "rdlock" | "wrlock" | "wait")
        || verb.starts_with("timed")
        || verb.starts_with("clock");
    match (family, verb, errno) {
        (_, "init", 0) => one(op::INIT),
        (_, "destroy", 0) => one(op::DESTROY),
        (_, "unlock", 0) => one(op::RELEASED),
        ("sem", "post", 0) | ("cond" | "cnd", "signal" | "broadcast", 0) => one(op::POSTED),
        (_, "init" | "destroy" | "unlock" | "post" | "consistent", _) => vec![],
        ("cond" | "cnd", _, libc::EPERM) => vec![failed],
        ("cond" | "cnd", _, _) => vec![
            (op::CONDITION_WAIT, kind, mutex_of_condition, 0),
            (op::CONDITION_WAITED, kind, mutex_of_condition, errno as u64),
        ],
        ("barrier", _, _) => {
            vec![(op::WAIT, kind, call.address, 0), (op::WAITED, kind, call.address, 0)]
        }
        (_, _, 0) => one(op::ACQUIRED),
        (_, _, libc::EOWNERDEAD) => one(op::ACQUIRED_OWNER_DIED),
        (_, _, libc::ETIMEDOUT) if waits => vec![(op::WAIT, kind, call.address, 0), failed],
        _ => vec![failed],
    }
}

/// Returns the kind of call that its records have.
fn call_bits(function: &str) -> u8 {
    let verb = function.trim_start_matches("pthread_").split_once('_').expect("FAMILY_VERB").1;
    match verb {
        verb if verb.starts_with("try") => call::TRY,
        verb if verb.starts_with("timed") || verb.starts_with("clock") => call::TIMED,
        _ => 0,
    }
}

fn fields(event: &Event) -> (u8, u8, u64, u64) {
    let errno = match event.op {
        op::FAILED => event.first,
        op::CONDITION_WAITED => event.second,
        _ => 0,
    };
    (event.op, event.api, event.address, errno)
}

#[test]
fn the_program_sees_the_same_results_without_the_library() {
    let program = program("calls", &[]);
    let alone = Command::new(&program).output().expect("it runs");
    let outcome = record(&Options::default(), &mut Command::new(&program)).successful();
    let strip = |text: &str| -> Vec<(String, i32, i32)> {
        parse_calls(text).into_iter().map(|call| (call.function, call.answer, call.errno)).collect()
    };
    assert_eq!(strip(&outcome.stdout), strip(&String::from_utf8_lossy(&alone.stdout)));
}

#[test]
fn the_records_match_the_results() {
    let outcome = record(&Options::default(), &mut Command::new(program("calls", &[]))).successful();
    let process = &outcome.processes[0];
    let calls = parse_calls(&outcome.stdout);
    let mut expected_next = Vec::new();
    let mut mutex = 0;
    for call in &calls {
        if call.function.ends_with("mutex_lock") || call.function == "mtx_init" {
            mutex = call.address;
        }
        expected_next.extend(expected(call, mutex).into_iter().map(|expected| (expected, call)));
    }
    // The program's threads run one at a time.
    let events = process.events();
    for (event, (expected, call)) in events.iter().zip(&expected_next) {
        assert_eq!(fields(event), *expected, "{call:?} {event:?}");
        assert_eq!(event.call, call_bits(&call.function), "{call:?} {event:?}");
    }
    assert_eq!((events.len(), process.lost()), (expected_next.len(), 0));
}

#[test]
fn a_wait_has_the_owner_if_the_lock_stores_it() {
    let outcome = record(&Options::default(), &mut Command::new(program("calls", &[]))).successful();
    let process = &outcome.processes[0];
    let main =
        process.sessions.iter().find(|session| session.tid == process.pid).expect("main has a session").tid;
    for event in process.events().into_iter().filter(|event| event.op == op::WAIT) {
        match event.api {
            api::MUTEX => assert_eq!(event.first, u64::from(main), "{event:?}"),
            api::RWLOCK_READ => assert_eq!(event.first, u64::from(main), "{event:?}"),
            // Held once by readers and once by a writer.
            api::RWLOCK_WRITE => assert!(event.first == 0 || event.first == u64::from(main), "{event:?}"),
            _ => assert_eq!(event.first, 0, "{event:?}"),
        }
    }
}
