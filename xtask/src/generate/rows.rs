//! The side tables and the footer of an invented trace.

use trace_format::{
    Frame, LockKind, RunInfo, Stack, StackId, TaskId, TaskRow,
    run_info::{Clocks, Host, Source},
};

use super::machine::Machine;

pub(super) const LOCKS: usize = 256;
pub(super) const TASKS: usize = 64;
pub(super) const STACKS: usize = 32;
pub(super) const CPUS: usize = 8;
pub(super) const PID: i32 = 4242;
/// Start of the trace, in nanoseconds.
pub(super) const BEGIN: u64 = 1_000_000_000;

pub(super) fn id(at: usize) -> i32 {
    i32::try_from(at).unwrap_or(i32::MAX)
}

pub(super) fn place(lock: usize, task: usize) -> StackId {
    StackId(id((lock * 2 + task % 2) % STACKS))
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

pub(super) fn tasks(end: u64) -> Vec<TaskRow> {
    let row = |at: usize| TaskRow {
        id: TaskId(id(at)),
        pid: PID,
        tid: PID + id(at),
        comm: Some(format!("worker-{}", at % 8)),
        start_ns: Some(BEGIN.cast_signed()),
        exit_ns: at.is_multiple_of(2).then_some(end.cast_signed()),
        cgroup: None,
        parent: None,
    };
    (0..TASKS).map(row).collect()
}

pub(super) fn run_info(end: u64, seed: u64, machine: &Machine) -> RunInfo {
    let clocks = |now: u64| {
        let since_begin_ns = (now - BEGIN).cast_signed();
        let realtime_ns = if machine.begun_ns > 0 { machine.begun_ns + since_begin_ns } else { 0 };
        Clocks { monotonic_ns: now.cast_signed(), realtime_ns, boottime_ns: now.cast_signed() }
    };
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
        sources: vec![Source {
            name: "pthread_uprobe".to_owned(),
            kinds: vec![LockKind::PthreadMutex.as_str().to_owned()],
            uncontended: true,
            holds: machine.holds,
            limits: Vec::new(),
            ..Source::default()
        }],
        complete: true,
        stop_reason: "enough events".to_owned(),
        ..RunInfo::default()
    }
}
