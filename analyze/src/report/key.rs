//! What a row is about: from a hold to a number that polars groups by, and from the number back to a [`Key`] with a
//! name.

use serde::Serialize;
use trace_format::{LockId, LockKind, StackId, TaskId};

use super::By;
use crate::{
    intervals::{Hold, Wait},
    names::{Names, UNKNOWN, printable},
};

/// What a row is about.
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
        #[serde(serialize_with = "word")]
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
        /// Where it is, in the words of [`Point::place`](crate::names::Point::place).
        place: String,
        /// The locks' kind.
        #[serde(serialize_with = "word")]
        kind: Option<LockKind>,
        /// The locks' name.
        lock_name: Option<String>,
    },
    /// All locks of one kind and name.
    Class {
        /// The locks' kind.
        #[serde(serialize_with = "word")]
        kind: Option<LockKind>,
        /// The locks' name.
        lock_name: Option<String>,
    },
    /// All locks of one kind.
    Kind {
        /// The kind.
        #[serde(serialize_with = "word")]
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
        #[serde(serialize_with = "word")]
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
        #[serde(serialize_with = "word")]
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
    /// All threads of one name.
    Comm {
        /// The name.
        comm: Option<String>,
    },
}

fn word<S: serde::Serializer>(kind: &Option<LockKind>, serializer: S) -> Result<S::Ok, S::Error> {
    kind.map(LockKind::as_str).serialize(serializer)
}

/// What a row's key is made of: of a hold where it was acquired, of a wait where it began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject {
    lock: LockId,
    task: TaskId,
    stack: Option<StackId>,
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
    fn from(hold: &Hold) -> Self {
        Self { lock: hold.lock, task: hold.task, stack: hold.stack }
    }
}

impl From<&Wait> for Subject {
    fn from(wait: &Wait) -> Self {
        Self { lock: wait.lock, task: wait.task, stack: wait.stack }
    }
}

/// The number of a row.
pub(crate) fn number(hold: Subject, by: By, names: &Names) -> i64 {
    let class = || names.class_number(hold.lock).map_or(-1, i64::from);
    match by {
        By::Lock => i64::from(hold.lock.0),
        By::Site => site_number(names.point_number(hold.lock, hold.stack), names.class_number(hold.lock)),
        By::Stack => site_number(names.chain_number(hold.lock, hold.stack), names.class_number(hold.lock)),
        By::Host => 0,
        By::Cgroup => names.cgroup_number(hold.task).map_or(-1, i64::from),
        By::Class => class(),
        By::Kind => {
            let kind = names.lock(hold.lock).map(|lock| lock.kind);
            kind.and_then(|kind| LockKind::ALL.iter().position(|k| *k == kind)).map_or(-1, |at| at as i64)
        }
        By::Task => i64::from(hold.task.0),
        By::TaskLock => i64::from(hold.task.0) << 32 | i64::from(hold.lock.0.cast_unsigned()),
        By::Process => names.task(hold.task).map_or(-1, |task| i64::from(task.pid)),
        By::Comm => names.comm_number(hold.task).map_or(-1, i64::from),
    }
}

/// The number of an acquisition point and a class of locks.
pub(crate) fn site_number(point: u32, class: Option<u32>) -> i64 {
    i64::from(point) << 32 | class.map_or(0, |class| i64::from(class) + 1)
}

