//! What a program says that it did is what its records say: counts, waits, stacks, threads.

mod support;

use std::process::Command;

use support::{Life, Options, program, record};
use trace_format::preload::{api, op, why};

#[test]
fn every_acquisition_of_every_thread_is_recorded_once() {
    let program = program("threads", &[]);
    let outcome = record(&Options::default(), Command::new(program).args(["4", "5000"])).good();
    let process = &outcome.processes[0];
    assert_eq!((outcome.processes.len(), process.why, process.lost()), (1, why::EXEC, 0));
    assert_eq!(process.count(op::ACQUIRED, api::MUTEX), outcome.number("locked"));
    assert_eq!(process.count(op::RELEASED, api::MUTEX), outcome.number("locked"));
    assert_eq!(process.delivered(), 2 * outcome.number("locked"));
    let threads = process.lives.iter().filter(|life| life.delivered > 0).count();
    assert_eq!(threads, 4);
    assert!(
        process
            .lives
            .iter()
            .filter(|life| life.delivered > 0)
            .all(|life| life.ended && !life.comm.is_empty())
    );
}

#[test]
fn of_a_mutex_that_threads_fight_for_each_acquisition_is_free_or_a_wait() {
    let program = program("threads", &[]);
    let outcome = record(&Options::default(), Command::new(program).args(["4", "20000", "1"])).good();
    let process = &outcome.processes[0];
    let (free, waits, waited) = (
        process.count(op::ACQUIRED, api::MUTEX),
        process.count(op::WAIT, api::MUTEX),
        process.count(op::WAITED, api::MUTEX),
    );
    assert_eq!(free + waited, outcome.number("locked"));
    assert_eq!((waits, process.lost()), (waited, 0));
    assert_eq!(process.count(op::RELEASED, api::MUTEX), outcome.number("locked"));
    let tids: Vec<u32> = process.lives.iter().map(|life| life.tid).collect();
    let waits = process.lives.iter().flat_map(|life| &life.events).filter(|event| event.op == op::WAIT);
    for wait in waits {
        assert!(wait.first == 0 || tids.contains(&(wait.first as u32)), "{wait:?}");
    }
    // One hold after the other, by the clock.
    let mut holds: Vec<(u64, u64)> = process.lives.iter().flat_map(holds).collect();
    holds.sort_unstable();
    assert_eq!(holds.len() as u64, outcome.number("locked"));
    for two in holds.windows(2) {
        assert!(two[1].0 > two[0].1, "holds overlap by {} cycles", two[0].1 - two[1].0);
    }
}

/// From when to when a thread had the one mutex of its records.
fn holds(life: &Life) -> Vec<(u64, u64)> {
    let turns: Vec<_> = life.events.iter().filter(|event| event.op != op::WAIT).collect();
    assert!(turns.chunks(2).all(|two| two[0].op != op::RELEASED && two[1].op == op::RELEASED));
    turns.chunks(2).map(|two| (two[0].time, two[1].time)).collect()
}

#[test]
fn a_record_has_the_stack_of_its_call() {
    let program = program("threads", &["-no-pie"]);
    let outcome = record(&Options::default(), Command::new(&program).args(["1", "10"])).good();
    let life = outcome.processes[0].lives.iter().find(|life| life.delivered > 0).expect("the thread");
    for event in &life.events {
        let stack = event.stack.as_ref().expect("a stack");
        let names: Vec<String> =
            stack.iter().take(2).map(|address| support::function_of(&program, *address)).collect();
        assert_eq!(names, ["once", "work"], "{event:x?}");
    }
}
