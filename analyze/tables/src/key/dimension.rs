//! The dimensions of tables: the choice of what is one row, with its heading, the ids that decide it and its columns.

use std::{fmt, str::FromStr};

use serde::{Serialize, Serializer};

use intervals::input::names::printable;
use output::{AnalyzeError, choices};

choices! {
    /// A key of rows.
    Dimension, "key" {
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

impl Dimension {
    /// Returns the heading of the rows' names, and the ids of an interval that decide its row.
    const fn heading_and_ids(self) -> (&'static str, Ids) {
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

    /// Returns the columns that identify a row. In a list, whose rows begin with other names, a lock has more of them, and none that
    /// says something else of another dimension.
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

/// The most dimensions of a row.
pub(super) const MOST_DIMENSIONS: usize = 4;

/// The key of a row: one dimension, or several, whose combinations are rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct By(pub(super) [Option<Dimension>; MOST_DIMENSIONS]);

#[allow(non_upper_case_globals, reason = "the names of the dimensions")]
impl By {
    pub const Lock: Self = Self::one(Dimension::Lock);
    pub const Site: Self = Self::one(Dimension::Site);
    pub const Class: Self = Self::one(Dimension::Class);
    pub const Kind: Self = Self::one(Dimension::Kind);
    pub const Task: Self = Self::one(Dimension::Task);
    pub const Process: Self = Self::one(Dimension::Process);
    pub const Comm: Self = Self::one(Dimension::Comm);
    pub const Stack: Self = Self::one(Dimension::Stack);
    pub const Cgroup: Self = Self::one(Dimension::Cgroup);
    pub const Host: Self = Self::one(Dimension::Host);
    pub const Purpose: Self = Self::one(Dimension::Purpose);
    pub const TaskLock: Self = Self([Some(Dimension::Task), Some(Dimension::Lock), None, None]);

    /// All single dimensions, and three lists.
    #[cfg(test)]
    pub const ALL: &'static [Self] = &[
        Self::Lock,
        Self::Site,
        Self::Class,
        Self::Kind,
        Self::Task,
        Self::Process,
        Self::TaskLock,
        Self::Comm,
        Self::Stack,
        Self::Cgroup,
        Self::Host,
        Self::Purpose,
        Self([Some(Dimension::Process), Some(Dimension::Kind), Some(Dimension::Stack), None]),
        Self([Some(Dimension::Task), Some(Dimension::Lock), Some(Dimension::Stack), None]),
    ];

    const fn one(dimension: Dimension) -> Self {
        Self([Some(dimension), None, None, None])
    }

    fn dimensions(self) -> impl Iterator<Item = Dimension> {
        self.0.into_iter().flatten()
    }

    /// Returns whether rows have several dimensions.
    pub(super) const fn is_list(self) -> bool {
        self.0[1].is_some()
    }

    /// Returns the heading of the rows' names.
    pub fn heading(self) -> String {
        self.dimensions().map(|dimension| dimension.heading_and_ids().0).collect::<Vec<_>>().join(": ")
    }

    /// Returns the names of the columns that identify a row.
    pub(super) fn columns(self) -> Vec<&'static str> {
        let mut columns = Vec::new();
        for column in self.dimensions().flat_map(|dimension| dimension.columns(self.is_list())) {
            if !columns.contains(column) {
                columns.push(*column);
            }
        }
        columns
    }

    /// Returns the ids of an interval that decide its row.
    pub fn ids(self) -> Ids {
        self.dimensions().map(|dimension| dimension.heading_and_ids().1).fold(Ids::None, Ids::merge)
    }

    /// Returns how many functions of each stack the rows show: none, `depth`, or all if that is `None`.
    pub fn frames(self, depth: Option<usize>) -> usize {
        let shows_stacks = self.columns().iter().any(|column| matches!(*column, "stack" | "init_stack"));
        if shows_stacks { depth.unwrap_or(usize::MAX) } else { 0 }
    }
}

impl Default for By {
    fn default() -> Self {
        Self::Lock
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.dimensions().map(Dimension::as_str).collect::<Vec<_>>().join(","))
    }
}

impl Serialize for By {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for By {
    type Err = AnalyzeError;

    fn from_str(text: &str) -> Result<Self, AnalyzeError> {
        let mut by = Self([None; MOST_DIMENSIONS]);
        for (at, word) in text.split(',').enumerate() {
            let dimension = Some(word.parse::<Dimension>()?);
            if at == MOST_DIMENSIONS || by.0.contains(&dimension) {
                return Err(AnalyzeError::BadKeys {
                    text: printable(text).into_owned(),
                    most: MOST_DIMENSIONS,
                });
            }
            by.0[at] = dimension;
        }
        Ok(by)
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
    fn merge(self, other: Self) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_keys_has_the_columns_of_each_once_and_needs_the_ids_of_all() {
        let of =
            |text: &str| text.parse::<By>().map(|by| (by.to_string(), by.columns(), by.ids(), by.heading()));
        let (text, columns, ids, heading) = of("task,lock,stack").unwrap();
        let expected = "task_id pid tid comm lock_id address kind lock_name init_stack stack";
        assert_eq!((text.as_str(), columns.join(" ").as_str(), ids), ("task,lock,stack", expected, Ids::All));
        assert_eq!(heading, "task: lock: acquired at < called by (lock)");
        assert_eq!(of("task,lock").unwrap().2, Ids::TaskAndLock);
        assert_eq!(of("site,lock").unwrap().2, Ids::LockAndStack);
        assert_eq!("task,lock".parse::<By>().unwrap(), By::TaskLock);
        for wrong in ["task,task", "task,lock,site,kind,class", "task,", "task;lock"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
