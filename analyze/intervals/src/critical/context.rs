//! Facts about a trace that the walk along the critical path needs beside the rows.

use rustc_hash::FxHashSet;
use trace_format::{LockId, LockKind, LockRow, StackId};

use crate::engine::Rules;

/// Facts about a trace that its rows do not have.
pub(crate) struct Context<'a> {
    pub rules: Rules,
    pub locks: &'a [LockRow],
    /// Whether a wait for a lock at a stack is idle.
    pub idle: Box<dyn Fn(LockId, Option<StackId>) -> bool + 'a>,
    /// The stacks of interrupts. A task that was interrupted did not wake anyone.
    pub interrupts: FxHashSet<StackId>,
}

impl Context<'_> {
    pub(super) fn is_idle(&self, lock: LockId, stack: Option<StackId>) -> bool {
        (self.idle)(lock, stack)
    }

    pub(super) fn kind(&self, lock: LockId) -> Option<LockKind> {
        usize::try_from(lock.0).ok().and_then(|at| self.locks.get(at)).map(|row| row.kind)
    }
}
