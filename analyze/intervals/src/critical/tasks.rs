//! Tasks: their state in the forward pass, and their notes.

use trace_format::{LockId, StackId, TaskId};

use super::{
    held::{HeldSets, TaskHeld},
    locks::{LockIndex, Mark},
    notes::{Cursor, Note, Notes, TaskIndex},
};
use crate::numbers::Numbered;

/// All tasks that had a row, or may be on a path.
#[derive(Debug, Default)]
pub(super) struct Tasks(Numbered<Task>);

/// A task.
#[derive(Debug, Default)]
pub(super) struct Task {
    pub(super) notes: Notes,
    pub(super) held: TaskHeld,
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

/// A wait that is open.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenWait {
    pub(super) lock: LockIndex,
    pub(super) id: LockId,
    pub(super) stack: Option<StackId>,
    pub(super) since: Mark,
    /// The mutex that was released for it, if it is for a condition variable.
    pub(super) mutex: Option<LockIndex>,
}

impl Tasks {
    /// Returns the number of a task, which is a new one if it has none.
    #[inline]
    pub(super) fn index(&mut self, id: TaskId) -> TaskIndex {
        self.0.index(id.0, Task::default)
    }

    pub(super) fn find(&self, id: TaskId) -> Option<TaskIndex> {
        self.0.find(id.0)
    }

    #[inline]
    pub(super) fn get(&self, index: TaskIndex) -> &Task {
        self.0.get(index)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: TaskIndex) -> &mut Task {
        self.0.get_mut(index)
    }

    pub(super) fn id(&self, index: TaskIndex) -> TaskId {
        TaskId(self.0.id(index))
    }

    /// Returns the times of the first and the last row of each task that had rows.
    pub(super) fn seen(&self) -> impl Iterator<Item = (TaskId, (i64, i64))> {
        self.0.iter().filter_map(|(id, task)| Some((TaskId(id), task.seen?)))
    }

    /// Returns the place behind the last row of a task so far.
    pub(super) fn end(&self, index: TaskIndex) -> Cursor {
        let task = self.get(index);
        task.notes.end(index, task.held.set)
    }

    /// Returns the place behind the last row of a task at or before a time.
    pub(super) fn until(&self, index: TaskIndex, ns: i64, sets: &HeldSets) -> Cursor {
        self.get(index).notes.until(ns, self.end(index), sets)
    }

    /// Returns the note before a place, and moves the place before it.
    pub(super) fn pop(&self, at: &mut Cursor, sets: &HeldSets) -> Option<Note> {
        self.get(at.task).notes.pop(at, sets)
    }
}
