//! Row keys by ids: a hold, a wait or a failed attempt enters, a small key in the ids of its trace leaves.

use trace_format::{LockId, LockKind, StackId, Syscall, TaskId};

use super::by::By;
use intervals::{
    input::names::Names,
    input::names::purposes::Purpose,
    items::{Hold, TryFailure, Wait},
};

/// The lock, task and stack that a row key is made of: a hold's at its acquisition, a wait's at its begin.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    pub lock: LockId,
    task: TaskId,
    pub stack: Option<StackId>,
}

impl From<LockId> for Subject {
    fn from(lock: LockId) -> Self {
        Self { lock, task: TaskId(-1), stack: None }
    }
}

impl From<(LockId, TaskId, Option<StackId>)> for Subject {
    fn from((lock, task, stack): (LockId, TaskId, Option<StackId>)) -> Self {
        Self { lock, task, stack }
    }
}

impl From<&Hold> for Subject {
    fn from(hold: &Hold) -> Self {
        Self { lock: hold.lock, task: hold.task, stack: hold.stack }
    }
}

impl From<&TryFailure> for Subject {
    fn from(failure: &TryFailure) -> Self {
        Self { lock: failure.lock, task: failure.task, stack: failure.stack }
    }
}

impl From<&Wait> for Subject {
    fn from(wait: &Wait) -> Self {
        Self { lock: wait.lock, task: wait.task, stack: wait.stack }
    }
}

/// A row within one trace, by the ids of that trace; [`Key`](super::Key) is the same with names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RowKey {
    /// One row for the whole trace.
    Host,
    Lock(LockId),
    /// An acquisition point and a class of locks.
    Site(u32, Option<u32>),
    /// The part of a stack that is shown, and a class of locks.
    Stack(u32, Option<u32>),
    Class(Option<u32>),
    Kind(Option<LockKind>),
    Task(TaskId),
    TaskLock(TaskId, LockId),
    /// The process id.
    Process(Option<i32>),
    Comm(Option<u32>),
    Cgroup(Option<u32>),
    Purpose(Purpose),
    /// A system call, and the part of a stack that is shown.
    Syscall(Syscall, u32),
}

impl RowKey {
    #[inline]
    pub fn of(subject: impl Into<Subject>, by: By, names: &Names) -> Self {
        // Nearly all rows are of these, for which no subject is made.
        match by {
            By::Lock => Self::Lock(subject.into().lock),
            By::Host => Self::Host,
            _ => Self::of_other(subject.into(), by, names),
        }
    }

    fn of_other(Subject { lock, task, stack }: Subject, by: By, names: &Names) -> Self {
        match by {
            By::Lock => Self::Lock(lock),
            By::Site => Self::Site(names.point_number(lock, stack), names.class_number(lock)),
            By::Stack => Self::Stack(names.chain_number(lock, stack), names.class_number(lock)),
            By::Host => Self::Host,
            By::Purpose => Self::Purpose(names.purposes().of(lock, stack)),
            By::Cgroup => Self::Cgroup(names.cgroup_number(task)),
            By::Class => Self::Class(names.class_number(lock)),
            By::Kind => Self::Kind(names.lock(lock).map(|lock| lock.kind)),
            By::Task => Self::Task(task),
            By::TaskLock => Self::TaskLock(task, lock),
            By::Process => Self::Process(names.task(task).map(|task| task.pid)),
            By::Comm => Self::Comm(names.comm_number(task)),
        }
    }

    /// Returns the lock, if the row is one.
    pub const fn lock(self) -> Option<LockId> {
        match self {
            Self::Lock(lock) => Some(lock),
            _ => None,
        }
    }

    /// Returns whether a row of another trace is never the same row.
    pub const fn is_of_one_trace(self) -> bool {
        matches!(self, Self::Lock(_) | Self::Task(_) | Self::TaskLock(..) | Self::Process(_))
    }
}
