//! Locks: the rows of each that may end waits, and the tasks that hold it.

use trace_format::{LockId, LockKind, Mode};

use super::notes::{Cursor, TaskIndex};
use crate::{
    context::Context,
    links::{self, LastOfTwo, Rounds},
    numbers::Numbered,
};

/// The number of a lock.
pub(super) type LockIndex = u32;

/// A row of a task, or an instant of it.
pub(super) type Mark = links::Mark<TaskIndex, Row>;

/// The row of a mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    /// The place behind the row, and whether the task may hold a lock there. The place of an instant is known
    /// once the path leads there.
    end: Option<(usize, bool)>,
    /// The number of the row, from 1; 0 for an instant.
    pub(super) position: u64,
}

impl Mark {
    /// Returns the row behind which this place is.
    pub(super) fn row(place: Cursor, position: u64) -> Self {
        let value = Row { end: Some((place.end, place.may_hold)), position };
        Self { task: place.task, ns: place.ns, value }
    }

    pub(super) fn instant(task: TaskIndex, ns: i64) -> Self {
        Self { task, ns, value: Row::default() }
    }

    /// Returns an instant at or after this time.
    pub(super) fn not_before(self, ns: i64) -> Self {
        Self { ns: self.ns.max(ns), ..self }
    }

    /// Returns the place behind the row; `None` for an instant.
    pub(super) fn cursor(self) -> Option<Cursor> {
        let (end, may_hold) = self.value.end?;
        Some(Cursor { task: self.task, end, ns: self.ns, may_hold })
    }
}

/// The last rows of a kind by two tasks.
pub(super) type Last = LastOfTwo<TaskIndex, Row>;

/// All locks that had a row.
#[derive(Debug, Default)]
pub(super) struct Locks {
    all: Numbered<Lock>,
    /// The number of losses. Rows before the last one are forgotten.
    losses: usize,
}

#[derive(Debug)]
pub(super) struct Lock {
    pub(super) is_condition: bool,
    pub(super) is_barrier: bool,
    /// Whether it is the end of a thread, which comes once: a wait for it may begin when the thread has said
    /// so.
    pub(super) is_thread: bool,
    /// Whether an exclusive hold can only begin when all others have ended.
    pub(super) is_exclusive: bool,
    measures: [bool; 2],
    losses: usize,
    /// The tasks that hold it, once for each hold, and how many of the holds exclude all others.
    pub(super) holders: Vec<TaskIndex>,
    exclusive: u32,
    pub(super) released: Last,
    /// All that most locks do not have.
    rare: Option<Box<Rare>>,
}

#[derive(Debug, Default)]
pub(super) struct Rare {
    /// The last exclusive releases, if there were others.
    released_exclusively: Option<Last>,
    pub(super) woke: Last,
    /// The tasks at a barrier.
    pub(super) rounds: Rounds<TaskIndex, Row>,
}

impl Locks {
    /// Returns the number of a lock, which is a new one if it has none.
    #[inline]
    pub(super) fn index(&mut self, id: LockId, context: &Context<'_>) -> LockIndex {
        let Self { all, losses } = self;
        all.number(id.0, || Lock::new(id, context, *losses))
    }

    /// Returns a lock.
    #[inline]
    pub(super) fn get(&mut self, index: LockIndex) -> &mut Lock {
        let lock = &mut self.all[index];
        if lock.losses != self.losses {
            lock.losses = self.losses;
            (lock.holders, lock.exclusive) = (Vec::new(), 0);
            (lock.released, lock.rare) = (Last::default(), None);
        }
        lock
    }

    /// Forgets the rows and the holders of all locks.
    pub(super) fn forget(&mut self) {
        self.losses += 1;
    }
}

impl Lock {
    fn new(id: LockId, context: &Context<'_>, losses: usize) -> Self {
        let (rules, kind) = (&context.rules, (context.kind)(id));
        Self {
            is_condition: kind == Some(LockKind::CondVar),
            is_barrier: kind == Some(LockKind::Barrier),
            is_thread: kind == Some(LockKind::Thread),
            is_exclusive: rules.excludes(id, Mode::Exclusive),
            measures: [Mode::Exclusive, Mode::Shared].map(|mode| rules.measures(id, mode)),
            losses,
            holders: Vec::new(),
            exclusive: 0,
            released: Last::default(),
            rare: None,
        }
    }

    /// Whether the length of holds is recorded.
    pub(super) fn measures(&self, is_shared: bool) -> bool {
        self.measures[usize::from(is_shared)]
    }

    pub(super) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Returns the rare rows, if there are any.
    pub(super) fn has_rare(&mut self) -> Option<&mut Rare> {
        self.rare.as_deref_mut()
    }

    /// Adds a release.
    #[inline]
    pub(super) fn release(&mut self, mark: Mark, is_shared: bool) {
        if is_shared || !self.is_exclusive {
            let released = self.released;
            self.rare().released_exclusively.get_or_insert(released);
        } else if let Some(last) =
            self.rare.as_deref_mut().and_then(|rare| rare.released_exclusively.as_mut())
        {
            last.set(mark);
        }
        self.released.set(mark);
    }

    /// Returns the last releases of holds that excluded all others.
    pub(super) fn released_exclusively(&self) -> &Last {
        self.rare.as_deref().and_then(|rare| rare.released_exclusively.as_ref()).unwrap_or(&self.released)
    }

    /// Whether an acquisition ends holds of other tasks.
    pub(super) fn ends_others(&self, task: TaskIndex, is_shared: bool) -> bool {
        let may_end = self.is_exclusive && (!is_shared || self.exclusive > 0);
        may_end && self.holders.iter().any(|holder| *holder != task)
    }

    /// Adds a hold of a task.
    pub(super) fn add_holder(&mut self, task: TaskIndex, is_shared: bool) {
        self.holders.push(task);
        self.exclusive += u32::from(!is_shared);
    }

    /// Removes a hold of a task.
    pub(super) fn remove_holder(&mut self, task: TaskIndex, is_shared: bool) {
        if let Some(at) = self.holders.iter().rposition(|holder| *holder == task) {
            self.holders.swap_remove(at);
            self.exclusive -= u32::from(!is_shared);
        }
    }
}
