//! What part of a trace is wanted, in the words of whoever asks: the filters that all tables have in common.
//!
//! A lock is wanted or not as a whole, and only events of wanted locks reach the engine; whom a lock made wait does not
//! change with what is looked at of it. All other filters choose among the intervals that the engine found: a hold by who
//! had it, a wait by who waited. What a filter means in a trace is found in `scope`.

use trace_format::{LockKind, Mode};

use crate::select::{LockSelector, TaskSelector};

/// What is wanted. The default is everything but idle waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only these locks.
    pub lock: Option<LockSelector>,
    /// Only locks of these kinds; empty is all but those that tasks wait for idly.
    pub kinds: Vec<LockKind>,
    /// Condition variables, semaphores and barriers too.
    pub include_idle: bool,
    /// Only the holds and waits of these tasks.
    pub task: Option<TaskSelector>,
    /// Only the holds and waits of threads of one of these names; empty is all.
    pub comms: Vec<String>,
    /// Only what was acquired or waited for with a function in the stack whose name contains this.
    pub symbol: Option<String>,
    /// Only holds and waits of this mode.
    pub mode: Option<Mode>,
    /// Only waits of at least this time, in ns, and holds that followed such a wait.
    pub min_wait_ns: Option<i64>,
    /// Only what ended at or after this time, in ns since the begin of the trace.
    pub from_ns: Option<i64>,
    /// Only what ended before this time, in ns since the begin of the trace.
    pub to_ns: Option<i64>,
}
