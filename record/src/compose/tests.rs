//! Rows of a command around the execution of its program.

use trace_format::{
    EventColumns,
    EventKind::{Acquire, OffCpu, Wait},
    TaskState,
    wire::{WireEvent, WireTask, code},
};

use super::{
    Composer, compose_ordered,
    script::{Row, Script, row},
    tasks::Tasks,
};
use crate::kernel::{
    decode::{self, Descriptor},
    order::{Orderer, Record},
};

/// The task records of an execution at 200 ns.
fn exec(tid: u32) -> WireTask {
    WireTask { ts_ns: 200, code: code::TASK_EXEC, tgid: tid, tid, ..WireTask::default() }
}

fn off_cpu(ts_ns: i64, tid: u32, ns: i64) -> Row {
    row(ts_ns, OffCpu).task(tid).waited(ns, 0, 0).state(TaskState::Runnable)
}

#[test]
fn a_command_has_no_rows_before_it_executes_its_program() {
    let mut s = Script::of_launch(10, 250);
    s.at(100).task(10).off_cpu(90, 0);
    s.at(110).task(11).off_cpu(90, 0);
    s.at(120).task(10).contention_begin(0x40, 0);
    s.at(130).task(10).contention_end(0x40, 0);
    s.task_record(exec(11));
    s.at(210).task(10).off_cpu(205, 0);
    s.task_record(exec(10));
    s.at(220).task(10).contention_begin(0x40, 0);
    s.at(230).task(10).contention_end(0x40, 0);
    s.at(300).task(10).off_cpu(290, 0);
    let of_lock = |ts_ns, kind| row(ts_ns, kind).task(10).lock(0x40).exclusive();
    s.expect([
        off_cpu(110, 11, 20),
        of_lock(220, Wait),
        of_lock(230, Acquire).waited(10, 0, 0),
        off_cpu(300, 10, 10),
    ]);
    assert_eq!(s.unpaired(), 0);
}

#[test]
fn rows_of_a_command_begin_when_klock_knows_that_it_runs_if_the_record_of_the_execution_is_lost() {
    let mut s = Script::of_launch(10, 250);
    s.at(240).task(10).off_cpu(230, 0);
    s.at(260).task(10).off_cpu(255, 0);
    s.expect([off_cpu(260, 10, 5)]);
}

// Records of any bytes become rows whose locks and tasks are known. The first byte of each says whether an
// event or a task is described.
fuzz_target!(wire, |mut bytes: &[u8]| {
    let tasks = Tasks::new([], Box::new(|_, _| None));
    let mut composer = Composer::new(tasks, true, false);
    let (mut orderer, mut rows) = (Orderer::default(), EventColumns::default());
    while let Some((kind, rest)) = bytes.split_first() {
        let size = if kind % 8 == 0 { size_of::<WireTask>() } else { size_of::<WireEvent>() };
        let (record, rest) = rest.split_at(size.min(rest.len()));
        bytes = rest;
        match (decode::event(record), decode::descriptor(record)) {
            (Ok(event), _) => orderer.push(Record::Event(event)),
            (_, Ok(Descriptor::Task(task))) => orderer.push(Record::Task(task)),
            _ => {}
        }
    }
    let mut budget = usize::MAX;
    compose_ordered((&mut orderer, None), u64::MAX, &mut budget, &mut composer, &mut rows, |_, _| {});
    composer.finish([(0, 9)], &mut rows);
    let (locks, tasks) = (composer.locks.rows().len(), composer.tasks.rows().len());
    for row in rows.iter() {
        assert!(row.lock.is_none_or(|lock| (lock.0 as usize) < locks));
        assert!(row.task.into_iter().chain(row.peer_task).all(|task| (task.0 as usize) < tasks));
    }
});
