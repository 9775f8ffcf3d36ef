//! The forward pass: makes the notes that paths are walked by, from the rows in their order.

use rustc_hash::{FxHashMap, FxHashSet};
use trace_format::{EventKind, EventRow, LockId, Mode, StackId, TaskId};

use super::{
    locks::{LockIndex, Locks, Mark},
    notes::{Change, Cursor, Link, Place, TaskIndex},
    step::Held,
    tasks::{Task, Tasks},
};
use crate::context::{Context, TaskStart};

/// The forward pass.
pub(crate) struct Forward<'a> {
    pub(super) context: &'a Context<'a>,
    /// The stacks of interrupts. A task that was interrupted did not wake any other task.
    pub(super) interrupts: FxHashSet<StackId>,
    pub(super) tasks: Tasks,
    pub(super) locks: Locks,
    /// The times of losses.
    pub(super) losses: Vec<i64>,
    /// Tasks with notes since the last loss.
    active: Vec<TaskIndex>,
    /// The number of rows.
    pub(super) rows: u64,
    /// The time of the last row.
    pub(super) last_ns: i64,
}

impl<'a> Forward<'a> {
    pub(crate) fn new(context: &'a Context<'a>, interrupts: FxHashSet<StackId>) -> Self {
        Self {
            context,
            interrupts,
            tasks: Tasks::default(),
            locks: Locks::default(),
            losses: Vec::new(),
            active: Vec::new(),
            rows: 0,
            last_ns: i64::MIN,
        }
    }

    /// Adds the next row, at the time of the clock.
    #[inline]
    pub(crate) fn push(&mut self, ns: i64, row: &impl EventRow) {
        (self.rows, self.last_ns) = (self.rows + 1, ns);
        let kind = row.kind();
        if kind == EventKind::Lost {
            return self.lost(ns);
        }
        let Some(task) = row.task() else { return };
        let task = self.tasks.number(task.0, Task::default);
        self.activate(task);
        match (kind, row.lock()) {
            (EventKind::Acquire, Some(lock)) => self.acquire(ns, task, lock, row),
            (EventKind::Release, Some(lock)) => self.release(ns, task, lock, row),
            (EventKind::Wait, Some(lock)) => self.wait(ns, task, lock, row),
            (EventKind::Abandon, Some(lock)) => {
                let index = self.locks.index(lock, self.context);
                let link = self.wait_ends(ns, task, (index, lock), row);
                self.note(ns, task, Change::None, link);
            }
            (EventKind::Wake, Some(lock)) => {
                let mark = self.unchanged(ns, task);
                let index = self.locks.index(lock, self.context);
                self.locks.get(index).rare().woke.set(mark);
            }
            (EventKind::Destroy, Some(lock)) => self.destroy(ns, task, lock),
            (EventKind::OffCpu, _) => {
                let link = self.off_cpu(ns, task, row);
                self.note(ns, task, Change::None, link);
            }
            _ => drop(self.unchanged(ns, task)),
        }
        let of = &mut self.tasks[task];
        (of.has_rows, of.last_row_ns) = (true, ns);
        of.seen = Some((of.seen.map_or(ns, |(first_ns, _)| first_ns), ns));
    }

    /// Returns the times of the first and the last row of each task.
    pub(super) fn seen(&self) -> FxHashMap<TaskId, (i64, i64)> {
        self.tasks.iter().filter_map(|(id, task)| Some((TaskId(id), task.seen?))).collect()
    }

    /// Returns the place at which a wait began that is open after the last row, its lock, and whether it is
    /// idle.
    pub(super) fn open_wait(&self, task: TaskIndex) -> Option<(Place, LockId, bool)> {
        let wait = self.tasks[task].waits.first()?;
        Some((self.place(wait.since), wait.id, (self.context.idle)(wait.id, wait.stack)))
    }

    /// Returns the place at which a path goes on that leads to a row or an instant before the next row.
    pub(super) fn place(&self, mark: Mark) -> Place {
        let cursor = mark.cursor().unwrap_or_else(|| self.tasks[mark.task].end(mark.task));
        Place { cursor, ns: mark.ns }
    }

    /// Returns the start of a task, if another task created it.
    pub(super) fn created(&self, task: TaskIndex) -> Option<(i64, TaskId)> {
        let TaskStart { ns, creator } = (self.context.start)(TaskId(self.tasks.id(task)))?;
        Some((ns, creator?))
    }

    /// The notes of a task go on, maybe behind a loss.
    #[inline]
    pub(super) fn activate(&mut self, task: TaskIndex) {
        if !self.tasks[task].is_active {
            self.activate_now(task);
        }
    }

