//! The dimensions of tables: the choice of what is one row, with its heading, the ids that decide it and its columns; the row of an interval in the
//! ids of its trace; and the same with names.

use trace_format::{LockId, LockKind, LockRow, StackId, Syscall, TaskId};

use super::part::{Key, Part};
use intervals::{
    input::names::purposes::Purpose,
    input::names::{Names, UNKNOWN, printable, shorten},
    items::{Hold, Polling, TryFailure, Wait},
};
use output::{choices, layout::STACK_SEPARATOR};

choices! {
    /// The key of a row.
    By, "key" {
        /// One lock.
        #[default]
        Lock = "lock",
        /// One acquisition point and class of locks.
        Site = "site",
        /// All locks of one kind and name.
        Class = "class",
        /// All locks of one kind.
        Kind = "kind",
        /// One thread.
        Task = "task",
        /// One process.
        Process = "process",
        /// One thread and one lock.
        TaskLock = "task,lock",
        /// All threads of one name.
        Comm = "comm",
        /// One stack from the acquisition point outwards, or a part of it, and class of locks.
        Stack = "stack",
        /// All tasks of one control group.
        Cgroup = "cgroup",
        /// One machine.
        Host = "host",
        /// One purpose of waits.
        Purpose = "purpose",
    }
}

/// A dimension.
struct Dim {
    /// The heading of the rows' names.
    heading: &'static str,
    /// The ids of an interval that decide its row.
    ids: Ids,
    /// The columns that identify a row.
    columns: &'static [&'static str],
}

impl By {
    const fn dim(self) -> Dim {
        let (heading, ids, columns): (_, _, &[&str]) = match self {
            Self::Lock => ("lock", Ids::Lock, &["lock_id", "address", "kind", "pid"]),
            Self::Site => (
                "acquired at (lock)",
                Ids::LockAndStack,
                &["file", "line", "function", "place", "kind", "lock_name"],
            ),
            Self::Class => ("class", Ids::Lock, &["kind", "lock_name"]),
            Self::Kind => ("kind", Ids::Lock, &["kind"]),
            Self::Task => ("task", Ids::Task, &["task_id", "pid", "tid", "comm"]),
            Self::Process => ("process", Ids::Task, &["pid", "comm"]),
            Self::TaskLock => (
                "task: lock",
                Ids::TaskAndLock,
                &["task_id", "pid", "tid", "comm", "lock_id", "address", "kind", "lock_name", "init_stack"],
            ),
            Self::Comm => ("command", Ids::Task, &["comm"]),
            Self::Stack => {
                ("acquired at < called by (lock)", Ids::LockAndStack, &["stack", "kind", "lock_name"])
            }
            Self::Cgroup => ("control group", Ids::Task, &["cgroup"]),
            Self::Host => ("host", Ids::None, &["host"]),
            Self::Purpose => ("purpose", Ids::LockAndStack, &["purpose"]),
        };
        Dim { heading, ids, columns }
    }

    /// Returns the heading of the rows' names.
    pub const fn heading(self) -> &'static str {
        self.dim().heading
    }

    /// Returns the names of the columns that identify a row.
    pub(super) const fn columns(self) -> &'static [&'static str] {
        self.dim().columns
    }

    /// Returns the ids of an interval that decide its row.
    pub const fn ids(self) -> Ids {
        self.dim().ids
    }

    /// Returns how many functions of each stack the rows show: none, `depth`, or all if that is `None`.
    pub fn frames(self, depth: Option<usize>) -> usize {
        let shows_stacks = matches!(self, Self::Stack | Self::TaskLock);
        if shows_stacks { depth.unwrap_or(usize::MAX) } else { 0 }
    }
}

/// The ids of an interval that decide its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    None,
    Lock,
    LockAndStack,
    Task,
    TaskAndLock,
}

/// The lock, task and stack that a row key is made of: a hold's at its acquisition, a wait's at its begin.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    pub lock: LockId,
    pub task: TaskId,
    pub stack: Option<StackId>,
}

impl From<LockId> for Subject {
    fn from(lock: LockId) -> Self {
        Self { lock, task: TaskId(-1), stack: None }
    }
}

impl From<(LockId, TaskId, Option<StackId>)> for Subject {
    fn from((lock, task, stack): (LockId, TaskId, Option<StackId>)) -> Self {
        Self { lock, task, stack }
    }
}

