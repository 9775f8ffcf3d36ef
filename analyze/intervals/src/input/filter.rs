//! The filter that all tables share, and its selectors of locks and tasks, as typed on the command line.
//!
//! Filters by lock choose the events that reach the engine, so they cannot change who waits for whom. All
//! other filters choose among the intervals of the engine: a hold by its owner, a wait by the waiting task. A
//! `Selection` resolves a filter against a trace.

use std::{collections::BTreeSet, convert::Infallible, fmt, str::FromStr};

use trace_format::{LockId, LockKind, Mode, TaskId, TaskRow};

use crate::{
    input::names::purposes::Purpose,
    input::names::{Names, printable},
};
use output::error::{AnalyzeError, near};

/// The part of a trace to analyze. The default is everything but idle waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only these locks.
    pub lock: Option<LockSelector>,
    /// Only locks of these kinds; if empty, all for which tasks do not wait idly.
    pub kinds: Vec<LockKind>,
    /// Includes idle waits: all but those for locks.
    pub include_idle: bool,
    /// Only waits for these purposes, and the acquisitions that end them; if empty, `include_idle` decides.
    pub purposes: Vec<Purpose>,
    /// Only the holds and waits of these tasks.
    pub task: Option<TaskSelector>,
    /// Only the holds and waits of threads with one of these names; if empty, all.
    pub comms: Vec<String>,
    /// Only holds and waits with a function in their stack whose name contains this.
    pub symbol: Option<String>,
    /// Only holds and waits of this mode.
    pub mode: Option<Mode>,
    /// Only waits of at least this length, in ns, and holds that followed such a wait.
    pub min_wait_ns: Option<i64>,
    /// Only intervals that ended at or after this time, in ns since the start of the trace.
    pub from_ns: Option<i64>,
    /// Only intervals that ended before this time, in ns since the start of the trace.
    pub to_ns: Option<i64>,
}

/// Selects locks. `0x7f..` is an address, `#12` an id, everything else a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockSelector {
    /// All locks at this address.
    Address(u64),
    Id(LockId),
    /// All locks of this name, in which `*` and `?` stand for text as in names of tasks; if there are none,
    /// all whose name contains it.
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

/// Selects tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskSelector {
    /// The thread with this id, or all threads of the process with this id.
    Number(i32),
    /// All threads of this name, in which `*` stands for any text and `?` for any character.
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

/// Returns the locks that `selector` selects: one or more.
///
/// # Errors
///
/// [`AnalyzeError::LockNotFound`] without suggestions.
pub(super) fn resolve_lock(names: &Names, selector: &LockSelector) -> Result<Vec<LockId>, AnalyzeError> {
    let by_name = |matches: &dyn Fn(&str) -> bool| {
        let found = names.locks().iter().filter(|lock| lock.name.as_deref().is_some_and(matches));
        found.map(|lock| lock.id).collect::<Vec<_>>()
    };
    let found: Vec<LockId> = match selector {
        LockSelector::Id(id) => names.lock(*id).map(|lock| lock.id).into_iter().collect(),
        LockSelector::Address(address) => {
            names.locks().iter().filter(|lock| lock.address == Some(*address)).map(|lock| lock.id).collect()
        }
        LockSelector::Name(name) => {
            // The locks of an array or a structure are `table` and `table+0x40`.
            let is_whole = |other: &str| {
                let rest = other.strip_prefix(name.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("+0x"))
            };
            let whole = by_name(&is_whole);
            match (whole.is_empty(), name.contains(['*', '?'])) {
                (false, _) => whole,
                (true, true) => by_name(&|other| is_like(other, name)),
                (true, false) if name.is_empty() => Vec::new(),
                (true, false) => {
                    let part = by_name(&|other| other.contains(name.as_str()));
                    // Tables print `lock at app::Cache<long>::get()` as `lock at get()` or `lock at
                    // Cache<..>::get()`.
                    let printed = format!("*{}*", name.replace("..", "*").replace(' ', "*"));
                    if part.is_empty() { by_name(&|other| is_like(other, &printed)) } else { part }
                }
            }
        }
    };
    if found.is_empty() {
        let wanted = printed(selector);
        let known = names.locks().iter().filter_map(|lock| lock.name.as_deref());
        let near = near(&wanted, known).map(|name| printable(name).into_owned());
        return Err(AnalyzeError::LockNotFound { wanted, near, busiest: Vec::new() });
    }
    Ok(found)
}

