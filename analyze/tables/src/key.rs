//! Row keys with names: a `RowKey` in the ids of its trace enters, a [`Key`] and its label leave.

use serde::Serialize;
use trace_format::{LockId, LockKind, LockRow, Syscall, TaskId};

use intervals::{
    input::names::purposes::Purpose,
    input::names::{Names, UNKNOWN, printable, shorten},
};
use output::layout::STACK_SEPARATOR;

mod by;
mod row_key;

pub use by::By;
pub use row_key::{RowKey, Subject};

/// The key of a row, with names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
pub enum Key {
    /// One lock.
    Lock {
        /// Its id.
        lock_id: i32,
        /// Its address, `0x...`.
        address: Option<String>,
        /// Its kind.
        kind: Option<LockKind>,
        /// Its process, if it is a user lock.
        pid: Option<i32>,
    },
    /// An acquisition point and the class of the locks that are acquired there.
    Site {
        /// Source file, without leading `../`.
        file: Option<String>,
        /// Source line.
        line: Option<i32>,
        /// The function.
        function: Option<String>,
        /// Where it is, in the words of [`Point::place`](intervals::input::names::Point::place).
        place: String,
        /// The locks' kind.
        kind: Option<LockKind>,
        /// The locks' name.
        lock_name: Option<String>,
    },
    /// All locks of one kind and name.
    Class {
        /// The locks' kind.
        kind: Option<LockKind>,
        /// The locks' name.
        lock_name: Option<String>,
    },
    /// All locks of one kind.
    Kind {
        /// The kind.
        kind: Option<LockKind>,
    },
    /// One thread.
    Task {
        /// Its id.
        task_id: i32,
        /// Its process.
        pid: Option<i32>,
        /// Its thread id.
        tid: Option<i32>,
        /// Its name.
        comm: Option<String>,
    },
    /// One thread and one lock.
    TaskLock {
        /// The thread's id in the trace.
        task_id: i32,
        /// Its process.
        pid: Option<i32>,
        /// Its thread id.
        tid: Option<i32>,
        /// Its name.
        comm: Option<String>,
        /// The lock's id.
        lock_id: i32,
        /// Its address, `0x...`.
        address: Option<String>,
        /// Its kind.
        kind: Option<LockKind>,
        /// Its name.
        lock_name: Option<String>,
        /// The functions of the stack at which it was initialised, innermost first, if that was seen.
        init_stack: Vec<String>,
    },
    /// One process.
    Process {
        /// Its id.
        pid: Option<i32>,
        /// Its name.
        comm: Option<String>,
    },
    /// A stack, or the part of it next to the acquisition point, and the class of the locks that are acquired there.
    Stack {
        /// Its functions, the acquisition point's first.
        stack: Vec<String>,
        /// The locks' kind.
        kind: Option<LockKind>,
        /// The locks' name.
        lock_name: Option<String>,
    },
    /// All tasks of one control group.
    Cgroup {
        /// Its path (v2).
        cgroup: Option<String>,
    },
    /// All tasks of one machine.
    Host {
        /// Its name.
        host: Option<String>,
    },
    /// All waits of one purpose, and the acquisitions that end them.
    Purpose {
        /// The purpose.
        purpose: Purpose,
    },
    /// All threads of one name.
    Comm {
        /// The name.
        comm: Option<String>,
    },
    /// A system call, and the functions that made it.
    Syscall {
        /// The call.
        syscall: Syscall,
        /// The functions, the innermost first; empty if the stack is not known.
        stack: Vec<String>,
    },
}

/// Returns the name of a system call with the functions that made it; safe to print.
pub fn syscall_label(syscall: Syscall, stack: &[String]) -> String {
    let call = if syscall == Syscall::NONE { "no system call".into() } else { syscall.name() };
    match stack {
        [] => call.into_owned(),
        functions => format!("{call} ({})", printable(&functions.join(STACK_SEPARATOR))),
    }
}

impl Key {
    /// Returns the id of the lock, if the row is one.
    pub const fn lock_id(&self) -> Option<i32> {
        match self {
            Self::Lock { lock_id, .. } => Some(*lock_id),
            _ => None,
        }
    }