    fn activate_now(&mut self, task: TaskIndex) {
        self.active.push(task);
        let of = &mut self.tasks[task];
        (of.is_active, of.last_row_ns) = (true, i64::MIN);
        if let Some(lost_ns) = self.losses.last() {
            of.last_row_ns = *lost_ns;
            if of.losses < self.losses.len() {
                of.notes.lost(*lost_ns, &[]);
                of.losses = self.losses.len();
            }
        }
    }

    /// Forgets everything: no link leads across a loss, and nothing is held.
    fn lost(&mut self, ns: i64) {
        self.losses.push(ns);
        self.locks.forget();
        for task in self.active.drain(..) {
            let of = &mut self.tasks[task];
            of.notes.lost(ns, &of.held);
            of.losses = self.losses.len();
            of.held.clear();
            of.waits.clear();
            (of.is_active, of.has_rows, of.woken, of.released) = (false, false, None, None);
        }
    }

    /// Adds an acquisition. A hold is over once another task has the lock in a way that excludes it, as in
    /// blame.
    fn acquire(&mut self, ns: i64, task: TaskIndex, id: LockId, row: &impl EventRow) {
        let index = self.locks.index(id, self.context);
        let link = self.wait_ends(ns, task, (index, id), row);
        let is_shared = row.mode() == Some(Mode::Shared);
        let lock = self.locks.get(index);
        if lock.ends_others(task, is_shared) {
            self.end_others(task, (index, id), |held| !(is_shared && held.is_shared));
        }
        let lock = self.locks.get(index);
        let mut change = Change::None;
        if lock.measures(is_shared) {
            lock.add_holder(task, is_shared);
            self.tasks[task].held.push(Held { lock: id, is_shared });
            change = Change::Acquired;
        }
        self.note(ns, task, change, link);
    }

    fn release(&mut self, ns: i64, task: TaskIndex, id: LockId, row: &impl EventRow) {
        let index = self.locks.index(id, self.context);
        let is_shared = row.mode() == Some(Mode::Shared);
        let (lock, of) = (self.locks.get(index), &mut self.tasks[task]);
        let is_it = |held: &Held| held.lock == id && held.is_shared == is_shared;
        let same = of.held.iter().rposition(is_it);
        let mut change = Change::None;
        if let Some(at) = same.or_else(|| of.held.iter().rposition(|held| held.lock == id)) {
            lock.remove_holder(task, of.held[at].is_shared);
            if at + 1 < of.held.len() {
                of.end_hold(at);
            } else {
                change = of.held.pop().map_or(Change::None, Change::Released);
            }
        }
        self.note(ns, task, change, None);
        let mark = self.mark(task);
        self.tasks[task].released = Some((index, ns));
        self.locks.get(index).release(mark, is_shared);
    }

    /// Ends all holds of a lock that is no more.
    fn destroy(&mut self, ns: i64, task: TaskIndex, id: LockId) {
        let index = self.locks.index(id, self.context);
        self.end_others(task, (index, id), |_| true);
        let of = &mut self.tasks[task];
        while let Some(at) = of.held.iter().rposition(|held| held.lock == id) {
            self.locks.get(index).remove_holder(task, of.held[at].is_shared);
            of.end_hold(at);
        }
        self.note(ns, task, Change::None, None);
    }

    /// Ends holds of a lock of all other tasks.
    fn end_others(
        &mut self,
        task: TaskIndex,
        (index, id): (LockIndex, LockId),
        is_over: impl Fn(&Held) -> bool,
    ) {
        for other in self.locks.get(index).holders.clone() {
            if other == task {
                continue;
            }
            let of = &mut self.tasks[other];
            while let Some(at) = of.held.iter().rposition(|held| held.lock == id && is_over(held)) {
                self.locks.get(index).remove_holder(other, of.held[at].is_shared);
                of.end_hold(at);
            }
        }
    }

    /// Adds a row.
    #[inline]
    pub(super) fn note(&mut self, ns: i64, task: TaskIndex, change: Change, link: Option<Link>) {
        let of = &mut self.tasks[task];
        match link {
            None => of.notes.row(ns, &of.held, change),
            Some(link) => of.notes.linked(ns, &of.held, change, &link),
        }
    }

    /// Adds a row that changes no holds, and returns it.
    fn unchanged(&mut self, ns: i64, task: TaskIndex) -> Mark {
        self.note(ns, task, Change::None, None);
        self.mark(task)
    }

    /// Returns the last row of a task.
    pub(super) fn mark(&self, task: TaskIndex) -> Mark {
        Mark::row(self.tasks[task].end(task), self.rows)
    }

    /// Returns the place behind the rows of a task up to a time.
    pub(super) fn until(&self, task: TaskIndex, ns: i64) -> Cursor {
        let of = &self.tasks[task];
        of.notes.until(ns, of.end(task))
    }
}