impl From<&Hold> for Subject {
    #[inline]
    fn from(hold: &Hold) -> Self {
        Self { lock: hold.lock, task: hold.task, stack: hold.stack }
    }
}

impl From<&TryFailure> for Subject {
    fn from(failure: &TryFailure) -> Self {
        Self { lock: failure.lock, task: failure.task, stack: failure.stack }
    }
}

impl From<&Polling> for Subject {
    fn from(polling: &Polling) -> Self {
        Self { lock: polling.lock, task: polling.task, stack: polling.stack }
    }
}

impl From<&Wait> for Subject {
    fn from(wait: &Wait) -> Self {
        Self { lock: wait.lock, task: wait.task, stack: wait.stack }
    }
}

/// A row within one trace, by the ids of that trace; [`Key`] is the same with names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RowKey {
    /// One row for the whole trace.
    Host,
    Lock(LockId),
    /// An acquisition point and a class of locks.
    Site(u32, Option<u32>),
    /// The part of a stack that is shown, and a class of locks.
    Stack(u32, Option<u32>),
    Class(Option<u32>),
    Kind(Option<LockKind>),
    Task(TaskId),
    TaskLock(TaskId, LockId),
    /// The process id.
    Process(Option<i32>),
    Comm(Option<u32>),
    Cgroup(Option<u32>),
    Purpose(Purpose),
    /// A system call, and the part of a stack that is shown.
    Syscall(Syscall, u32),
}

impl RowKey {
    pub fn of(subject: impl Into<Subject>, by: By, names: &Names) -> Self {
        let Subject { lock, task, stack } = subject.into();
        match by {
            By::Lock => Self::Lock(lock),
            By::Site => Self::Site(names.point_number(lock, stack), names.class_number(lock)),
            By::Stack => Self::Stack(names.chain_number(lock, stack), names.class_number(lock)),
            By::Host => Self::Host,
            By::Purpose => Self::Purpose(names.purposes().of(lock, stack)),
            By::Cgroup => Self::Cgroup(names.cgroup_number(task)),
            By::Class => Self::Class(names.class_number(lock)),
            By::Kind => Self::Kind(names.lock(lock).map(|lock| lock.kind)),
            By::Task => Self::Task(task),
            By::TaskLock => Self::TaskLock(task, lock),
            By::Process => Self::Process(names.task(task).map(|task| task.pid)),
            By::Comm => Self::Comm(names.comm_number(task)),
        }
    }

    /// Returns the lock, if the row is one.
    pub const fn lock(self) -> Option<LockId> {
        if let Self::Lock(lock) = self { Some(lock) } else { None }
    }

    /// Returns whether a row of another trace is never the same row.
    pub const fn is_of_one_trace(self) -> bool {
        matches!(self, Self::Lock(_) | Self::Task(_) | Self::TaskLock(..) | Self::Process(_))
    }

    /// Returns the name of the row; safe to print.
    pub fn label(self, names: &Names) -> String {
        let class = |class: Option<u32>| {
            class
                .and_then(|class| names.class(class))
                .map_or_else(|| UNKNOWN.to_owned(), |class| class.label())
        };
        let safe = |text: Option<&str>| text.map_or(UNKNOWN.into(), printable).into_owned();
        match self {
            Self::Lock(id) => names.lock_label(id),
            Self::Site(_, of) => format!("{} ({})", self.short_label(names), class(of)),
            Self::Stack(chain, of) => {
                format!("{} ({})", stack_label(names.chain_of_number(chain)), class(of))
            }
            Self::Class(of) => class(of),
            Self::Kind(kind) => kind.map_or_else(|| UNKNOWN.to_owned(), |kind| kind.to_string()),
            Self::Task(id) => names.task_label(id),
            Self::TaskLock(task, lock) => format!("{}: {}", names.task_label(task), names.lock_label(lock)),
            Self::Process(Some(pid)) if pid >= 0 => {
                format!("{} (pid {pid})", safe(names.process_comm(pid)))
            }
            Self::Process(_) => UNKNOWN.to_owned(),
            Self::Syscall(call, chain) => syscall_label(call, names.chain_of_number(chain)),
            Self::Purpose(purpose) => purpose.to_string(),
            Self::Host => safe(names.host()),
            Self::Comm(comm) => safe(comm.and_then(|comm| names.comm_of_number(comm))),
            Self::Cgroup(cgroup) => safe(cgroup.and_then(|cgroup| names.cgroup_of_number(cgroup))),
        }
    }

