//! The rows of a table: the row of an interval by one dimension, or by several as in `--by task,lock`, in
//! the ids of its trace and with names.

use std::{fmt, str::FromStr};

use serde::{Serialize, Serializer};

use super::{
    dimension::{Dimension, Ids, Single, Subject},
    part::{Key, Part},
};
use intervals::input::names::{Names, printable};
use output::AnalyzeError;

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
    pub fn all() -> Vec<Self> {
        let lists = ["task,lock", "process,kind,stack", "task,lock,stack"];
        let words = Dimension::ALL.iter().map(|dimension| dimension.as_str()).chain(lists);
        words.map(|word| word.parse().unwrap()).collect()
    }

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

/// A row within one trace: its part of each dimension, by the ids of that trace; [`Key`] is the same with
/// names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowKey([Option<Single>; MOST_DIMENSIONS]);

impl From<Single> for RowKey {
    fn from(single: Single) -> Self {
        let mut parts = [None; MOST_DIMENSIONS];
        parts[0] = Some(single);
        Self(parts)
    }
}

impl RowKey {
    pub fn of(subject: impl Into<Subject>, by: By, names: &Names) -> Self {
        let subject = subject.into();
        Self(by.0.map(|dimension| dimension.map(|dimension| Single::of(subject, dimension, names))))
    }

    /// Returns the part, if the row has one dimension.
    pub fn single(self) -> Option<Single> {
        self.0[0].filter(|_| self.0[1].is_none())
    }

    /// Returns whether a row of another trace is never the same row.
    pub fn is_of_one_trace(self) -> bool {
        let of_one = |part| matches!(part, Single::Lock(_) | Single::Task(_) | Single::Process(_));
        self.0.into_iter().flatten().any(of_one)
    }

    /// Returns whether the row is of a lock of the kernel, or of a class of such locks.
    pub fn is_kernel(self, names: &Names) -> bool {
        match self.single() {
            Some(Single::Lock(lock)) => names.is_kernel(lock),
            Some(Single::Site(_, class) | Single::Stack(_, class) | Single::Class(class)) => {
                class.and_then(|class| names.class(class)).is_some_and(|class| class.kind.is_kernel())
            }
            _ => false,
        }
    }

    /// Returns the name of the row; safe to print.
    pub fn label(self, names: &Names) -> String {
        self.0.into_iter().flatten().map(|part| part.label(names)).collect::<Vec<_>>().join(": ")
    }

    /// Returns the name without the class of the locks, if the row is a site.
    pub fn short_label(self, names: &Names) -> String {
        match self.single() {
            Some(Single::Site(point, _)) => names.point_of_number(point).label(),
            _ => self.label(names),
        }
    }
}

impl Key {
    /// Returns the key of a row with the names of its trace: the parts of its dimensions, in the order of
    /// their columns.
    pub fn of(row: impl Into<RowKey>, names: &Names) -> Self {
        let row = row.into();
        let mut parts: Vec<(&'static str, Part)> = Vec::new();
        for single in row.0.into_iter().flatten() {
            for part in single.parts(row.single().is_none(), names) {
                if !parts.iter().any(|(name, _)| *name == part.0) {
                    parts.push(part);
                }
            }
        }
        Self(parts)
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