impl Key {
    /// The key that [`number`] made.
    pub(crate) fn of_number(number: i64, by: By, names: &Names) -> Self {
        let id = i32::try_from(number).unwrap_or(-1);
        let class = |number: i64| u32::try_from(number).ok().and_then(|number| names.class(number));
        match by {
            By::Lock => {
                let lock = names.lock(LockId(id));
                Self::Lock {
                    lock_id: id,
                    address: lock.and_then(|lock| lock.address).map(|address| format!("{address:#x}")),
                    kind: lock.map(|lock| lock.kind),
                    pid: lock.and_then(|lock| lock.pid),
                }
            }
            By::Site => {
                let point = names.point_of_number((number >> 32) as u32);
                let class = class((number & 0xffff_ffff) - 1);
                Self::Site {
                    file: point.file.as_deref().map(|file| crate::names::shorten(file).to_owned()),
                    line: point.line,
                    function: point.function.clone(),
                    place: point.place(),
                    kind: class.map(|class| class.kind),
                    lock_name: class.and_then(|class| class.name.clone()),
                }
            }
            By::Stack => {
                let class = class((number & 0xffff_ffff) - 1);
                Self::Stack {
                    stack: names.chain_of_number((number >> 32) as u32).to_vec(),
                    kind: class.map(|class| class.kind),
                    lock_name: class.and_then(|class| class.name.clone()),
                }
            }
            By::Host => Self::Host { host: names.host().map(str::to_owned) },
            By::Cgroup => {
                let cgroup = u32::try_from(number).ok().and_then(|number| names.cgroup_of_number(number));
                Self::Cgroup { cgroup: cgroup.map(str::to_owned) }
            }
            By::Class => {
                let class = class(number);
                Self::Class {
                    kind: class.map(|class| class.kind),
                    lock_name: class.and_then(|class| class.name.clone()),
                }
            }
            By::Kind => Self::Kind {
                kind: usize::try_from(number).ok().and_then(|at| LockKind::ALL.get(at)).copied(),
            },
            By::Task => {
                let task = names.task(TaskId(id));
                Self::Task {
                    task_id: id,
                    pid: task.map(|task| task.pid),
                    tid: task.map(|task| task.tid),
                    comm: task.and_then(|task| task.comm.clone()),
                }
            }
            By::TaskLock => {
                let (task_id, lock_id) = ((number >> 32) as i32, number as i32);
                let (task, lock) = (names.task(TaskId(task_id)), names.lock(LockId(lock_id)));
                let init = names.chain_number(LockId(lock_id), lock.and_then(|lock| lock.init_stack));
                Self::TaskLock {
                    task_id,
                    pid: task.map(|task| task.pid),
                    tid: task.map(|task| task.tid),
                    comm: task.and_then(|task| task.comm.clone()),
                    lock_id,
                    address: lock.and_then(|lock| lock.address).map(|address| format!("{address:#x}")),
                    kind: lock.map(|lock| lock.kind),
                    lock_name: lock.and_then(|lock| lock.name.clone()),
                    init_stack: names.chain_of_number(init).to_vec(),
                }
            }
            By::Process => Self::Process {
                pid: (id >= 0).then_some(id),
                comm: names.process_comm(id).map(str::to_owned),
            },
            By::Comm => {
                let comm = u32::try_from(number).ok().and_then(|number| names.comm_of_number(number));
                Self::Comm { comm: comm.map(str::to_owned) }
            }
        }
    }

    /// What the row is called.
    pub(crate) fn label(&self, names: &Names) -> String {
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
                format!("{} ({})", printable(&stack.join(" < ")), class(kind, lock_name))
            }
            Self::Cgroup { cgroup: name } | Self::Host { host: name } => comm(name),
        }
    }

    /// The same without the class of the locks, if the row has a place.
    pub(crate) fn short_label(&self, names: &Names) -> String {
        match self {
            Self::Site { file: Some(_), function: Some(function), place, .. } => {
                format!("{place} ({})", printable(function))
            }
            Self::Site { place, .. } => place.clone(),
            _ => self.label(names),
        }
    }

    /// The names of the columns that identify a row.
    pub(crate) fn column_names(by: By) -> &'static [&'static str] {
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
        }
    }

    /// Their values, safe to print; empty for what is not known.
    pub(crate) fn column_values(&self) -> Vec<String> {
        fn number(n: &Option<i32>) -> String {
            n.map_or_else(String::new, |n| n.to_string())
        }
        fn text(text: &Option<String>) -> String {
            text.as_deref().map_or_else(String::new, |text| printable(text).into_owned())
        }
        fn kind(kind: &Option<LockKind>) -> String {
            kind.map_or_else(String::new, |kind| kind.to_string())
        }
        /// A semicolon in a symbol would be another frame.
        fn folded(stack: &[String]) -> String {
            let frames: Vec<String> = stack.iter().map(|frame| frame.replace(';', ":")).collect();
            printable(&frames.join(";")).into_owned()
        }
        match self {
            Self::Lock { lock_id, address, kind: k, pid } => {
                vec![lock_id.to_string(), text(address), kind(k), number(pid)]
            }
            Self::Site { file, line, function, place, kind: k, lock_name } => {
                vec![text(file), number(line), text(function), place.clone(), kind(k), text(lock_name)]
            }
            Self::Class { kind: k, lock_name } => vec![kind(k), text(lock_name)],
            Self::Kind { kind: k } => vec![kind(k)],
            Self::Task { task_id, pid, tid, comm } => {
                vec![task_id.to_string(), number(pid), number(tid), text(comm)]
            }
            Self::Process { pid, comm } => vec![number(pid), text(comm)],
            Self::Comm { comm } => vec![text(comm)],
            Self::Stack { stack, kind: k, lock_name } => {
                vec![folded(stack), kind(k), text(lock_name)]
            }
            Self::TaskLock { task_id, pid, tid, comm, lock_id, address, kind: k, lock_name, init_stack } => {
                vec![
                    task_id.to_string(),
                    number(pid),
                    number(tid),
                    text(comm),
                    lock_id.to_string(),
                    text(address),
                    kind(k),
                    text(lock_name),
                    folded(init_stack),
                ]
            }
            Self::Cgroup { cgroup: name } | Self::Host { host: name } => vec![text(name)],
        }
    }
}
