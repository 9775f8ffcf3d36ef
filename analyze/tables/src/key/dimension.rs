//! The dimensions of tables, the choices of what is one row: the heading and the columns of each, the ids of
//! an interval that decide its row, and the row's name. Thread 7 of a trace is the row `Single::Task(7)` of
//! `--by task`, with the columns `task_id`, `pid`, `tid` and `comm`.

use trace_format::{LockId, LockKind, LockRow, StackId, Syscall, TaskId};

use super::part::Part;
use intervals::{
    input::names::purposes::Purpose,
    input::names::{Names, UNKNOWN, printable, shorten},
    items::{Hold, Polling, TryFailure, Wait},
};
use output::{choices, layout::STACK_SEPARATOR};

choices! {
    /// A key of rows.
    Dimension, "key" {
        /// One lock.
        #[default]
        Lock = "lock",
        /// One acquisition site and class of locks.
        Site = "site",
        /// All locks of one kind and name.
        Class = "class",
        /// All locks of one kind.
        Kind = "kind",
        /// One thread.
        Task = "task",
        /// One process.
        Process = "process",
        /// All threads of one name.
        Comm = "comm",
        /// One stack from the acquisition site outwards, or a part of it, and class of locks.
        Stack = "stack",
        /// All tasks of one control group.
        Cgroup = "cgroup",
        /// One machine.
        Host = "host",
        /// One purpose of waits.
        Purpose = "purpose",
    }
}

impl Dimension {
    /// Returns the heading of the rows' names, and the ids of an interval that decide its row.
    pub(super) const fn heading_and_ids(self) -> (&'static str, Ids) {
        match self {
            Self::Lock => ("lock", Ids::Lock),
            Self::Site => ("acquired at (lock)", Ids::LockAndStack),
            Self::Class => ("class", Ids::Lock),
            Self::Kind => ("kind", Ids::Lock),
            Self::Task => ("task", Ids::Task),
            Self::Process => ("process", Ids::Task),
            Self::Comm => ("command", Ids::Task),
            Self::Stack => ("acquired at < called by (lock)", Ids::LockAndStack),
            Self::Cgroup => ("control group", Ids::Task),
            Self::Host => ("host", Ids::None),
            Self::Purpose => ("purpose", Ids::LockAndStack),
        }
    }

    /// Returns the columns that identify a row. In a list, whose rows begin with other names, a lock has more
    /// of them, and none that says something else of another dimension.
    pub(super) const fn columns(self, in_list: bool) -> &'static [&'static str] {
        match self {
            Self::Lock if in_list => &["lock_id", "address", "kind", "lock_name", "init_stack"],
            Self::Lock => &["lock_id", "address", "kind", "pid"],
            Self::Site => &["file", "line", "function", "place", "kind", "lock_name"],
            Self::Class => &["kind", "lock_name"],
            Self::Kind => &["kind"],
            Self::Task => &["task_id", "pid", "tid", "comm"],
            Self::Process if in_list => &["pid", "process_comm"],
            Self::Process => &["pid", "comm"],
            Self::Comm => &["comm"],
            Self::Stack => &["stack", "kind", "lock_name"],
            Self::Cgroup => &["cgroup"],
            Self::Host => &["host"],
            Self::Purpose => &["purpose"],
        }
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
    /// The lock, the task and the stack.
    All,
}

impl Ids {
    /// Returns the ids that decide two keys.
    pub(super) fn merge(self, other: Self) -> Self {
        use Ids::{All, Lock, LockAndStack, None, Task, TaskAndLock};
        match (self, other) {
            (None, ids) | (ids, None) => ids,
            (one, two) if one == two => one,
            (Lock, LockAndStack) | (LockAndStack, Lock) => LockAndStack,
            (Lock, Task | TaskAndLock) | (Task, Lock | TaskAndLock) | (TaskAndLock, Lock | Task) => {
                TaskAndLock
            }
            _ => All,
        }
    }
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

/// A row of one dimension within one trace, by the ids of that trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Single {
    /// One row for the whole trace.
    Host,
    Lock(LockId),
    /// An acquisition site and a class of locks.
    Site(u32, Option<u32>),
    /// The part of a stack that is shown, and a class of locks.
    Stack(u32, Option<u32>),
    Class(Option<u32>),
    Kind(Option<LockKind>),
    Task(TaskId),
    /// The process id.
    Process(Option<i32>),
    Comm(Option<u32>),
    Cgroup(Option<u32>),
    Purpose(Purpose),
    /// A system call, and the part of a stack that is shown.
    Syscall(Syscall, u32),
}

