//! What stands around the histories that tables are tested on: one trace for all of them, with the locks, tasks and stacks that their
//! events name, and the events in memory.

use trace_format::{Event, Frame, Stack, StackId, TaskId, TaskRow, run_info::Clocks};

use crate::{
    Filter,
    error::AnalyzeError,
    intervals::histories,
    names::Names,
    parts::Part,
    report::By,
    scope::Chosen,
    testing::{Parts, TestTrace},
};

/// When the recording began and ended; every history lies in between, but for what comes late at its begin.
pub(super) const START_NS: i64 = 1000;
pub(super) const END_NS: i64 = 1400;

/// A task.
pub(super) struct Who {
    pub(super) pid: i32,
    pub(super) tid: i32,
    pub(super) comm: Option<&'static str>,
    pub(super) cgroup: Option<&'static str>,
}

/// Two threads of one process, two processes of which one has a name that there is already, and the other none.
pub(super) const TASKS: [Who; histories::TASKS as usize] = [
    Who { pid: 100, tid: 100, comm: Some("a"), cgroup: Some("/x") },
    Who { pid: 100, tid: 101, comm: Some("b"), cgroup: Some("/x") },
    Who { pid: 200, tid: 200, comm: Some("a"), cgroup: None },
    Who { pid: 201, tid: 201, comm: None, cgroup: Some("/y") },
];

/// The trace: written once, for its side tables.
pub(super) struct Surroundings {
    test: TestTrace,
    names: Names,
}

impl Surroundings {
    pub(super) fn new() -> Self {
        let test = parts(vec![Event::new(START_NS, trace_format::EventKind::OffCpu, 0)]).write();
        let mut names = Names::read(&test.trace).unwrap();
        names.read_chains(&test.trace, None).unwrap();
        Self { test, names }
    }

    /// These events as the part of a table that wants this of them.
    pub(super) fn part(&self, events: &[Event], filter: &Filter) -> Result<Part<'_>, AnalyzeError> {
        let (trace, names) = (&self.test.trace, self.names.clone());
        let chosen = Chosen::of(trace, &names, filter)?;
        Ok(Part { trace, names, chosen, label: "here".to_owned(), events: Some(events.to_vec()) })
    }
}

/// The same events in a file, in row groups of so many rows.
pub(super) fn file(events: &[Event], group_rows: usize) -> TestTrace {
    parts(events.to_vec()).write_in_groups(group_rows)
}

fn parts(events: Vec<Event>) -> Parts {
    let (mut info, locks) = histories::surroundings();
    let clocks = |monotonic_ns| Clocks { monotonic_ns, ..Clocks::default() };
    (info.clocks_start, info.clocks_end) = (clocks(START_NS), clocks(END_NS));
    info.host.name = "here".to_owned();
    info.complete = true;
    let task = |(id, who): (i32, &Who)| TaskRow {
        id: TaskId(id),
        pid: who.pid,
        tid: who.tid,
        comm: who.comm.map(str::to_owned),
        start_ns: None,
        exit_ns: None,
        cgroup: who.cgroup.map(str::to_owned),
    };
    let frame = |symbol: &str, line| Frame {
        symbol: Some(symbol.to_owned()),
        file: Some("a.c".to_owned()),
        line: Some(line),
        kernel: true,
        ..Frame::default()
    };
    let stack = |id, frames| Stack { id: StackId(id), frames };
    let mut parts = Parts::default();
    (parts.info, parts.locks, parts.events) = (info, locks, events);
    parts.tasks = (0..).zip(&TASKS).map(task).collect();
    // The first two are the same place, and no two the same stack.
    parts.stacks = vec![
        stack(0, vec![frame("f", 1)]),
        stack(1, vec![frame("f", 1), frame("g", 5)]),
        stack(2, vec![frame("f", 2), frame("h", 7)]),
    ];
    parts
}

/// Every key that rows can have.
pub(super) fn any_key() -> impl proptest::strategy::Strategy<Value = By> {
    proptest::sample::select(By::ALL)
}
