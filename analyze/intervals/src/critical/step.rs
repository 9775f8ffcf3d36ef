//! The steps of a path, from its root backward in time.

use trace_format::{LockId, TaskId};

use crate::items::State;

/// The end of a path: a task and a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    pub task: TaskId,
    pub from_ns: i64,
    pub to_ns: i64,
}

/// A lock that a task holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    pub lock: LockId,
    pub(super) is_shared: bool,
}

/// A part of a path. It begins where the step before it, which is the later one, ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathStep<'a> {
    /// The task that the path leads through.
    pub task: TaskId,
    pub from_ns: i64,
    pub to_ns: i64,
    pub part: PathPart<'a>,
}

/// The content of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathPart<'a> {
    /// The task waits for nothing. It holds these locks, in the order in which it acquired them.
    Task { held: &'a [Held], state: State },
    /// The task gets a lock that another task released. The path goes on there.
    Handoff(LockId),
    /// The task was woken from an idle wait. The path goes on at the task that woke it.
    WakeUp(LockId),
    /// The task waits, and the trace does not have what ended the wait.
    Waiting { lock: LockId, is_idle: bool },
    /// Nothing that the trace holds leads on.
    Before,
    /// Events were lost.
    Lost,
}

/// Receives the steps of paths.
pub trait Path {
    /// A step of the path of the root with this index. The steps of a root come from its end to its start,
    /// without holes, and none is empty.
    fn step(&mut self, root: usize, step: &PathStep<'_>);

    /// From here on, which is further back in time, a task on the path holds a lock once more, or once less.
    /// A task keeps its holds while the path leads through others.
    fn hold(&mut self, task: TaskId, lock: LockId, is_held: bool) {
        let _ = (task, lock, is_held);
    }

    /// The path of a root has come to its start: no hold is reported as over any more.
    fn end(&mut self, root: usize) {
        let _ = root;
    }

    /// The path went on at the task that released a lock, maybe without any time in between.
    fn jump(&mut self, root: usize, lock: LockId) {
        let _ = (root, lock);
    }
}
