//! A temporary folder to run klock in, and a small trace in it: two threads, one mutex, one wait.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;
use trace_format::{
    Event, EventKind, Frame, LockId, LockKind, LockRow, Mode, RunInfo, Stack, StackId, TaskId, TaskRow,
    TraceWriter,
    run_info::{Clocks, Source},
};

/// A temporary folder, one per test.
pub(crate) struct Folder(TempDir);

/// The result of a command.
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn klock(&self, args: &[&str]) -> Outcome {
        Outcome::from(
            Command::new(env!("CARGO_BIN_EXE_klock")).current_dir(self.0.path()).args(args).output().unwrap(),
        )
    }

    /// Returns the names of the files in the folder, sorted.
    pub(crate) fn files(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Writes `events` to `trace.parquet`.
    pub(crate) fn with_trace(self, events: &[Event]) -> Self {
        write_trace(&self.path("trace.parquet"), "0123456789abcdef0123456789abcdef", events);
        self
    }
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Outcome {
    /// Checks that the exit code is `code`, and that stderr is one line that contains all `parts`.
    pub(crate) fn fails(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        assert_eq!(self.stdout, "");
        assert_eq!(self.stderr.lines().count(), 1, "not one line: {}", self.stderr);
        for part in parts {
            assert!(self.stderr.contains(part), "no '{part}' in: {}", self.stderr);
        }
    }

    pub(crate) fn succeeds(&self) -> &str {
        assert_eq!(self.code, Some(0), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        &self.stdout
    }
}

fn event(ts_ns: i64, kind: EventKind, task: i32) -> Event {
    let (mode, lock, stack) = (Some(Mode::Exclusive), Some(LockId(0)), Some(StackId(0)));
    Event { mode, lock, task: Some(TaskId(task)), stack, ..Event::new(ts_ns, kind, 0) }
}

/// Returns the events of two threads: a holds from 1 ms to 2 ms, b waits from 1.2 ms to 2.1 ms and holds
/// until 2.5 ms.
pub(crate) fn one_wait() -> Vec<Event> {
    vec![
        Event { wait_ns: Some(0), ..event(1_000_000, EventKind::Acquire, 0) },
        event(1_200_000, EventKind::Wait, 1),
        event(2_000_000, EventKind::Release, 0),
        Event { wait_ns: Some(900_000), ..event(2_100_000, EventKind::Acquire, 1) },
        event(2_500_000, EventKind::Release, 1),
    ]
}

pub(crate) fn run_info(trace_id: &str) -> RunInfo {
    let clocks = |monotonic_ns| Clocks { monotonic_ns, realtime_ns: monotonic_ns, boottime_ns: monotonic_ns };
    RunInfo {
        trace_id: trace_id.to_owned(),
        klock: "0.1.0".to_owned(),
        command_line: vec!["klock".to_owned(), "record".to_owned()],
        target: "pid 10".to_owned(),
        clocks_start: clocks(0),
        clocks_end: clocks(3_000_000),
        sources: vec![Source {
            name: "pthread_uprobe".to_owned(),
            kinds: vec!["pthread_mutex".to_owned()],
            uncontended: true,
            holds: true,
            limits: Vec::new(),
            ..Source::default()
        }],
        complete: true,
        stop_reason: "command ended".to_owned(),
        ..RunInfo::default()
    }
}

/// Rows of the side tables.
pub(crate) struct Rows {
    pub(crate) stacks: Vec<Stack>,
    pub(crate) locks: Vec<LockRow>,
    pub(crate) tasks: Vec<TaskRow>,
}

/// Returns the rows of the side tables.
pub(crate) fn side_rows() -> Rows {
    let frame = Frame {
        module: Some("/bin/app".to_owned()),
        symbol: Some("work".to_owned()),
        file: Some("app.c".to_owned()),
        line: Some(12),
        ..Frame::default()
    };
    let lock = LockRow {
        address: Some(0x6093_88f0),
        pid: Some(10),
        name: Some("cache_lock".to_owned()),
        first_ns: 1_000_000,
        last_ns: 2_500_000,
        ..LockRow::new(LockId(0), LockKind::PthreadMutex)
    };
    let task =
        |id, comm: &str| TaskRow { comm: Some(comm.to_owned()), ..TaskRow::new(TaskId(id), 10, 10 + id) };
    Rows {
        stacks: vec![Stack { id: StackId(0), frames: vec![frame] }],
        locks: vec![lock],
        tasks: vec![task(0, "a"), task(1, "b")],
    }
}

/// Starts to write a trace; the events are in the writer's buffer.
pub(crate) fn begin_trace(path: &Path, events: &[Event]) -> TraceWriter {
    let mut writer = TraceWriter::create(path, true).unwrap();
    for event in events {
        writer.push(event).unwrap();
    }
    writer
}

pub(crate) fn write_trace(path: &Path, trace_id: &str, events: &[Event]) {
    let Rows { stacks, locks, tasks } = side_rows();
    begin_trace(path, events).finish(&run_info(trace_id), &stacks, &locks, &tasks).unwrap();
}
