//! Facts about a trace that a program is built from, beside its rows.

use trace_format::{LockId, LockKind, StackId, TaskId, run_info::Covers};

use crate::{critical::TaskStart, engine::Rules};

/// Facts about a trace that its rows do not have.
pub(crate) struct Context<'a> {
    pub(crate) rules: Rules,
    pub(crate) kind: Box<dyn Fn(LockId) -> Option<LockKind> + 'a>,
    /// Whether a wait for a lock at a stack is idle.
    pub(crate) idle: Box<dyn Fn(LockId, Option<StackId>) -> bool + 'a>,
    /// Returns the number of the acquisition site of a stack.
    pub(crate) site: Box<dyn Fn(LockId, Option<StackId>) -> u32 + 'a>,
    /// Returns the start of a task, if it is known.
    pub(crate) start: Box<dyn Fn(TaskId) -> Option<TaskStart> + 'a>,
    /// All tasks.
    pub(crate) tasks: Vec<TaskId>,
    pub(crate) covers: Covers,
    pub(crate) cpus: u32,
    /// Whether a sleep without a known cause ends at its recorded time.
    pub(crate) idle_open: bool,
}
