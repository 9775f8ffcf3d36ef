//! The rows of the table: their keys, the parties that a time is charged to, and the columns of a line.

use serde::Serialize;

use crate::{
    key::{self, Key},
    rank,
};
use intervals::items::State;
use output::choices;

choices! {
    /// The key of a row.
    By, "key" {
        /// The site at which the holder acquired the lock.
        #[default]
        Site = "site",
        /// The holder.
        Task = "task",
        /// The site at which the holder acquired it, and the site at which others waited. Not of chains.
        Pair = "pair",
        /// The holder's site, and the state of its task.
        State = "state",
        /// The machine. Not of chains.
        Host = "host",
        /// One lock. Only of chains.
        Lock = "lock",
        /// The number of locks in the chain. Only of chains.
        Depth = "depth",
    }
}

impl By {
    /// Returns whether a table, of chains or not, has rows of this key.
    pub const fn is_of(self, chains: bool) -> bool {
        match self {
            Self::Site | Self::Task | Self::State => true,
            Self::Pair | Self::Host => !chains,
            Self::Lock | Self::Depth => chains,
        }
    }

    /// Returns the key of holders that keep, pass on and receive, if rows of chains are those.
    pub(super) const fn holder(self) -> Option<key::By> {
        match self {
            Self::Lock => Some(key::By::Lock),
            Self::Site => Some(key::By::Site),
            Self::Task => Some(key::By::Task),
            Self::Pair | Self::State | Self::Host | Self::Depth => None,
        }
    }
}

choices! {
    /// The party that a time is charged to.
    Charged, "charge" {
        /// A recorded hold of another task; in chains, of a task that waits for no lock.
        #[default]
        Hold = "hold",
        /// No task: the lock was free, all its holds being recorded, and the next waiter was not running yet.
        Handoff = "handoff",
        /// No task is known: holds of this lock are recorded, none of another task was open, and the lock may
        /// have been taken before the recording.
        Gap = "gap",
        /// The task that the lock word named when the wait began. Either holds are not recorded, and it is
        /// charged the whole wait; or its hold was not recorded, and it is charged until the first hold that
        /// was.
        Owner = "owner",
        /// Unknown, as with the next: the task that woke the waiter, which in most locks is the one that
        /// released it.
        Waker = "waker",
        /// Unknown: holds are not recorded, or the start of the wait was not seen.
        Unknown = "unknown",
        /// The end of a chain: a task that waits for a lock that it holds itself, exclusively.
        Oneself = "self",
        /// The end of a chain: tasks that wait for each other.
        Cycle = "cycle",
    }
}

/// The waits that one holder, or one pair of holder and waiter, caused.
pub type Row = rank::Row<Parties>;

/// The parties of a row, and the circumstances of the holder.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Parties {
    /// The holder: an acquisition site and the class of its locks, a lock, a task, or a machine. Without a
    /// hold, the class alone.
    pub holder: Option<Key>,
    /// The site at which others waited; for pairs only.
    pub waiter: Option<Key>,
    /// The lock that the holder waited for and where, or the system call and the functions in which it slept;
    /// safe to print.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    /// The party that the time is charged to; `None` if a row is a depth.
    pub charged_to: Option<Charged>,
    /// The state of the holder's task; `None` if no task is charged, or if states were not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// The lock that most of the time is passed on to; safe to print.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passed_to: Option<String>,
    /// The stack at which the lock was acquired, from the acquisition site outwards; if several stacks lead
    /// through the site, the one with the longest time.
    pub holder_stack: Vec<String>,
    /// The stack of the wait; for pairs only.
    pub waiter_stack: Vec<String>,
    /// The number of locks in the chain, if a row is that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<i64>,
    /// The trace of the stacks, whether they belong to a kernel lock, and their ids.
    #[serde(skip)]
    pub(super) stacks: [i64; 4],
}

/// The key of a row: the charge, the state, the row ids of holder, waiter and circumstances, and the depth.
pub(super) const ROW: [&str; 6] = ["charged", "state", "holder", "waiter", "on", "depth"];
/// The rest of the key of a line: the stacks, and the lock that time is passed on to.
pub(super) const REST: [&str; 5] = ["trace", "kernel", "holder_stack", "waiter_stack", "to"];
pub(super) const KEYS: [&str; 11] = [
    "charged",
    "state",
    "holder",
    "waiter",
    "on",
    "depth",
    "trace",
    "kernel",
    "holder_stack",
    "waiter_stack",
    "to",
];
