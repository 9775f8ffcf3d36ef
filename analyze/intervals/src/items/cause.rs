//! Waiting time by cause: who pays for it, and what the payer's task does meanwhile.
//!
//! For example, a task waits 100 ns for lock 1, whose holder sleeps 70 ns of that and then runs: two
//! [`Caused`] items with the hold of lock 1 as their payer, one of 70 ns in state `asleep` and one of 30 ns
//! in state `running`.

use trace_format::{LockId, StackId, Syscall, TaskId};

use super::interval::HoldId;
use output::choices;

/// The party that pays for a wait at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Payer {
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
    pub const fn task(&self) -> Option<TaskId> {
        match self {
            Self::Hold(HoldId { task, .. }) | Self::Owner(task) => Some(*task),
            Self::Handoff | Self::Gap | Self::Oneself | Self::Cycle | Self::Unknown => None,
        }
    }
}

choices! {
    /// The state of a task while others wait for it: the first of the list that applies.
    State, "state" {
        /// It waits for a lock.
        Lock = "lock",
        /// It waits for a condition variable, a semaphore or a barrier.
        Idle = "idle",
        /// It is runnable without a CPU: another task took it.
        Preempted = "preempted",
        /// It sleeps and signals do not wake it: mostly disk I/O and page faults.
        Uninterruptible = "uninterruptible",
        /// It is stopped by a signal or a debugger.
        Stopped = "stopped",
        /// It sleeps in any other way.
        Asleep = "asleep",
        /// It was woken and waits for a CPU.
        Ready = "ready",
        /// It is on a CPU.
        Running = "running",
        /// It has no row before or after, or off-CPU time was not recorded.
        #[default]
        Unknown = "unknown",
    }
}

/// Times by state, in the order of the states.
pub type ByState = [i64; State::ALL.len()];

/// The circumstances of a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Detail {
    /// None are known.
    #[default]
    None,
    /// The lock that the task waits for, and the stack of that wait.
    Lock(LockId, Option<StackId>),
    /// The system call in which the task left the CPU, and the stack.
    Asleep(Option<Syscall>, Option<StackId>),
    /// The task that ran instead.
    Preempted(TaskId),
}

/// The most waits that had a payer at one time: of any depth, and of one depth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiters {
    /// Of any depth.
    pub all: i64,
    /// Of the depth of this time.
    pub of_depth: i64,
}

impl Waiters {
    /// Returns the greater of both numbers.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { all: self.all.max(other.all), of_depth: self.of_depth.max(other.of_depth) }
    }
}

/// Waiting time with one payer in one state; of chains, the payer is the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caused {
    /// The lock that others wait for. In a cycle, one of its locks.
    pub lock: LockId,
    /// The payer.
    pub payer: Payer,
    /// The number of locks in the chain; 1 if chains are not followed.
    pub depth: u32,
    /// Whether the waits themselves have another payer, whose task waits in turn.
    pub is_received: bool,
    /// The most waits that had this payer at one time.
    pub waiters: Waiters,
    /// The state of the payer's task; `None` if no task pays.
    pub state: Option<State>,
    /// The circumstances of the state.
    pub detail: Detail,
    /// The time, summed over the waits.
    pub ns: i64,
}

/// Waiting time that a payer passes on: the task of the payer waits for another lock, so the payer is not the
/// root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// The lock that others wait for.
    pub lock: LockId,
    /// The payer.
    pub payer: Payer,
    /// The lock that the payer's task waits for.
    pub to: LockId,
    /// The time, summed over the waits.
    pub ns: i64,
}
