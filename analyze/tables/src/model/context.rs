//! The context of random histories: one trace with the locks, tasks and stacks that all histories refer to.
//! Events are in memory.

use trace_format::{Event, Frame, Stack, StackId, TaskId, TaskRow, run_info::Clocks};

use crate::{
    key::By,
    testing::{MemoryEvents, Parts, TestTrace},
};
use intervals::{Filter, engine::histories, input::Input, input::names::Names};
use output::error::AnalyzeError;

/// The begin and end of the recording. Every history lies in between, except late events at its begin.
pub(super) const START_NS: i64 = 1000;
pub(super) const END_NS: i64 = 1400;

/// A task.
pub(super) struct ModelTask {
    pub(super) pid: i32,
    pub(super) tid: i32,
    pub(super) comm: Option<&'static str>,
    pub(super) cgroup: Option<&'static str>,
}

/// Two threads of one process, a process with a name that is in use already, and one without a name.
pub(super) const TASKS: [ModelTask; histories::TASKS as usize] = [
    ModelTask { pid: 100, tid: 100, comm: Some("a"), cgroup: Some("/x") },
    ModelTask { pid: 100, tid: 101, comm: Some("b"), cgroup: Some("/x") },
    ModelTask { pid: 200, tid: 200, comm: Some("a"), cgroup: None },
    ModelTask { pid: 201, tid: 201, comm: None, cgroup: Some("/y") },
];

/// The trace, written once for its side tables.
pub(super) struct ModelContext {
    test: TestTrace,
    names: Names,
}

impl ModelContext {
    pub(super) fn new() -> Self {
        let test = inputs(vec![Event::new(START_NS, trace_format::EventKind::OffCpu, 0)]).write();
        let names = Input::open(&test.trace, usize::MAX, &Filter::default()).unwrap().names;
        Self { test, names }
    }

    /// An input that reads these events from memory.
    pub(super) fn input<'a>(
        &'a self,
        events: &'a MemoryEvents,
        filter: &Filter,
    ) -> Result<Input<'a>, AnalyzeError> {
        let mut input = Input::new(&self.test.trace, events, self.names.clone(), filter)?;
        input.label = "here".to_owned();
        Ok(input)
    }
}

/// Writes these events to a file, in row groups of `group_rows` rows.
pub(super) fn file(events: &[Event], group_rows: usize) -> TestTrace {
    inputs(events.to_vec()).write_in_groups(group_rows)
}

fn inputs(events: Vec<Event>) -> Parts {
    let (mut info, locks) = histories::context();
    let clocks = |monotonic_ns| Clocks { monotonic_ns, ..Clocks::default() };
    (info.clocks_start, info.clocks_end) = (clocks(START_NS), clocks(END_NS));
    info.host.name = "here".to_owned();
    info.complete = true;
    let task = |(id, who): (i32, &ModelTask)| TaskRow {
        comm: who.comm.map(str::to_owned),
        cgroup: who.cgroup.map(str::to_owned),
        ..TaskRow::new(TaskId(id), who.pid, who.tid)
    };
    let frame = |symbol: &str, line| Frame {
        symbol: Some(symbol.to_owned()),
        file: Some("a.c".to_owned()),
        line: Some(line),
        kernel: true,
        ..Frame::default()
    };
    let stack = |id, frames| Stack { id: StackId(id), frames };
    let mut inputs = Parts::default();
    (inputs.info, inputs.locks, inputs.events) = (info, locks, events);
    inputs.tasks = (0..).zip(&TASKS).map(task).collect();
    // The first two stacks differ but have the same site.
    inputs.stacks = vec![
        stack(0, vec![frame("f", 1)]),
        stack(1, vec![frame("f", 1), frame("g", 5)]),
        stack(2, vec![frame("f", 2), frame("h", 7)]),
    ];
    inputs
}

/// Every key that rows can have.
pub(super) fn any_key() -> impl proptest::strategy::Strategy<Value = By> {
    proptest::sample::select(By::all())
}
