//! Locks: an id enters, the rows of the lock that may end waits leave, and the tasks that hold it.
//!
//! The last rows are kept of two tasks each: one of the two is always another task than the one that waits.

use trace_format::{LockId, LockKind, Mode};

use super::{
    context::Context,
    held::HeldSet,
    notes::{Cursor, TaskIndex},
};
use crate::causes::Numbers;

/// The number of a lock.
pub(super) type LockIndex = u32;

/// A row of a task, or an instant of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) task: TaskIndex,
    /// The place behind the row; that of an instant is known once the path leads there.
    end: Option<(usize, HeldSet)>,
    pub(super) ns: i64,
    /// The number of the row, from 1; 0 for an instant.
    pub(super) position: u64,
}

impl Mark {
    /// Returns the row behind which this place is.
    pub(super) fn row(place: Cursor, position: u64) -> Self {
        Self { task: place.task, end: Some((place.end, place.set)), ns: place.ns, position }
    }

    pub(super) fn instant(task: TaskIndex, ns: i64) -> Self {
        Self { task, end: None, ns, position: 0 }
    }

    /// Returns an instant at or after this time.
    pub(super) fn not_before(self, ns: i64) -> Self {
        Self { ns: self.ns.max(ns), ..self }
    }

    /// Returns the place behind the row; `None` for an instant.
    pub(super) fn cursor(self) -> Option<Cursor> {
        let (end, set) = self.end?;
        Some(Cursor { task: self.task, end, ns: self.ns, set })
    }
}

/// The last rows of a kind by two tasks, the last one first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Last([Option<Mark>; 2]);

impl Last {
    #[inline]
    pub(super) fn set(&mut self, mark: Mark) {
        if self.0[0].is_some_and(|last| last.task != mark.task) {
            self.0[1] = self.0[0];
        }
        self.0[0] = Some(mark);
    }

    /// Returns the last one of another task at or after this time.
    pub(super) fn of_another(&self, task: TaskIndex, since_ns: i64) -> Option<Mark> {
        self.0.iter().flatten().find(|mark| mark.task != task && mark.ns >= since_ns).copied()
    }
}

/// All locks that had a row.
#[derive(Debug, Default)]
pub(super) struct Locks {
    index: Numbers,
    all: Vec<Lock>,
    /// The number of losses. Rows before the last one are forgotten.
    losses: usize,
}

/// A lock.
#[derive(Debug)]
pub(super) struct Lock {
    pub(super) is_condition: bool,
    pub(super) is_barrier: bool,
    /// Whether it is the end of a thread, which comes once: a wait for it may begin when the thread has said so.
    pub(super) is_thread: bool,
    /// Whether an exclusive hold can only begin when all others have ended.
    pub(super) is_exclusive: bool,
    measures: [bool; 2],
    losses: usize,
    /// The tasks that hold it, once for each hold.
    pub(super) holders: Vec<TaskIndex>,
    pub(super) released: Last,
    /// All that most locks do not have.
    rare: Option<Box<Rare>>,
}

#[derive(Debug, Default)]
pub(super) struct Rare {
    /// The last exclusive releases, if there were others.
    released_exclusively: Option<Last>,
    pub(super) woke: Last,
    /// Those who wait for a barrier.
    pub(super) round: Vec<Mark>,
}

impl Locks {
    /// Returns the number of a lock, which is a new one if it has none.
    #[inline]
    pub(super) fn index(&mut self, id: LockId, context: &Context<'_>) -> LockIndex {
        match self.index.get(id.0) {
            Some(index) => index,
            None => self.add(id, context),
        }
    }

    #[cold]
    fn add(&mut self, id: LockId, context: &Context<'_>) -> LockIndex {
        // As of tasks.
        let index = self.all.len() as LockIndex;
        let (rules, kind) = (&context.rules, context.kind(id));
        self.all.push(Lock {
            is_condition: kind == Some(LockKind::CondVar),
            is_barrier: kind == Some(LockKind::Barrier),
            is_thread: kind == Some(LockKind::Thread),
            is_exclusive: rules.excludes(id, Mode::Exclusive),
            measures: [Mode::Exclusive, Mode::Shared].map(|mode| rules.measures(id, mode)),
            losses: self.losses,
            holders: Vec::new(),
            released: Last::default(),
            rare: None,
        });
        self.index.set(id.0, index);
        index
    }

    /// Returns a lock.
    #[inline]
    pub(super) fn get(&mut self, index: LockIndex) -> &mut Lock {
        let lock = &mut self.all[index as usize];
        if lock.losses != self.losses {
            lock.losses = self.losses;
            (lock.holders, lock.released, lock.rare) = (Vec::new(), Last::default(), None);
        }
        lock
    }

    /// Forgets the rows and the holders of all locks.
    pub(super) fn forget(&mut self) {
        self.losses += 1;
    }
}

impl Lock {
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

    /// Removes a hold of a task.
    pub(super) fn remove_holder(&mut self, task: TaskIndex) {
        if let Some(at) = self.holders.iter().rposition(|holder| *holder == task) {
            self.holders.swap_remove(at);
        }
    }
}