impl Single {
    pub(super) fn of(Subject { lock, task, stack }: Subject, dimension: Dimension, names: &Names) -> Self {
        match dimension {
            Dimension::Lock => Self::Lock(lock),
            Dimension::Site => Self::Site(names.point_number(lock, stack), names.class_number(lock)),
            Dimension::Stack => Self::Stack(names.chain_number(lock, stack), names.class_number(lock)),
            Dimension::Host => Self::Host,
            Dimension::Purpose => Self::Purpose(names.purposes().of(lock, stack)),
            Dimension::Cgroup => Self::Cgroup(names.cgroup_number(task)),
            Dimension::Class => Self::Class(names.class_number(lock)),
            Dimension::Kind => Self::Kind(names.lock(lock).map(|lock| lock.kind)),
            Dimension::Task => Self::Task(task),
            Dimension::Process => Self::Process(names.task(task).map(|task| task.pid)),
            Dimension::Comm => Self::Comm(names.comm_number(task)),
        }
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
            Self::Site(point, of) => format!("{} ({})", names.point_of_number(point).label(), class(of)),
            Self::Stack(chain, of) => {
                format!("{} ({})", stack_label(names.chain_of_number(chain)), class(of))
            }
            Self::Class(of) => class(of),
            Self::Kind(kind) => kind.map_or_else(|| UNKNOWN.to_owned(), |kind| kind.to_string()),
            Self::Task(id) => names.task_label(id),
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

    /// Returns the parts of its dimension, in the order of their columns.
    pub(super) fn parts(self, in_list: bool, names: &Names) -> Vec<(&'static str, Part)> {
        let (dimension, parts): (_, Vec<Part>) = match self {
            Self::Lock(id) => {
                let lock = names.lock(id);
                let own = if in_list {
                    let init = names.chain_number(id, lock.and_then(|lock| lock.init_stack));
                    vec![text(lock.and_then(|lock| lock.name.as_deref())), stack(init, names)]
                } else {
                    vec![lock.and_then(|lock| lock.pid).into()]
                };
                (Dimension::Lock, [vec![id.0.into()], address_and_kind(lock), own].concat())
            }
            Self::Site(point, class) => {
                let point = names.point_of_number(point);
                let file = text(point.file.as_deref().map(shorten));
                let place = [file, point.line.into(), text(point.function.as_deref()), point.place().into()];
                (Dimension::Site, [place.to_vec(), kind_and_name(class, names)].concat())
            }
            Self::Stack(chain, class) => {
                (Dimension::Stack, [vec![stack(chain, names)], kind_and_name(class, names)].concat())
            }
            Self::Class(class) => (Dimension::Class, kind_and_name(class, names)),
            Self::Kind(kind) => (Dimension::Kind, vec![kind.into()]),
            Self::Task(id) => (Dimension::Task, of_task(id, names)),
            Self::Process(pid) => {
                let comm = pid.and_then(|pid| names.process_comm(pid));
                (Dimension::Process, vec![pid.filter(|pid| *pid >= 0).into(), text(comm)])
            }
            Self::Comm(comm) => {
                (Dimension::Comm, vec![text(comm.and_then(|comm| names.comm_of_number(comm)))])
            }
            Self::Cgroup(of) => (Dimension::Cgroup, vec![text(of.and_then(|of| names.cgroup_of_number(of)))]),
            Self::Host => (Dimension::Host, vec![text(names.host())]),
            Self::Purpose(purpose) => (Dimension::Purpose, vec![Part::Purpose(purpose)]),
            // No table has a column for system calls.
            Self::Syscall(..) => return vec![("syscall", self.label(names).into())],
        };
        dimension.columns(in_list).iter().copied().zip(parts).collect()
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
