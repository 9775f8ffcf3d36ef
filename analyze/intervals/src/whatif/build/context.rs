//! Facts about a trace that a program is built from, beside its rows.

use trace_format::{LockId, LockKind, StackId, TaskId, run_info::Covers};

use crate::{critical::TaskStart, engine::Rules};

/// Facts about a trace that its rows do not have.
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
    pub covers: Covers,
    pub cpus: u32,
    /// Whether a sleep without a known cause ends at its recorded time.
    pub idle_open: bool,
}
