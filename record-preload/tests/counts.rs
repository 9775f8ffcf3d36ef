//! What a program says that it did is what its records say: counts, waits, stacks, threads.

mod support;

use std::process::Command;

use support::{Options, program, record};
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
    assert!(process.lives.iter().filter(|life| life.delivered > 0).all(|life| life.ended && life.comm != ""));
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
    // Taken and given back in turns, by the clock; but for acquisitions that read it some cycles early.
    let mut events = process.events();
    events.retain(|event| event.op != op::WAIT);
    let early = |event: &support::Event| event.time + if event.op == op::ACQUIRED { 500 } else { 0 };
    events.sort_by_key(|event| early(event));
    let tids: Vec<u32> = process.lives.iter().map(|life| life.tid).collect();
    let owners = process.lives.iter().flat_map(|life| &life.events).filter(|event| event.op == op::WAIT);
    for wait in owners {
        assert!(wait.first == 0 || tids.contains(&(wait.first as u32)), "{wait:?}");
    }
    let mut held = 0_i32;
    for event in events {
        held += if event.op == op::RELEASED { -1 } else { 1 };
        assert!((-1..=2).contains(&held));
    }
    assert_eq!(held, 0);
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