/// Checks that a lock of the trace, if it has any, is of one of these kinds.
pub(super) fn check_kinds(names: &Names, kinds: &[LockKind]) -> Result<(), AnalyzeError> {
    let known: BTreeSet<LockKind> = names.locks().iter().map(|lock| lock.kind).collect();
    if known.is_empty() || kinds.iter().any(|kind| known.contains(kind)) {
        return Ok(());
    }
    let list = |kinds: &mut dyn Iterator<Item = &LockKind>| {
        kinds.map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    Err(AnalyzeError::KindNotFound { wanted: list(&mut kinds.iter()), known: list(&mut known.iter()) })
}

/// Returns the tasks that `selector` selects: one or more.
pub(super) fn resolve_task(names: &Names, selector: &TaskSelector) -> Result<Vec<TaskId>, AnalyzeError> {
    let is_selected = |task: &&TaskRow| match selector {
        TaskSelector::Number(number) => task.tid == *number || task.pid == *number,
        TaskSelector::Comm(comm) => task.comm.as_ref().is_some_and(|name| is_like(name, comm)),
    };
    let found: Vec<TaskId> = names.tasks().iter().filter(is_selected).map(|task| task.id).collect();
    if found.is_empty() {
        let wanted = printed(selector);
        let known = names.tasks().iter().filter_map(|task| task.comm.as_deref());
        let near = near(&wanted, known).map(|comm| printable(comm).into_owned());
        return Err(AnalyzeError::TaskNotFound { wanted, near });
    }
    Ok(found)
}

/// Returns whether a name matches a pattern, in which `*` stands for any text and `?` for any character.
pub(super) fn is_like(name: &str, pattern: &str) -> bool {
    let (mut name, mut pattern) = (name.chars(), pattern.chars());
    // The rest of the name that the last star may take from, and the rest of the pattern behind that star.
    let mut star = None;
    loop {
        let (mut next_name, mut next) = (name.clone(), pattern.clone());
        match (next.next(), next_name.next()) {
            (None, None) => return true,
            (Some('*'), _) => star = Some((name.clone(), next.clone())),
            (Some(wanted), Some(found)) if wanted == '?' || wanted == found => name = next_name,
            _ => {
                let Some((at, rest)) = &mut star else { return false };
                if at.next().is_none() {
                    return false;
                }
                (name, next) = (at.clone(), rest.clone());
            }
        }
        pattern = next;
    }
}

/// Returns a selector as text that is safe to print.
pub(super) fn printed(selector: &impl ToString) -> String {
    printable(&selector.to_string()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text_and_a_question_mark_for_one_character() {
        for (name, pattern) in [
            ("worker-12", "worker-*"),
            ("worker-12", "*-1?"),
            ("é", "?"),
            ("", "*"),
            ("a*", "a*"),
            ("aab", "*ab*"),
        ] {
            assert!(is_like(name, pattern), "{name} {pattern}");
        }
        let stars = "a*".repeat(60) + "b";
        assert!(!is_like(&"a".repeat(9_999), &stars), "each star is tried at most once at each character");
        for (name, pattern) in [("worker", "worker-*"), ("worker-12", "worker"), ("ab", "?"), ("", "?")] {
            assert!(!is_like(name, pattern), "{name} {pattern}");
        }
    }

    #[test]
    fn a_typed_word_is_an_address_an_id_or_a_name() {
        let parse = |word: &str| word.parse::<LockSelector>().unwrap();
        assert_eq!(parse("0xffff888100000010"), LockSelector::Address(0xffff_8881_0000_0010));
        assert_eq!(parse("#12"), LockSelector::Id(LockId(12)));
        for name in ["hot_mutex", "12", "0xyz", "#", "#x", ""] {
            assert_eq!(parse(name), LockSelector::Name(name.to_owned()));
        }
    }
}