    /// Returns the key with the names of its trace.
    pub fn of(row: RowKey, names: &Names) -> Self {
        let kind_and_name = |class: Option<u32>| {
            let class = class.and_then(|class| names.class(class));
            (class.map(|class| class.kind), class.and_then(|class| class.name.clone()))
        };
        let address =
            |lock: Option<&LockRow>| lock.and_then(|lock| lock.address).map(|at| format!("{at:#x}"));
        match row {
            RowKey::Lock(id) => {
                let lock = names.lock(id);
                Self::Lock {
                    lock_id: id.0,
                    address: address(lock),
                    kind: lock.map(|lock| lock.kind),
                    pid: lock.and_then(|lock| lock.pid),
                }
            }
            RowKey::Site(point, class) => {
                let (point, (kind, lock_name)) = (names.point_of_number(point), kind_and_name(class));
                Self::Site {
                    file: point.file.as_deref().map(|file| shorten(file).to_owned()),
                    line: point.line,
                    function: point.function.clone(),
                    place: point.place(),
                    kind,
                    lock_name,
                }
            }
            RowKey::Stack(chain, class) => {
                let (kind, lock_name) = kind_and_name(class);
                Self::Stack { stack: names.chain_of_number(chain).to_vec(), kind, lock_name }
            }
            RowKey::Purpose(purpose) => Self::Purpose { purpose },
            RowKey::Host => Self::Host { host: names.host().map(str::to_owned) },
            RowKey::Cgroup(cgroup) => {
                let cgroup = cgroup.and_then(|cgroup| names.cgroup_of_number(cgroup));
                Self::Cgroup { cgroup: cgroup.map(str::to_owned) }
            }
            RowKey::Class(class) => {
                let (kind, lock_name) = kind_and_name(class);
                Self::Class { kind, lock_name }
            }
            RowKey::Kind(kind) => Self::Kind { kind },
            RowKey::Task(id) => {
                let task = names.task(id);
                Self::Task {
                    task_id: id.0,
                    pid: task.map(|task| task.pid),
                    tid: task.map(|task| task.tid),
                    comm: task.and_then(|task| task.comm.clone()),
                }
            }
            RowKey::TaskLock(task_id, lock_id) => {
                let (task, lock) = (names.task(task_id), names.lock(lock_id));
                let init = names.chain_number(lock_id, lock.and_then(|lock| lock.init_stack));
                Self::TaskLock {
                    task_id: task_id.0,
                    pid: task.map(|task| task.pid),
                    tid: task.map(|task| task.tid),
                    comm: task.and_then(|task| task.comm.clone()),
                    lock_id: lock_id.0,
                    address: address(lock),
                    kind: lock.map(|lock| lock.kind),
                    lock_name: lock.and_then(|lock| lock.name.clone()),
                    init_stack: names.chain_of_number(init).to_vec(),
                }
            }
            RowKey::Process(pid) => {
                let comm = pid.and_then(|pid| names.process_comm(pid));
                Self::Process { pid: pid.filter(|pid| *pid >= 0), comm: comm.map(str::to_owned) }
            }
            RowKey::Syscall(syscall, chain) => {
                Self::Syscall { syscall, stack: names.chain_of_number(chain).to_vec() }
            }
            RowKey::Comm(comm) => {
                let comm = comm.and_then(|comm| names.comm_of_number(comm));
                Self::Comm { comm: comm.map(str::to_owned) }
            }
        }
    }

    /// Returns the name of the row.
    pub fn label(&self, names: &Names) -> String {
        let class = |kind: &Option<LockKind>, name: &Option<String>| match (kind, name) {
            (Some(kind), Some(name)) => format!("{kind}:{}", printable(name)),
            (Some(kind), None) => kind.to_string(),
            (None, _) => UNKNOWN.to_owned(),
        };
        let comm = |comm: &Option<String>| comm.as_deref().map_or(UNKNOWN.into(), printable).into_owned();
        match self {
            Self::Lock { lock_id, .. } => names.lock_label(LockId(*lock_id)),
            Self::Site { file, function, place, kind, lock_name, .. } => {
                let class = class(kind, lock_name);
                match (file, function) {
                    (Some(_), Some(function)) => format!("{place} ({}) ({class})", printable(function)),
                    _ => format!("{place} ({class})"),
                }
            }
            Self::Class { kind, lock_name } => class(kind, lock_name),
            Self::Kind { kind } => class(kind, &None),
            Self::Task { task_id, .. } => names.task_label(TaskId(*task_id)),
            Self::TaskLock { task_id, lock_id, .. } => {
                format!("{}: {}", names.task_label(TaskId(*task_id)), names.lock_label(LockId(*lock_id)))
            }
            Self::Process { pid: Some(pid), comm: name } => format!("{} (pid {pid})", comm(name)),
            Self::Process { pid: None, .. } => UNKNOWN.to_owned(),
            Self::Comm { comm: name } => comm(name),
            Self::Stack { stack, kind, lock_name } if stack.is_empty() => {
                format!("{UNKNOWN} ({})", class(kind, lock_name))
            }
            Self::Stack { stack, kind, lock_name } => {
                format!("{} ({})", printable(&stack.join(STACK_SEPARATOR)), class(kind, lock_name))
            }
            Self::Syscall { syscall, stack } => syscall_label(*syscall, stack),
            Self::Purpose { purpose } => purpose.to_string(),
            Self::Cgroup { cgroup: name } | Self::Host { host: name } => comm(name),
        }
    }

    /// Returns the name without the class of the locks, if the row has a site.
    pub fn short_label(&self, names: &Names) -> String {
        match self {
            Self::Site { file: Some(_), function: Some(function), place, .. } => {
                format!("{place} ({})", printable(function))
            }
            Self::Site { place, .. } => place.clone(),
            _ => self.label(names),
        }
    }

    /// The names of the columns that identify a row.
    pub fn column_names(by: By) -> &'static [&'static str] {
        match by {
            By::Lock => &["lock_id", "address", "kind", "pid"],
            By::Site => &["file", "line", "function", "place", "kind", "lock_name"],
            By::Class => &["kind", "lock_name"],
            By::Kind => &["kind"],
            By::Task => &["task_id", "pid", "tid", "comm"],
            By::TaskLock => {
                &["task_id", "pid", "tid", "comm", "lock_id", "address", "kind", "lock_name", "init_stack"]
            }
            By::Process => &["pid", "comm"],
            By::Comm => &["comm"],
            By::Stack => &["stack", "kind", "lock_name"],
            By::Cgroup => &["cgroup"],
            By::Host => &["host"],
            By::Purpose => &["purpose"],
        }
    }
}
