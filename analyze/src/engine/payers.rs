//! The holds that pay for the waits of a lock from one instant until its next event.

use trace_format::{Mode, StackId, TaskId};

use super::lock_state::{LockState, OpenHold};

/// A hold, as other locks and tasks refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HoldId {
    /// Its owner.
    pub(crate) task: TaskId,
    /// Its begin, in ns of the trace's clock.
    pub(crate) start_ns: i64,
    /// The stack of its acquisition.
    pub(crate) stack: Option<StackId>,
    /// Shared or exclusive.
    pub(crate) mode: Mode,
}

/// The payers of the waits of one lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockPayers {
    /// The hold that pays for all waits except that of its own task.
    pub(crate) first: Option<HoldId>,
    /// The hold that pays for the wait of the first hold's task.
    pub(crate) second: Option<HoldId>,
    /// Whether the first hold excludes all others.
    pub(crate) first_excludes: bool,
    /// Whether no task has the lock.
    pub(crate) free: bool,
    /// Whether the source records the holds of this lock.
    pub(crate) measured: bool,
    /// Whether a waiting task has a hold of the lock.
    pub(crate) has_own_waits: bool,
}

impl LockState {
    /// Returns the payers at `now_ns`, which must be settled.
    pub(super) fn payers(&self) -> LockPayers {
        let mut open = self.holds.iter().filter(|open| !open.superseded);
        let first = open.next();
        let is_other = |open: &&OpenHold| first.is_some_and(|first| first.hold.task != open.hold.task);
        let id = |OpenHold { hold, .. }: &OpenHold| HoldId {
            task: hold.task,
            start_ns: hold.start_ns,
            stack: hold.stack,
            mode: hold.mode,
        };
        LockPayers {
            first: first.map(id),
            second: if self.own_waits > 0 { open.find(is_other).map(id) } else { None },
            first_excludes: first.is_some_and(|first| first.excludes),
            free: self.is_free(),
            measured: self.rule.measures_holds,
            has_own_waits: self.own_waits > 0,
        }
    }
}
