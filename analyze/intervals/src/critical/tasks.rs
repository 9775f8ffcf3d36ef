//! Tasks: their state in the forward pass, and their notes.

use trace_format::{LockId, StackId};

use super::{
    locks::{LockIndex, Mark},
    notes::{Cursor, Notes, TaskIndex},
    step::Held,
};
use crate::numbers::Numbered;

/// All tasks that had a row, or may be on a path.
pub(super) type Tasks = Numbered<Task>;

#[derive(Debug, Default)]
pub(super) struct Task {
    pub(super) notes: Notes,
    /// The locks that it holds, in the order of the acquisitions.
    pub(super) held: Vec<Held>,
    /// The times of its first and its last row.
    pub(super) seen: Option<(i64, i64)>,
    /// The number of losses that its notes know of.
    pub(super) losses: usize,
    /// Whether it has notes since the last loss.
    pub(super) is_active: bool,
    /// Whether it had a row since the last loss.
    pub(super) has_rows: bool,
    /// The time of the last row, or of the last loss before it.
    pub(super) last_row_ns: i64,
    /// Open waits in the order of their begin.
    pub(super) waits: Vec<OpenWait>,
    /// The time at which the last off-CPU time ended, and the task that woke it.
    pub(super) woken: Option<(i64, Mark)>,
    /// The lock that it released last, and when.
    pub(super) released: Option<(LockIndex, i64)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct OpenWait {
    pub(super) lock: LockIndex,
    pub(super) id: LockId,
    pub(super) stack: Option<StackId>,
    pub(super) since: Mark,
    /// The mutex that was released for it, if it is for a condition variable.
    pub(super) mutex: Option<LockIndex>,
}

impl Task {
    /// Returns the place behind its last row so far.
    pub(super) fn end(&self, index: TaskIndex) -> Cursor {
        self.notes.end(index, !self.held.is_empty())
    }

    /// Ends the hold at an index of its list.
    pub(super) fn end_hold(&mut self, at: usize) {
        let held = self.held.remove(at);
        self.notes.ended(held, self.held.len() - at);
    }
}
