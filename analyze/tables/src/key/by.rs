//! The dimensions of tables: the choice of what is one row, its heading, the ids that decide it, and its columns.

use output::choices;

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
pub(super) struct Dim {
    /// The heading of the rows' names.
    heading: &'static str,
    /// The ids of an interval that decide its row.
    ids: Ids,
    /// The columns that identify a row.
    pub(super) columns: &'static [&'static str],
}

impl By {
    pub(super) const fn dim(self) -> Dim {
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
