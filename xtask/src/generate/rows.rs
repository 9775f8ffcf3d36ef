//! The side tables of an invented program: locks, stacks, tasks, and the description of the recording.

use trace_format::{
    Frame, LockId, LockKind, LockRow, RunInfo, Scope, Stack, StackId, TaskId, TaskRow,
    run_info::{Clocks, Covers, Host, SCHED, Source},
};

use super::program::{BEGIN, CPUS, Lock, Machine, Program, STACKS, TASKS, id};

const PID: i32 = 4242;

pub(super) fn locks(program: &Program) -> Vec<LockRow> {
    let row = |(at, lock): (usize, &Lock)| {
        let (first, last) = lock.seen.unwrap_or((program.now, program.now));
        LockRow {
            id: LockId(id(at)),
            address: Some(0x5555_5560_0000 + 64 * at as u64),
            kind: LockKind::PthreadMutex,
            scope: Scope::Process,
            pid: Some(PID),
            name: Some(format!("lock_{at:03}")),
            shared: None,
            init_stack: None,
            first_ns: first.cast_signed(),
            last_ns: last.cast_signed(),
        }
    };
    program.locks.iter().enumerate().map(row).collect()
}

pub(super) fn stacks() -> Vec<Stack> {
    let frame = |function: String, line: usize| Frame {
        address: Some(0x5555_5555_4000 + 16 * line as u64),
        module: Some("/usr/bin/invented".to_owned()),
        build_id: Some("1234567890abcdef1234567890abcdef12345678".to_owned()),
        offset: Some(16 * line as u64),
        symbol: Some(function),
        symbol_offset: Some(8),
        file: Some("/src/invented.c".to_owned()),
        line: Some(id(line)),
        inlined: false,
        kernel: false,
        guessed: false,
    };
    let stack = |at: usize| Stack {
        id: StackId(id(at)),
        frames: vec![
            frame(format!("take_{at:02}"), 100 + at),
            frame(format!("serve_{}", at % 4), 200 + at % 4),
            frame("worker".to_owned(), 300),
        ],
    };
    (0..STACKS).map(stack).collect()
}

/// Returns the rows of the tasks of a trace that ends at this time.
pub(super) fn tasks(end: u64) -> Vec<TaskRow> {
    let row = |at: usize| TaskRow {
        comm: Some(format!("worker-{}", at % 8)),
        start_ns: Some(BEGIN.cast_signed()),
        exit_ns: at.is_multiple_of(2).then_some(end.cast_signed()),
        ..TaskRow::new(TaskId(id(at)), PID, PID + id(at))
    };
    (0..TASKS).map(row).collect()
}

/// Returns the description of a trace that ends at this time.
pub(super) fn run_info(end: u64, seed: u64, machine: &Machine) -> RunInfo {
    let clocks = |now: u64| {
        let since_begin_ns = (now - BEGIN).cast_signed();
        let realtime_ns = if machine.begun_ns > 0 { machine.begun_ns + since_begin_ns } else { 0 };
        Clocks { monotonic_ns: now.cast_signed(), realtime_ns, boottime_ns: now.cast_signed() }
    };
    let locks = Source {
        name: "pthread_uprobe".to_owned(),
        kinds: vec![LockKind::PthreadMutex.as_str().to_owned()],
        uncontended: true,
        holds: machine.holds,
        limits: Vec::new(),
        ..Source::default()
    };
    let off_cpu =
        Source { name: SCHED.to_owned(), covers: Some(Covers::All), ready: Some(true), ..Source::default() };
    RunInfo {
        trace_id: format!("{seed:032x}"),
        klock: env!("CARGO_PKG_VERSION").to_owned(),
        host: Host {
            name: machine.host.clone(),
            kernel: "6.12.0".to_owned(),
            arch: "x86_64".to_owned(),
            cpus: CPUS as u32,
        },
        command_line: vec!["cargo".to_owned(), "xtask".to_owned(), "generate".to_owned()],
        target: "an invented program".to_owned(),
        clocks_start: clocks(BEGIN),
        clocks_end: clocks(end),
        sources: [locks].into_iter().chain(machine.off_cpu.then_some(off_cpu)).collect(),
        complete: true,
        stop_reason: "enough events".to_owned(),
        ..RunInfo::default()
    }
}
