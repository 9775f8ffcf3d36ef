//! Test traces: a few lines of text become Parquet files in a temporary directory.
//!
//! ```text
//! source kernel_contended kinds=mutex,rwsem holds=no       a source in the footer
//! lock m mutex name=hot address=0x10 pid=7                 a lock; without this line, a pthread_mutex of that name
//! task A pid=10 tid=11 comm=worker                         a task; without this line, pid 100, tid from 101, that name; start=, exit=
//! 1_000_000 A acquire m a.c:10                             time, task, event, lock, [mode], [stack], [key=value]...
//! 1_200_000 B wait m shared leaf<b.c:20:work<main          a stack has its leaf first: file:line[:function] or name
//! 1_300_000 B abandon m wait=100 errno=110                 wait=, blocked=, runq=, count=, errno= and peer=TASK
//! 1_400_000 - lost count=3
//! 1_500_000 B offcpu leaf wait=100 state=idle syscall=read peer=A at=x<y  an off-CPU time, its waker, and the waker's stack
//! ```
//!
//! `k:` marks a kernel frame. `#` begins a comment. An acquire without `wait=` is uncontended; `wait=?` is a wait whose begin was not
//! seen.

use std::{collections::HashMap, iter, path::Path};

use tempfile::TempDir;
use trace_format::{
    Batch, Event, EventKind, FormatError, Frame, LockId, LockKind, LockRow, Mode, RunInfo, Stack, StackId,
    TaskId, TaskRow, Trace, TraceWriter, run_info::Source, writer,
};

use crate::{
    AnalyzeError, Filter,
    engine::Rules,
    input::Input,
    input::source::{Batches, EventSource},
    output::{Cell, Column, Format, Page},
    tables::{
        Table,
        key::{By, Key},
        key_columns,
    },
};

mod rows;

pub(crate) use rows::{KeptRows, task_row};

/// Returns the number of cases of a property test: `full`, or a twentieth of it unless `cargo xtask test --full` runs: the smaller sizes set
/// KLOCK_FAST_TESTS.
pub(crate) fn cases(full: u32) -> u32 {
    if std::env::var_os("KLOCK_FAST_TESTS").is_some() { (full / 20).max(4) } else { full }
}

/// Returns the text that `write` writes.
pub(crate) fn text_of(write: impl FnOnce(&mut Vec<u8>) -> Result<(), AnalyzeError>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Events in memory, as one row group with all columns.
pub(crate) struct MemoryEvents(pub(crate) Vec<Event>);

impl EventSource for MemoryEvents {
    fn row_groups(&self) -> usize {
        1
    }

    fn row_group(&self, _index: usize, _columns: &[&str]) -> Result<Batches<'_>, FormatError> {
        Ok(Box::new(iter::once(Ok(self.0.iter().copied().collect::<Batch>()))))
    }
}

/// Returns the table in this format.
pub(crate) fn written(table: &impl Table, format: Format, style: impl Into<crate::TextStyle>) -> String {
    let page = Page { format, style: style.into(), ..Page::default() };
    text_of(|out| table.write(&page, out))
}

/// A trace on disk that is removed when dropped.
pub(crate) struct TestTrace {
    pub(crate) trace: Trace,
    _directory: TempDir,
}

impl TestTrace {
    /// Returns the engine's rules for this trace.
    pub(crate) fn rules(&self) -> Rules {
        Input::open(&self.trace, 0, &Filter::default()).unwrap().rules()
    }
}

/// The parts of a trace in memory.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) info: RunInfo,
    pub(crate) events: Vec<Event>,
    pub(crate) locks: Vec<LockRow>,
    pub(crate) tasks: Vec<TaskRow>,
    pub(crate) stacks: Vec<Stack>,
    lock_ids: HashMap<String, LockId>,
    task_ids: HashMap<String, TaskId>,
    stack_ids: HashMap<String, StackId>,
}

/// Writes the trace that `text` describes.
pub(crate) fn trace(text: &str) -> TestTrace {
    Parts::parse(text).write()
}

/// Opens a trace of `fixtures/traces`.
pub(crate) fn committed(name: &str) -> Trace {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/traces");
    Trace::open(&directory.join(format!("{name}.parquet"))).unwrap()
}

/// Writes the trace that `text` describes, recorded on this host.
pub(crate) fn trace_of_host(host: &str, text: &str) -> TestTrace {
    let mut parts = Parts::parse(text);
    parts.info.host.name = host.to_owned();
    parts.write()
}

