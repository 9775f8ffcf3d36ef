//! Names of locks, tasks and places for many rows: each is made once.

use rustc_hash::FxHashMap;
use trace_format::{LockId, StackId, TaskId};

use crate::{
    names::{Names, UNKNOWN, printable},
    rows::{Cell, Field, Value},
};

/// Labels that were made already.
pub(super) struct Labels<'a> {
    names: &'a Names,
    /// The time from which times count.
    start_ns: i64,
    locks: FxHashMap<LockId, Lock>,
    tasks: FxHashMap<TaskId, Task>,
    places: FxHashMap<u32, String>,
}

struct Lock {
    label: String,
    kind: Option<&'static str>,
}

struct Task {
    pid: i32,
    tid: i32,
    comm: Option<String>,
    label: String,
}

pub(super) fn lock_fields() -> [Field; 3] {
    [
        Field::number("lock_id"),
        Field::text("lock").shown("lock", Value::Text, (12, 28)),
        Field::text("lock_kind"),
    ]
}

pub(super) fn task_fields() -> [Field; 5] {
    [
        Field::number("task_id"),
        Field::number("pid"),
        Field::number("tid"),
        Field::text("comm"),
        Field::text("task").shown("task", Value::Text, (12, 20)),
    ]
}

impl<'a> Labels<'a> {
    pub(super) fn new(names: &'a Names, start_ns: i64) -> Self {
        let (locks, tasks) = (FxHashMap::default(), FxHashMap::default());
        Self { names, start_ns, locks, tasks, places: FxHashMap::default() }
    }

    /// A time of the trace's clock, since the begin.
    pub(super) fn moment(&self, ns: i64) -> Cell<'static> {
        Cell::Int(ns.saturating_sub(self.start_ns))
    }

    /// Makes what the cells of this lock, this task and this place borrow.
    pub(super) fn make(&mut self, lock: Option<LockId>, tasks: &[Option<TaskId>], stack: Option<StackId>) {
        if let Some(lock) = lock {
            let names = self.names;
            self.locks.entry(lock).or_insert_with(|| Lock::of(lock, names));
        }
        if stack.is_some() {
            let (names, point) = (self.names, self.point(lock, stack));
            self.places.entry(point).or_insert_with(|| names.point_of_number(point).label());
        }
        for task in tasks.iter().flatten() {
            let names = self.names;
            self.tasks.entry(*task).or_insert_with(|| Task::of(*task, names));
        }
    }

    pub(super) fn lock(&self, lock: Option<LockId>) -> [Cell<'_>; 3] {
        let made = lock.and_then(|lock| self.locks.get(&lock));
        let label = made.map(|made| made.label.as_str());
        [lock.map(|lock| lock.0).into(), label.into(), made.and_then(|made| made.kind).into()]
    }

    pub(super) fn task(&self, task: Option<TaskId>) -> [Cell<'_>; 5] {
        let made = task.and_then(|task| self.tasks.get(&task));
        [
            task.map(|task| task.0).into(),
            made.map(|made| made.pid).into(),
            made.map(|made| made.tid).into(),
            made.and_then(|made| made.comm.as_deref()).into(),
            made.map(|made| made.label.as_str()).into(),
        ]
    }

    /// The task in one cell.
    pub(super) fn peer(&self, task: Option<TaskId>) -> Cell<'_> {
        task.and_then(|task| self.tasks.get(&task)).map(|made| made.label.as_str()).into()
    }

    /// Where the lock was asked for, or the task left its CPU.
    pub(super) fn place(&self, lock: Option<LockId>, stack: Option<StackId>) -> Cell<'_> {
        stack.and_then(|_| self.places.get(&self.point(lock, stack))).map(String::as_str).into()
    }

    /// Without a lock it is a place in the program, or in the kernel of a thread of it.
    fn point(&self, lock: Option<LockId>, stack: Option<StackId>) -> u32 {
        let Some(lock) = lock else {
            return match self.names.points_number(false, stack) {
                0 => self.names.points_number(true, stack),
                of_program => of_program,
            };
        };
        self.names.point_number(lock, stack)
    }
}

impl Lock {
    /// The name or the address, without the kind, which has a column of its own.
    fn of(lock: LockId, names: &Names) -> Self {
        let row = names.lock(lock);
        let label = match row.map(|row| (row.name.as_deref(), row.address)) {
            Some((Some(name), _)) => format!("{lock} {}", printable(name)),
            Some((None, Some(address))) => format!("{lock} {address:#x}"),
            _ => lock.to_string(),
        };
        Self { label, kind: row.map(|row| row.kind.as_str()) }
    }
}

impl Task {
    fn of(task: TaskId, names: &Names) -> Self {
        let Some(row) = names.task(task) else {
            return Self { pid: -1, tid: -1, comm: None, label: format!("{task} {UNKNOWN}") };
        };
        let comm = row.comm.as_deref().map(|comm| printable(comm).into_owned());
        let label = format!("{} {}", comm.as_deref().unwrap_or(UNKNOWN), row.tid);
        Self { pid: row.pid, tid: row.tid, comm, label }
    }
}
