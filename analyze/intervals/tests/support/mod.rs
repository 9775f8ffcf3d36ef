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
//! `k:` marks a kernel frame. `#` begins a comment. An acquire without `wait=` is uncontended; `wait=?` is a
//! wait whose begin was not seen.

#![allow(clippy::unwrap_used, reason = "only tests call this")]

use std::{collections::HashMap, iter, path::Path};

use tempfile::TempDir;
use trace_format::{
    Batch, Event, EventKind, FormatError, Frame, LockId, LockKind, LockRow, Mode, RunInfo, Stack, StackId,
    TaskId, TaskRow, Trace, TraceWriter, run_info::Source, writer,
};

use crate::{
    Filter,
    engine::{Rules, histories},
    input::Input,
    input::source::{Batches, EventSource},
    items::{Hold, Item, Sink, Wait},
};
use output::AnalyzeError;

/// A lock that is waited for longest and not on the path.
pub const V4: &str = "
    0 A acquire b\n5 C acquire a\n10 R wait b\n12 D wait a\n14 E wait a\n60 A release b\n62 R acquire b\n80 R release b
    90 C release a\n92 D acquire a\n95 D release a\n96 E acquire a\n99 E release a\n130 R try_fail c";

/// Three tasks, each twice 10 of work and m for 20, with hand-offs of 3.
pub const V6: &str = "task T1 start=0\ntask T2 start=0\ntask T3 start=0
    10 T1 acquire m\n10 T2 wait m\n10 T3 wait m\n30 T1 release m\n33 T2 acquire m\n40 T1 wait m
    53 T2 release m\n56 T3 acquire m\n63 T2 wait m\n76 T3 release m\n79 T1 acquire m\n86 T3 wait m
    99 T1 release m\n102 T2 acquire m\n122 T2 release m\n125 T3 acquire m\n145 T3 release m";

/// One exclusive lock, five tasks: A holds it, B, C and E wait for it, D only tries.
pub const T1: &str = "
    lock m mutex
    1_000_000 A acquire m a.c:10
    1_200_000 B wait    m b.c:20
    1_300_000 C wait    m b.c:20
    1_500_000 D try_fail m d.c:1 errno=16
    1_600_000 E wait    m e.c:1
    1_700_000 E abandon m e.c:1 wait=100_000 errno=110
    2_000_500 A release m a.c:11
    2_003_000 B acquire m b.c:20 wait=803_000
    2_503_999 B release m b.c:21
    2_505_000 C acquire m b.c:20 wait=1_205_000
    2_505_900 C release m b.c:21
";

/// Returns the number of cases of a property test: `full`, or a fiftieth of it unless `cargo xtask test
/// --full` runs: the smaller sizes set KLOCK_FAST_TESTS.
pub fn cases(full: u32) -> u32 {
    if std::env::var_os("KLOCK_FAST_TESTS").is_some() { (full / 50).max(4) } else { full }
}

/// Returns a thread of process 1 with this start and exit.
pub fn task_row(id: i32, (start_ns, exit_ns): (Option<i64>, Option<i64>)) -> TaskRow {
    TaskRow { start_ns, exit_ns, ..TaskRow::new(TaskId(id), 1, id) }
}

/// Returns the text that `write` writes.
pub fn text_of(write: impl FnOnce(&mut Vec<u8>) -> Result<(), AnalyzeError>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Events in memory, as one row group with all columns.
pub struct MemoryEvents(pub Vec<Event>);

impl EventSource for MemoryEvents {
    fn row_groups(&self) -> usize {
        1
    }

    fn row_group(&self, _index: usize, _columns: &[&str]) -> Result<Batches<'_>, FormatError> {
        Ok(Box::new(iter::once(Ok(self.0.iter().copied().collect::<Batch>()))))
    }
}

/// A trace on disk that is removed when dropped.
pub struct TestTrace {
    pub trace: Trace,
    _directory: TempDir,
}

impl TestTrace {
    /// Returns the engine's rules for this trace.
    pub fn rules(&self) -> Rules {
        Input::open(&self.trace, 0, &Filter::default()).unwrap().rules()
    }
}

/// The parts of a trace in memory.
#[derive(Default)]
pub struct Parts {
    pub info: RunInfo,
    pub events: Vec<Event>,
    pub locks: Vec<LockRow>,
    pub tasks: Vec<TaskRow>,
    pub stacks: Vec<Stack>,
    lock_ids: HashMap<String, LockId>,
    task_ids: HashMap<String, TaskId>,
    stack_ids: HashMap<String, StackId>,
}

/// Writes the trace that `text` describes.
pub fn trace(text: &str) -> TestTrace {
    Parts::parse(text).write()
}

/// Opens a trace of `fixtures/traces`.
pub fn committed(name: &str) -> Trace {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces");
    Trace::open(&directory.join(format!("{name}.parquet"))).unwrap()
}

/// Writes the trace that `text` describes, recorded on this host.
pub fn trace_of_host(host: &str, text: &str) -> TestTrace {
    let mut parts = Parts::parse(text);
    parts.info.host.name = host.to_owned();
    parts.write()
}

impl Parts {
    pub fn parse(text: &str) -> Self {
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

    pub fn write(&self) -> TestTrace {
        self.write_in_groups(usize::MAX)
    }

    /// Writes the trace in row groups of `rows` rows.
    pub fn write_in_groups(&self, rows: usize) -> TestTrace {
        // In memory where possible: each trace is synced to the disk, and property tests write thousands of
        // them.
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
                "cpu" => row.process_cpu_ns = value.parse().ok(),
                "throttled" => {
                    (row.throttled_periods, row.throttled_ns) = value
                        .split_once('/')
                        .map(|(periods, ns)| (periods.parse().ok(), ns.parse().ok()))
                        .unwrap();
                }
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

    pub fn lock_id(&mut self, name: &str) -> LockId {
        if !self.lock_ids.contains_key(name) {
            self.lock(name, "pthread_mutex", &[]);
        }
        self.lock_ids[name]
    }

    pub fn task_id(&mut self, name: &str) -> TaskId {
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

/// The trace of a random history, with stacks so that the first two are the same point.
pub fn trace_of(events: Vec<Event>, group_rows: usize) -> TestTrace {
    parts_of(events).write_in_groups(group_rows)
}

/// Returns the parts of a trace of a random history.
pub fn parts_of(events: Vec<Event>) -> Parts {
    let (info, locks) = histories::context();
    let mut parts = Parts::default();
    let frame = |line| Frame { file: Some("a.c".into()), line: Some(line), kernel: true, ..Frame::default() };
    let stack = |id, line| Stack { id: StackId(id), frames: vec![frame(line)] };
    parts.stacks = vec![stack(0, 1), stack(1, 1), stack(2, 2)];
    for name in ["A", "B", "C", "D"] {
        parts.task_id(name);
    }
    parts.info = RunInfo { complete: true, ..info };
    (parts.locks, parts.events) = (locks, events);
    parts
}

/// Keeps every interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intervals {
    /// In the order of their ends.
    pub holds: Vec<Hold>,
    /// In the order of their ends.
    pub waits: Vec<Wait>,
}

impl Sink for Intervals {
    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Hold(hold) => self.holds.push(*hold),
            Item::Wait(wait) => self.waits.push(*wait),
            _ => {}
        }
    }
}
