//! From what people type to locks and tasks of a trace.
//!
//! `0x7f..` is an address, `#12` an id, everything else a name; a name that is some lock's whole name means those
//! locks only, otherwise all whose name contains it. A selector that means nothing is an error with suggestions.

use std::{convert::Infallible, fmt, str::FromStr};

use trace_format::{LockId, TaskId, Trace};

use crate::{
    error::AnalyzeError,
    filter::Filter,
    names::Names,
    report::{self, Options},
};

/// How many locks an error suggests.
const SUGGESTIONS: usize = 5;

/// Which lock is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockSelector {
    /// All locks that were at this address.
    Address(u64),
    /// The lock of this id.
    Id(LockId),
    /// All locks of this name, or if there are none, those whose name contains it.
    Name(String),
}

impl FromStr for LockSelector {
    type Err = Infallible;

    fn from_str(word: &str) -> Result<Self, Infallible> {
        let hex = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"));
        if let Some(address) = hex.and_then(|hex| u64::from_str_radix(hex, 16).ok()) {
            return Ok(Self::Address(address));
        }
        let id = word.strip_prefix('#').and_then(|id| id.parse().ok());
        Ok(id.map_or_else(|| Self::Name(word.to_owned()), |id| Self::Id(LockId(id))))
    }
}

impl fmt::Display for LockSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address:#x}"),
            Self::Id(id) => write!(f, "{id}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// Which tasks are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskSelector {
    /// The thread, or all threads of the process, of this number.
    Number(i32),
    /// All threads of this name.
    Comm(String),
}

impl FromStr for TaskSelector {
    type Err = Infallible;

    fn from_str(word: &str) -> Result<Self, Infallible> {
        Ok(word.parse().map_or_else(|_| Self::Comm(word.to_owned()), Self::Number))
    }
}

impl fmt::Display for TaskSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Comm(comm) => f.write_str(comm),
        }
    }
}

/// The locks that `selector` means: one or more.
///
/// # Errors
///
/// [`AnalyzeError::LockNotFound`] if there is none; it suggests the locks with the most waiting. The trace can't be
/// read or holds no events.
pub fn lock(trace: &Trace, selector: &LockSelector) -> Result<Vec<LockId>, AnalyzeError> {
    if trace.event_count() == 0 {
        return Err(AnalyzeError::Empty { path: trace.paths().events.clone() });
    }
    lock_of(trace, &Names::read(trace)?, selector)
}

/// The lock that `selector` means, where one is needed.
///
/// # Errors
///
/// As [`lock`], and [`AnalyzeError::AmbiguousLock`] if there are several; it lists the busiest of them.
pub fn one_lock(trace: &Trace, selector: &LockSelector) -> Result<LockId, AnalyzeError> {
    match lock(trace, selector)?.as_slice() {
        [lock] => Ok(*lock),
        several => Err(AnalyzeError::AmbiguousLock {
            wanted: printable(selector),
            count: several.len(),
            candidates: busiest(trace, Some(selector.clone())),
        }),
    }
}

/// The labels of the locks with the most waiting, idle kinds left out: `#3 hot_mutex (pthread_mutex)`.
fn busiest(trace: &Trace, of: Option<LockSelector>) -> Vec<String> {
    let filter = Filter { lock: of, ..Filter::default() };
    let options = Options { limit: Some(SUGGESTIONS), filter, allow_loss: true, ..Options::default() };
    // A suggestion that can't be made is none; the error that it belongs to is what counts.
    report::report(trace, &options)
        .map(|report| report.rows.into_iter().map(|row| row.name).collect())
        .unwrap_or_default()
}

pub(crate) fn lock_of(
    trace: &Trace,
    names: &Names,
    selector: &LockSelector,
) -> Result<Vec<LockId>, AnalyzeError> {
    let name_is = |matches: &dyn Fn(&str) -> bool| {
        let wanted = names.locks().iter().filter(|lock| lock.name.as_deref().is_some_and(matches));
        wanted.map(|lock| lock.id).collect::<Vec<_>>()
    };
    let found: Vec<LockId> = match selector {
        LockSelector::Id(id) => names.lock(*id).map(|lock| lock.id).into_iter().collect(),
        LockSelector::Address(address) => {
            names.locks().iter().filter(|lock| lock.address == Some(*address)).map(|lock| lock.id).collect()
        }
        LockSelector::Name(name) => {
            let whole = name_is(&|other| other == name);
            if whole.is_empty() && !name.is_empty() {
                name_is(&|other| other.contains(name.as_str()))
            } else {
                whole
            }
        }
    };
    if found.is_empty() {
        return Err(AnalyzeError::LockNotFound {
            wanted: printable(selector),
            busiest: busiest(trace, None),
        });
    }
    Ok(found)
}

pub(crate) fn tasks_of(names: &Names, selector: &TaskSelector) -> Result<Vec<TaskId>, AnalyzeError> {
    let wanted = |task: &&trace_format::TaskRow| match selector {
        TaskSelector::Number(number) => task.tid == *number || task.pid == *number,
        TaskSelector::Comm(comm) => task.comm.as_ref() == Some(comm),
    };
    let found: Vec<TaskId> = names.tasks().iter().filter(wanted).map(|task| task.id).collect();
    if found.is_empty() {
        return Err(AnalyzeError::TaskNotFound { wanted: printable(selector) });
    }
    Ok(found)
}

fn printable(selector: &impl ToString) -> String {
    crate::names::printable(&selector.to_string()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_type_is_an_address_an_id_or_a_name() {
        let parse = |word: &str| word.parse::<LockSelector>().unwrap();
        assert_eq!(parse("0xffff888100000010"), LockSelector::Address(0xffff_8881_0000_0010));
        assert_eq!(parse("#12"), LockSelector::Id(LockId(12)));
        for name in ["hot_mutex", "12", "0xyz", "#", "#x", ""] {
            assert_eq!(parse(name), LockSelector::Name(name.to_owned()));
        }
    }
}
