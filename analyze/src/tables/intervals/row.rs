//! Rows of events, waits and holds: an item with the names of its lock, tasks and site. Each name is made once for all rows.

use std::rc::Rc;

use rustc_hash::FxHashMap;
use trace_format::{LockId, StackId, TaskId};

use crate::{
    input::{
        Input,
        names::{Names, UNKNOWN, printable, purposes::Purpose},
    },
    output::{Cell, Column, Kind},
};

/// An event, a wait or a hold with its names.
pub(super) struct Row<T> {
    pub(super) item: T,
    lock: Option<Rc<LockName>>,
    task: Option<Rc<TaskName>>,
    /// Further tasks, in the order in which the table asks for them.
    pub(super) peers: [Option<Rc<TaskName>>; 3],
    pub(super) site: Option<Rc<str>>,
    /// The purpose of a wait.
    pub(super) purpose: Option<Purpose>,
    trace: Rc<TraceName>,
}

struct LockName {
    id: i32,
    label: String,
    kind: Option<&'static str>,
}

/// The names of a task.
pub(super) struct TaskName {
    id: i32,
    ids: Option<(i32, i32)>,
    comm: Option<String>,
    label: String,
}

struct TraceName {
    label: String,
    host: Option<String>,
    start_ns: i64,
}

impl<T> Row<T> {
    /// Returns a time of the trace's clock as time since the start of the trace.
    pub(super) fn since_start(&self, ns: i64) -> i64 {
        ns.saturating_sub(self.trace.start_ns)
    }

    /// Returns the name of a further task.
    pub(super) fn peer(&self, at: usize) -> Cell<'_> {
        self.peers[at].as_ref().map(|task| task.label.as_str()).into()
    }
}

/// Makes the rows of one trace.
pub(super) struct Rows<'a> {
    names: &'a Names,
    trace: Rc<TraceName>,
    locks: FxHashMap<LockId, Rc<LockName>>,
    tasks: FxHashMap<TaskId, Rc<TaskName>>,
    sites: FxHashMap<u32, Rc<str>>,
}

impl<'a> Rows<'a> {
    pub(super) fn new(input: &'a Input<'_>) -> Self {
        let names = &input.names;
        let trace = TraceName {
            label: input.label.clone(),
            host: names.host().map(|host| printable(host).into_owned()),
            start_ns: input.selection.start_ns,
        };
        let (locks, tasks, sites) = Default::default();
        Self { names, trace: Rc::new(trace), locks, tasks, sites }
    }

    pub(super) fn row<T>(
        &mut self,
        item: T,
        lock: Option<LockId>,
        task: Option<TaskId>,
        peers: [Option<TaskId>; 3],
        stack: Option<StackId>,
    ) -> Row<T> {
        let site = stack.map(|_| self.site(lock, stack));
        let (lock, task) = (lock.map(|lock| self.lock(lock)), task.map(|task| self.task(task)));
        let peers = peers.map(|task| task.map(|task| self.task(task)));
        Row { item, lock, task, peers, site, purpose: None, trace: Rc::clone(&self.trace) }
    }

    /// Returns the purpose of a wait.
    pub(super) fn purpose(&self, lock: LockId, stack: Option<StackId>) -> Purpose {
        self.names.purposes().of(lock, stack)
    }

    fn lock(&mut self, lock: LockId) -> Rc<LockName> {
        let names = self.names;
        Rc::clone(self.locks.entry(lock).or_insert_with(|| Rc::new(LockName::new(lock, names))))
    }

    fn task(&mut self, task: TaskId) -> Rc<TaskName> {
        let names = self.names;
        Rc::clone(self.tasks.entry(task).or_insert_with(|| Rc::new(TaskName::new(task, names))))
    }

