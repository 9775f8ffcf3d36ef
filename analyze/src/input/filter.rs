//! The filter that all tables share.
//!
//! Filters by lock choose the events that reach the engine, so they cannot change who waits for whom. All other filters choose among
//! the intervals of the engine: a hold by its owner, a wait by the waiting task. A `Selection` resolves a filter against a
//! trace.

use trace_format::{LockKind, Mode};

use crate::input::{
    locks::{LockSelector, TaskSelector},
    names::purposes::Purpose,
};

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
