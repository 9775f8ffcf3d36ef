//! The options of the format.

use trace_format::TaskState;

use crate::choices::choices;

choices! {
    /// The treatment of the first frame of each stack.
    DropLeaf, "way with leaves" {
        /// Drops the first frame if the stack begins with the function of the probe, as offwaketime does.
        #[default]
        Compat = "compat",
        /// Keeps the first frame.
        None = "none",
    }
}

choices! {
    /// The version of the format.
    Grammar, "grammar" {
        /// The first version (2016): an empty element between the two stacks of a side.
        #[default]
        Seed = "seed",
        /// The version of bcc 0.30: no empty elements, and words for lost stacks.
        Modern = "modern",
    }
}

/// User space or kernel space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// User space.
    User,
    /// The kernel.
    Kernel,
}

/// Options of the format.
#[derive(Clone, Debug)]
pub struct Options {
    /// Separates the two stacks of a side by `-`.
    pub delimited: bool,
    /// Selects the stacks of one space (`-U`, `-K`).
    pub stacks: Option<Space>,
    /// Selects the threads of programs or of the kernel (`-u`, `-k`). A thread without any user frame counts as a kernel thread.
    pub threads: Option<Space>,
    /// The shortest time to include, in whole microseconds (`-m`).
    pub min_block_us: u64,
    /// The longest time to include, in whole microseconds (`-M`).
    pub max_block_us: u64,
    /// Selects off-CPU times by the state of the task; empty for all. A preempted task is `runnable`.
    pub states: Vec<TaskState>,
    /// The treatment of first frames.
    pub drop_leaf: DropLeaf,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            delimited: false,
            stacks: None,
            threads: None,
            min_block_us: 1,
            max_block_us: u64::MAX,
            states: Vec::new(),
            drop_leaf: DropLeaf::default(),
        }
    }
}