    /// Returns the site of an acquisition. Without a lock it is a location in the program, or in the kernel for a thread of it.
    fn site(&mut self, lock: Option<LockId>, stack: Option<StackId>) -> Rc<str> {
        let names = self.names;
        let point = match lock {
            Some(lock) => names.point_number(lock, stack),
            None => match names.points_number(false, stack) {
                0 => names.points_number(true, stack),
                of_program => of_program,
            },
        };
        Rc::clone(self.sites.entry(point).or_insert_with(|| names.point_of_number(point).label().into()))
    }
}

impl LockName {
    /// The label is the name or the address, without the kind, which has a column of its own.
    fn new(lock: LockId, names: &Names) -> Self {
        let row = names.lock(lock);
        let label = match row.map(|row| (row.name.as_deref(), row.address)) {
            Some((Some(name), _)) => format!("{lock} {}", printable(name)),
            Some((None, Some(address))) => format!("{lock} {address:#x}"),
            _ => lock.to_string(),
        };
        Self { id: lock.0, label, kind: row.map(|row| row.kind.as_str()) }
    }
}

impl TaskName {
    fn new(task: TaskId, names: &Names) -> Self {
        let Some(row) = names.task(task) else {
            return Self { id: task.0, ids: None, comm: None, label: format!("{task} {UNKNOWN}") };
        };
        let comm = row.comm.as_deref().map(|comm| printable(comm).into_owned());
        let label = format!("{} {}", comm.as_deref().unwrap_or(UNKNOWN), row.tid);
        Self { id: task.0, ids: Some((row.pid, row.tid)), comm, label }
    }
}

/// Declares the columns of the trace, which rows of several traces start with.
pub(super) fn trace_columns<T: 'static>() -> Vec<Column<Row<T>>> {
    type Of<T> = Column<Row<T>>;
    vec![
        Of::text("trace", |row: &Row<T>| row.trace.label.as_str().into(), "The trace.").width(8, 12),
        Of::text("host", |row: &Row<T>| row.trace.host.as_deref().into(), "The machine of the trace.")
            .programs(),
    ]
}

/// Declares the columns of the task and the lock.
pub(super) fn task_and_lock_columns<T: 'static>() -> Vec<Column<Row<T>>> {
    type Of<T> = Column<Row<T>>;
    fn task<T>(row: &Row<T>) -> Option<&TaskName> {
        row.task.as_deref()
    }
    vec![
        Of::count("task_id", |row: &Row<T>| task(row).map(|task| task.id), "Id of the task.").programs(),
        Of::count(
            "pid",
            |row: &Row<T>| task(row).map(|task| task.ids.map_or(-1, |ids| ids.0)),
            "Process id.",
        )
        .programs(),
        Of::count("tid", |row: &Row<T>| task(row).map(|task| task.ids.map_or(-1, |ids| ids.1)), "Thread id.")
            .programs(),
        Of::text(
            "comm",
            |row: &Row<T>| task(row).and_then(|task| task.comm.as_deref()).into(),
            "Name of the thread.",
        )
        .programs(),
        Of::text(
            "task",
            |row: &Row<T>| task(row).map(|task| task.label.as_str()).into(),
            "Name and id of the thread.",
        )
        .width(12, 20),
        Of::count("lock_id", |row: &Row<T>| row.lock.as_ref().map(|lock| lock.id), "Id of the lock.")
            .programs(),
        Of::text(
            "lock",
            |row: &Row<T>| row.lock.as_ref().map(|lock| lock.label.as_str()).into(),
            "Name or address of the lock.",
        )
        .width(12, 28),
        Of::text(
            "lock_kind",
            |row: &Row<T>| row.lock.as_ref().and_then(|lock| lock.kind).into(),
            "Kind of the lock.",
        )
        .programs(),
    ]
}

/// Declares the column of the site, the last one of text.
pub(super) fn site_column<T: 'static>(doc: &'static str) -> Column<Row<T>> {
    Column::text("site", |row: &Row<T>| row.site.as_deref().into(), doc)
        .kind(Kind::Site)
        .heading("at")
        .width(8, 8)
}
