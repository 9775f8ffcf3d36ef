//! The payer: the party that a waited instant is charged to.

use trace_format::TaskId;

use crate::engine::HoldId;

/// The party that pays for a wait at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Payer {
    /// A hold of the same lock by another task.
    Hold(HoldId),
    /// The task that the lock word named; its hold is not recorded.
    Owner(TaskId),
    /// No task: the lock is free, and the next waiter is not running yet.
    Handoff,
    /// No recorded hold of another task.
    Gap,
    /// No other task: the waiting task holds the lock itself, exclusively.
    Oneself,
    /// No task: tasks that wait for each other. Only the root of a chain.
    Cycle,
    /// The holder was not seen.
    Unknown,
}

impl Payer {
    /// Returns the task that pays.
    pub(crate) const fn task(&self) -> Option<TaskId> {
        match self {
            Self::Hold(HoldId { task, .. }) | Self::Owner(task) => Some(*task),
            Self::Handoff | Self::Gap | Self::Oneself | Self::Cycle | Self::Unknown => None,
        }
    }
}