    /// Returns the name without the class of the locks, if the row has a site.
    pub fn short_label(self, names: &Names) -> String {
        match self {
            Self::Site(point, _) => names.point_of_number(point).label(),
            row => row.label(names),
        }
    }
}

impl Key {
    /// Returns the key of a row with the names of its trace: the parts of its dimension, in the order of their columns.
    pub fn of(row: RowKey, names: &Names) -> Self {
        let (by, parts): (_, Vec<Part>) = match row {
            RowKey::Lock(id) => {
                let lock = names.lock(id);
                let pid = lock.and_then(|lock| lock.pid);
                (By::Lock, [vec![id.0.into()], address_and_kind(lock), vec![pid.into()]].concat())
            }
            RowKey::Site(point, class) => {
                let point = names.point_of_number(point);
                let file = text(point.file.as_deref().map(shorten));
                let place = [file, point.line.into(), text(point.function.as_deref()), point.place().into()];
                (By::Site, [place.to_vec(), kind_and_name(class, names)].concat())
            }
            RowKey::Stack(chain, class) => {
                (By::Stack, [vec![stack(chain, names)], kind_and_name(class, names)].concat())
            }
            RowKey::Class(class) => (By::Class, kind_and_name(class, names)),
            RowKey::Kind(kind) => (By::Kind, vec![kind.into()]),
            RowKey::Task(id) => (By::Task, of_task(id, names)),
            RowKey::TaskLock(task_id, lock_id) => {
                let lock = names.lock(lock_id);
                let init = names.chain_number(lock_id, lock.and_then(|lock| lock.init_stack));
                let rest = vec![text(lock.and_then(|lock| lock.name.as_deref())), stack(init, names)];
                let id = vec![lock_id.0.into()];
                (By::TaskLock, [of_task(task_id, names), id, address_and_kind(lock), rest].concat())
            }
            RowKey::Process(pid) => {
                let comm = pid.and_then(|pid| names.process_comm(pid));
                (By::Process, vec![pid.filter(|pid| *pid >= 0).into(), text(comm)])
            }
            RowKey::Comm(comm) => (By::Comm, vec![text(comm.and_then(|comm| names.comm_of_number(comm)))]),
            RowKey::Cgroup(of) => (By::Cgroup, vec![text(of.and_then(|of| names.cgroup_of_number(of)))]),
            RowKey::Host => (By::Host, vec![text(names.host())]),
            RowKey::Purpose(purpose) => (By::Purpose, vec![Part::Purpose(purpose)]),
            // No table has a column for system calls.
            RowKey::Syscall(..) => return Self(vec![("syscall", row.label(names).into())]),
        };
        Self(by.columns().iter().copied().zip(parts).collect())
    }
}

fn text(text: Option<&str>) -> Part {
    text.map(str::to_owned).into()
}

fn stack(chain: u32, names: &Names) -> Part {
    Part::Stack(names.chain_of_number(chain).to_vec())
}

fn kind_and_name(class: Option<u32>, names: &Names) -> Vec<Part> {
    let class = class.and_then(|class| names.class(class));
    vec![class.map(|class| class.kind).into(), text(class.and_then(|class| class.name.as_deref()))]
}

fn address_and_kind(lock: Option<&LockRow>) -> Vec<Part> {
    let address = lock.and_then(|lock| lock.address).map(|address| format!("{address:#x}"));
    vec![address.into(), lock.map(|lock| lock.kind).into()]
}

fn of_task(id: TaskId, names: &Names) -> Vec<Part> {
    let task = names.task(id);
    let (pid, tid) = (task.map(|task| task.pid), task.map(|task| task.tid));
    vec![id.0.into(), pid.into(), tid.into(), text(task.and_then(|task| task.comm.as_deref()))]
}

/// Returns the functions of a stack as the name of a row; safe to print.
pub fn stack_label(functions: &[String]) -> String {
    if functions.is_empty() {
        UNKNOWN.to_owned()
    } else {
        printable(&functions.join(STACK_SEPARATOR)).into_owned()
    }
}

/// Returns the name of a system call with the functions that made it; safe to print.
pub fn syscall_label(syscall: Syscall, stack: &[String]) -> String {
    let call = if syscall == Syscall::NONE { "no system call".into() } else { syscall.name() };
    match stack {
        [] => call.into_owned(),
        functions => format!("{call} ({})", stack_label(functions)),
    }
}
