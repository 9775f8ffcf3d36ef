//! The rows of the side tables that a checkpoint adds.

use std::sync::Arc;

use crate::{
    event::StackId,
    tables::{BareStack, Frame, LockRow, SharedStack, TaskRow},
};

/// Rows of the side tables that are new or changed since the last checkpoint. The later of two rows with the same id wins, and a symbolized
/// stack wins over a bare one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SideRows {
    /// Symbolized stacks.
    pub stacks: Vec<SharedStack>,
    /// Stacks that are not symbolized yet.
    pub bare_stacks: Vec<BareStack>,
    /// Locks. `last_ns` may be too early.
    pub locks: Vec<LockRow>,
    /// Tasks.
    pub tasks: Vec<TaskRow>,
}

/// The rows of a checkpoint, which are new or changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NewRows {
    /// Whether the lists of frames of earlier checkpoints are forgotten.
    pub(crate) forgets: bool,
    /// Lists of frames, numbered on from the lists of earlier checkpoints.
    pub(crate) lists: Vec<Arc<[Frame]>>,
    /// Stacks, with the numbers of their lists.
    pub(crate) stacks: Vec<(StackId, Vec<u32>)>,
    pub(crate) bare_stacks: Vec<BareStack>,
    pub(crate) locks: Vec<LockRow>,
    pub(crate) tasks: Vec<TaskRow>,
}
