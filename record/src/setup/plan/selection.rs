//! The events that a recording selects, as input of planning.

use crate::{options::KernelDepth, setup::filters::Filters};

/// The events to record, and the sizes to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Kernel locks, and in which depth.
    pub kernel: Option<KernelDepth>,
    /// Futex waits and wakes.
    pub futex: bool,
    /// Calls of pthread functions.
    pub pthread: bool,
    /// Waits for locks of Rust's standard library.
    pub rust: bool,
    /// Waits for mutexes of Go.
    pub go: bool,
    /// Off-CPU time of tasks.
    pub off_cpu: bool,
    /// Off-CPU time of tasks without stacks and wakers.
    pub switches: bool,
    /// The tasks to record.
    pub target: TargetMode,
    /// Restrictions on the selected events.
    pub filters: Filters,
    /// Size of each CPU's ring of events in bytes; `None` for the default.
    pub ring_bytes: Option<usize>,
    /// Maximum number of frames per stack; `None` for the default.
    pub max_stack: Option<u32>,
    /// Number of bytes of user stacks to copy for unwinding; 0 walks them by frame pointers only.
    pub stack_bytes: u32,
}

impl Selection {
    /// Selects waits for kernel locks and futexes, and pthread calls, of all tasks.
    pub fn everything() -> Self {
        Self {
            kernel: Some(KernelDepth::Waits),
            futex: true,
            pthread: true,
            rust: true,
            go: true,
            off_cpu: false,
            switches: false,
            target: TargetMode::All,
            filters: Filters::default(),
            ring_bytes: None,
            max_stack: None,
            stack_bytes: 0,
        }
    }

    /// Returns whether nothing of the kernel's is selected.
    pub fn is_empty(&self) -> bool {
        !(self.kernel.is_some()
            || self.futex
            || self.pthread
            || self.rust
            || self.go
            || self.off_cpu
            || self.switches)
    }

    /// Leaves out all locks.
    pub fn without_locks(self) -> Self {
        Self { kernel: None, futex: false, pthread: false, rust: false, go: false, ..self }
    }
}

/// The rule by which BPF programs decide whether a task is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetMode {
    /// All tasks.
    All,
    /// Processes in the target map and their children.
    Processes,
    /// Threads in the target map.
    Threads,
    /// Tasks in a cgroup and the cgroups below it.
    Cgroup {
        /// The cgroup's id.
        id: u64,
        /// Its depth below the root.
        level: u32,
    },
}