impl Parts {
    pub(crate) fn parse(text: &str) -> Self {
        let mut parts = Self::default();
        parts.info.complete = true;
        parts.info.stop_reason = "command ended".to_owned();
        for line in text.lines() {
            let line = line.split(" #").next().unwrap_or(line).trim();
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                [] => {}
                [first, ..] if first.starts_with('#') => {}
                ["source", name, rest @ ..] => parts.source(name, rest),
                ["lock", name, kind, rest @ ..] => parts.lock(name, kind, rest),
                ["task", name, rest @ ..] => parts.task(name, rest),
                [ts, task, event, rest @ ..] => parts.event(ts, task, event, rest),
                _ => panic!("invalid line '{line}'"),
            }
        }
        parts
    }

    pub(crate) fn write(&self) -> TestTrace {
        self.write_in_groups(usize::MAX)
    }

    /// Writes the trace in row groups of `rows` rows.
    pub(crate) fn write_in_groups(&self, rows: usize) -> TestTrace {
        // In memory where possible: each trace is synced to the disk, and property tests write thousands of them.
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let directory = directory.expect("a temporary directory");
        let path = directory.path().join("trace.parquet");
        let mut writer = TraceWriter::create(&path, false).unwrap();
        for group in self.events.chunks(rows) {
            for event in group {
                writer.push(event).unwrap();
            }
            writer.end_row_group().unwrap();
        }
        let info = RunInfo { trace_id: writer::new_trace_id(), ..self.info.clone() };
        writer.finish(&info, &self.stacks, &self.locks, &self.tasks).unwrap();
        let trace = Trace::open(&path).unwrap();
        TestTrace { trace, _directory: directory }
    }

    fn source(&mut self, name: &str, rest: &[&str]) {
        let mut source =
            Source { name: name.to_owned(), uncontended: true, holds: true, ..Source::default() };
        for (key, value) in pairs(rest) {
            match key {
                "kinds" => source.kinds = value.split(',').map(str::to_owned).collect(),
                "holds" => source.holds = value == "yes",
                "uncontended" => source.uncontended = value == "yes",
                "covers" => source.covers = Some(value.parse().unwrap()),
                "limit" => source.limits.push(value.replace('_', " ")),
                _ => panic!("a source has no {key}"),
            }
        }
        self.info.sources.push(source);
    }

    fn lock(&mut self, name: &str, kind: &str, rest: &[&str]) {
        let kind: LockKind = kind.parse().unwrap();
        let id = LockId(self.locks.len() as i32);
        let mut row = LockRow {
            address: Some(0x1000 + 0x40 * id.0 as u64),
            pid: (!kind.is_kernel()).then_some(100),
            name: Some(name.to_owned()),
            ..LockRow::new(id, kind)
        };
        for (key, value) in pairs(rest) {
            match key {
                "name" => row.name = (value != "-").then(|| value.to_owned()),
                "address" => row.address = u64::from_str_radix(value.trim_start_matches("0x"), 16).ok(),
                "pid" => row.pid = value.parse().ok(),
                _ => panic!("a lock has no {key}"),
            }
        }
        self.locks.push(row);
        self.lock_ids.insert(name.to_owned(), id);
    }

    fn task(&mut self, name: &str, rest: &[&str]) {
        let id = TaskId(self.tasks.len() as i32);
        let mut row = TaskRow { comm: Some(name.to_owned()), ..TaskRow::new(id, 100, 101 + id.0) };
        for (key, value) in pairs(rest) {
            match key {
                "pid" => row.pid = value.parse().unwrap(),
                "tid" => row.tid = value.parse().unwrap(),
                "comm" => row.comm = Some(value.to_owned()),
                "start" => row.start_ns = value.parse().ok(),
                "exit" => row.exit_ns = value.parse().ok(),
                "parent" => row.parent = Some(self.task_id(value)),
                _ => panic!("a task has no {key}"),
            }
        }
        self.tasks.push(row);
        self.task_ids.insert(name.to_owned(), id);
    }

    fn event(&mut self, ts: &str, task: &str, kind: &str, rest: &[&str]) {
        let kind: EventKind = kind.parse().unwrap();
        let mut event = Event::new(ts.replace('_', "").parse().unwrap(), kind, 0);
        let mut rest = rest;
        if task != "-" {
            event.task = Some(self.task_id(task));
        }
        if !matches!(kind, EventKind::Lost | EventKind::OffCpu) {
            let (lock, others) = rest.split_first().expect("a lock");
            let id = self.lock_id(lock);
            let row = &mut self.locks[id.0 as usize];
            row.first_ns = if row.last_ns == 0 { event.ts_ns } else { row.first_ns };
            row.last_ns = event.ts_ns;
            event.lock = Some(id);
            event.mode = Some(Mode::Exclusive);
            rest = others;
        }
        if kind == EventKind::Acquire {
            event.wait_ns = Some(0);
        }
        for word in rest {
            match word.split_once('=') {
                Some(("wait", "?")) => event.wait_ns = None,
                Some(("wait", ns)) => event.wait_ns = Some(ns.replace('_', "").parse().unwrap()),
                Some(("blocked", ns)) => event.blocked_ns = Some(ns.replace('_', "").parse().unwrap()),
                Some(("runq", ns)) => event.runq_ns = Some(ns.replace('_', "").parse().unwrap()),
                Some(("errno", errno)) => event.errno = Some(errno.parse().unwrap()),
                Some(("count", count)) => event.count = Some(count.parse().unwrap()),
                Some(("peer", task)) => event.peer_task = Some(self.task_id(task)),
                Some(("at", place)) => event.peer_stack = Some(self.stack_id(place)),
                Some(("call", call)) => event.call = Some(call.parse().unwrap()),
                Some(("syscall", call)) => event.syscall = Some(call.parse().unwrap()),
                Some(("state", state)) => event.state = Some(state.parse().unwrap()),
                Some((key, _)) => panic!("an event has no {key}"),
                None => match word.parse() {
                    Ok(mode) => event.mode = Some(mode),
                    Err(_) => event.stack = Some(self.stack_id(word)),
                },
            }
        }
        self.events.push(event);
    }

    pub(crate) fn lock_id(&mut self, name: &str) -> LockId {
        if !self.lock_ids.contains_key(name) {
            self.lock(name, "pthread_mutex", &[]);
        }
        self.lock_ids[name]
    }

    pub(crate) fn task_id(&mut self, name: &str) -> TaskId {
        if !self.task_ids.contains_key(name) {
            self.task(name, &[]);
        }
        self.task_ids[name]
    }

    fn stack_id(&mut self, place: &str) -> StackId {
        let next = StackId(self.stacks.len() as i32);
        *self.stack_ids.entry(place.to_owned()).or_insert_with(|| {
            self.stacks.push(Stack { id: next, frames: place.split('<').map(frame).collect() });
            next
        })
    }
}

