//! Facts about a trace that its rows do not have, for the passes that follow rows through all locks: the
//! critical path and the programs that are replayed.

use trace_format::{LockId, LockKind, StackId, TaskId, TaskRow, run_info::Covers};

use crate::{engine::Rules, input::Input};
use output::error::AnalyzeError;

/// Facts about a trace.
pub(crate) struct Context<'a> {
    pub rules: Rules,
    pub kind: Box<dyn Fn(LockId) -> Option<LockKind> + 'a>,
    /// Whether a wait for a lock at a stack is idle.
    pub idle: Box<dyn Fn(LockId, Option<StackId>) -> bool + 'a>,
    /// Returns the number of the acquisition site of a stack.
    pub site: Box<dyn Fn(LockId, Option<StackId>) -> u32 + 'a>,
    /// Returns the start of a task, if it is known.
    pub start: Box<dyn Fn(TaskId) -> Option<TaskStart> + 'a>,
    /// All tasks.
    pub tasks: Vec<TaskId>,
    /// The tasks whose off-CPU times were recorded.
    pub covers: Covers,
    pub cpus: u32,
}

impl<'a> Context<'a> {
    pub(crate) fn of(input: &'a Input<'_>) -> Result<Self, AnalyzeError> {
        let names = &input.names;
        let states = if input.has_holder_states()? { Covers::ContendedHolds } else { Covers::None };
        Ok(Self {
            rules: input.rules(),
            kind: Box::new(|lock| names.lock(lock).map(|row| row.kind)),
            idle: Box::new(|lock, stack| names.ends_by_wake(lock, stack)),
            site: Box::new(|lock, stack| names.point_number(lock, stack)),
            start: Box::new(|task| TaskStart::of(task, |task| names.task(task))),
            tasks: names.tasks().iter().map(|task| task.id).collect(),
            covers: if input.has_off_cpu()? { Covers::All } else { states },
            cpus: input.trace.info().host.cpus,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskStart {
    pub ns: i64,
    /// The task that created it, if that one started earlier.
    pub creator: Option<TaskId>,
}

impl TaskStart {
    /// Returns the start of a task, if the time is known. `row` returns the rows of tasks.
    pub(crate) fn of<'a>(task: TaskId, row: impl Fn(TaskId) -> Option<&'a TaskRow>) -> Option<Self> {
        let child = row(task)?;
        let ns = child.start_ns?;
        let is_older =
            |other: &TaskId| row(*other).is_some_and(|row| row.start_ns.is_none_or(|start| start < ns));
        Some(Self { ns, creator: child.parent.filter(is_older) })
    }
}
