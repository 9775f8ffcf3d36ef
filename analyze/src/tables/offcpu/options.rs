//! The keys of the table of off-CPU times, and its options.

use trace_format::TaskState;

use crate::{choices::choices, input::filter::Filter};

choices! {
    /// The key of a row.
    By, "key" {
        /// One task with its stack, and its waker with its stack.
        #[default]
        Pair = "pair",
        /// One stack of tasks that left the CPU.
        Stack = "stack",
        /// One waker.
        Waker = "waker",
        /// One task that was off-CPU.
        Task = "task",
        /// One state of tasks.
        State = "state",
        /// One system call in which tasks left the CPU.
        Syscall = "syscall",
    }
}

/// Options of the table.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The key of a row.
    pub by: By,
    /// Selects off-CPU times by the state of the task; empty for all. A preempted task is `runnable`.
    pub states: Vec<TaskState>,
    /// The column that rows are sorted by; empty for the longest time first.
    pub sort: String,
    /// The number of rows; `None` is all.
    pub limit: Option<usize>,
    /// The part of the traces to read. The least wait selects off-CPU times, too.
    pub filter: Filter,
    /// Whether to rank a trace that lost too many events for the order of rows to mean anything.
    pub allow_loss: bool,
}