fn frame(text: &str) -> Frame {
    let (kernel, text) = match text.strip_prefix("k:") {
        Some(text) => (true, text),
        None => (false, text),
    };
    let parts: Vec<&str> = text.split(':').collect();
    match parts.as_slice() {
        [file, line, rest @ ..] if line.parse::<i32>().is_ok() => Frame {
            file: Some((*file).to_owned()),
            line: line.parse().ok(),
            symbol: (!rest.is_empty()).then(|| rest.join(":")),
            kernel,
            ..Frame::default()
        },
        _ => Frame { symbol: Some(text.to_owned()), kernel, ..Frame::default() },
    }
}

fn pairs<'a>(words: &'a [&'a str]) -> impl Iterator<Item = (&'a str, &'a str)> {
    words.iter().map(|word| word.split_once('=').unwrap_or_else(|| panic!("{word} is not key=value")))
}

impl Key {
    /// Returns the values of the columns, as text; empty if unknown.
    pub(crate) fn column_values(&self) -> Vec<String> {
        let by = match self {
            Self::Lock { .. } => By::Lock,
            Self::Site { .. } => By::Site,
            Self::Class { .. } => By::Class,
            Self::Kind { .. } => By::Kind,
            Self::Task { .. } => By::Task,
            Self::TaskLock { .. } => By::TaskLock,
            Self::Process { .. } => By::Process,
            Self::Stack { .. } => By::Stack,
            Self::Cgroup { .. } => By::Cgroup,
            Self::Host { .. } => By::Host,
            Self::Purpose { .. } => By::Purpose,
            Self::Comm { .. } => By::Comm,
            Self::Syscall { .. } => panic!("no table has columns of system calls"),
        };
        let text = |column: Column<Self>| match column.cell(self) {
            Cell::Null => String::new(),
            Cell::Int(number) => number.to_string(),
            Cell::Text(text) => text.into_owned(),
        };
        key_columns(by, "", |key: &Self| Some(key)).map(text).collect()
    }
}
