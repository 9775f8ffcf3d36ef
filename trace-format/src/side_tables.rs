//! The rows of the side tables of a trace that has no files for them yet, as its checkpoints add them.

use std::sync::Arc;

use crate::{
    event::StackId,
    stack_table::StackTable,
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

/// The rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SideTables {
    pub(crate) stacks: StackTable,
    /// In id order.
    pub(crate) locks: Vec<LockRow>,
    /// In id order.
    pub(crate) tasks: Vec<TaskRow>,
}

/// The rows of a checkpoint, which are new or changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NewRows {
    /// Lists of frames, numbered on from those of earlier checkpoints.
    pub(crate) lists: Vec<Arc<[Frame]>>,
    /// Stacks, with the numbers of their lists.
    pub(crate) stacks: Vec<(StackId, Vec<u32>)>,
    pub(crate) bare_stacks: Vec<BareStack>,
    pub(crate) locks: Vec<LockRow>,
    pub(crate) tasks: Vec<TaskRow>,
}

impl SideTables {
    /// Adds the rows of a checkpoint. New locks and tasks come in the order of their ids, so there is never a gap.
    pub(crate) fn add(&mut self, new: NewRows) {
        let NewRows { lists, stacks, bare_stacks, locks, tasks } = new;
        lists.into_iter().for_each(|list| self.stacks.add_list(list));
        bare_stacks.into_iter().for_each(|stack| self.stacks.set_bare(stack));
        stacks.into_iter().for_each(|(id, lists)| self.stacks.set_named(id, lists));
        locks.into_iter().for_each(|lock| put(&mut self.locks, lock.id.0, lock));
        tasks.into_iter().for_each(|task| put(&mut self.tasks, task.id.0, task));
    }

    /// Adds the rows of a backlog, which has no names: they were found only while it was recorded.
    pub(crate) fn add_backlog(&mut self, rest: SideRows) {
        let known = self.locks.len();
        let new = rest.locks.into_iter().filter(|lock| lock.id.0 as usize >= known);
        let (bare_stacks, tasks) = (rest.bare_stacks, rest.tasks);
        self.add(NewRows { lists: Vec::new(), stacks: Vec::new(), bare_stacks, locks: new.collect(), tasks });
    }
}

/// Stores a row at the index of its id. A row after a gap is left out.
fn put<T>(rows: &mut Vec<T>, id: i32, row: T) {
    let Ok(index) = usize::try_from(id) else { return };
    if index == rows.len() {
        rows.push(row);
    } else if let Some(old) = rows.get_mut(index) {
        *old = row;
    }
}
