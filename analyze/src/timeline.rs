//! One lock over time: who held it, who waited for it and for whom.
//!
//! A trace and the id of a lock enter, a [`Timeline`] leaves: plain numbers, whose amount is bounded by the number of
//! columns and lanes and not by the trace. Colours, coordinates and text are the business of [`plot`](crate::plot).
//!
//! The trace is read twice: the first pass finds the span and the busiest threads, the second lays every interval on
//! the columns. Neither keeps intervals that are narrower than a column.

use std::ops::ControlFlow;

use trace_format::{EventKind, LockId, LockRow, TaskRow, Trace};

use crate::{
    AnalyzeError,
    intervals::{Engine, Hold, HoldState, Rules, Sink},
    names::Names,
    source,
};

mod fill;
mod grid;
mod lanes;
mod owners;
mod survey;
mod waiters;

pub use grid::{Grid, MAX_COLUMNS};
pub use lanes::{Cell, Span, Track, cells};
pub use owners::OwnerShare;

use fill::Fill;
use survey::Survey;

/// The most threads that get a lane of their own.
pub const MAX_LANES: usize = 40;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Which lock.
    pub lock: LockId,
    /// Which part of the trace, in ns since its begin, the end not included; an end after that of the trace is that of
    /// the trace. `None`: from the lock's first interval to its last.
    pub window: Option<(i64, i64)>,
    /// How many columns to compute, at most [`MAX_COLUMNS`]. As many as the picture has dots.
    pub columns: usize,
}

/// One lock over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// Which lock.
    pub lock: LockRow,
    /// The window and its columns.
    pub grid: Grid,
    /// When the trace began, in ns of its clock.
    pub origin_ns: i64,
    /// Whether the source of this kind of lock records how long it is held.
    pub holds_recorded: bool,
    /// Sums over all threads, in the window.
    pub totals: Totals,
    /// Threads that held or waited, by process and thread id; if there are more than [`MAX_LANES`], the busiest, and
    /// the rest together in the last one.
    pub lanes: Vec<Lane>,
    /// Who held the lock when.
    pub owners: Vec<OwnerShare>,
    /// By column: how many waited.
    pub waiters: Vec<Waiters>,
    /// Columns before or in which events were lost, and how many.
    pub losses: Vec<(usize, i64)>,
}

/// Whose intervals a lane shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Those of one thread.
    Thread(TaskRow),
    /// Those of so many threads together, added up.
    Others(usize),
}

/// The intervals of one thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Lane {
    /// Whose.
    pub who: Who,
    /// Sums in the window.
    pub totals: Totals,
    /// When the thread held the lock.
    pub hold: Track,
    /// When it waited.
    pub wait: Track,
    /// By column: how many waits were given up.
    pub abandoned: Vec<u32>,
}

/// Sums over intervals. What lies outside of the window is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Holds, with those whose begin or end was not seen.
    pub holds: u64,
    /// Time held, in ns.
    pub hold_ns: i64,
    /// Acquisitions of which it is not known how long the lock was held.
    pub unmeasured: u64,
    /// Waits.
    pub waits: u64,
    /// Time waited, in ns.
    pub wait_ns: i64,
    /// Of the waits: given up.
    pub abandoned: u64,
    /// Holds that were still open at the end of the trace.
    pub open_holds: u64,
    /// Waits that were still open at the end of the trace.
    pub open_waits: u64,
    /// Holds and waits that are known only up to a loss of events.
    pub cut: u64,
}

/// The waiters of one column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiters {
    /// The most at one time.
    pub peak: u32,
    /// Time waited by all of them, in ns.
    pub wait_ns: i64,
}

/// For whom a task waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocker {
    /// It is not known, or nobody has the lock: it is being handed over.
    Unknown,
    /// For the thread of this lane.
    Lane(usize),
    /// For several threads, none of which had it most of the time.
    Several,
}

/// Computes the timeline of one lock.
pub fn of_lock(trace: &Trace, query: &Query) -> Result<Timeline, AnalyzeError> {
    let names = Names::read(trace)?;
    let lock = names.lock(query.lock).cloned();
    let lock = lock
        .ok_or_else(|| AnalyzeError::LockNotFound { wanted: query.lock.to_string(), busiest: Vec::new() })?;
    let rules = names.rules(trace);
    let clocks = (trace.info().clocks_start.monotonic_ns, trace.info().clocks_end.monotonic_ns);
    let events = TraceEvents { trace, lock: lock.id, rules: &rules, end_ns: clocks.1 };
    let about = About {
        origin_ns: if clocks.0 > 0 { clocks.0 } else { first_time(trace)?.unwrap_or(0) },
        holds_recorded: rules.measures_holds(lock.id),
        lock,
    };
    compute(about, names.tasks(), query, &events)
}

/// When the first event was.
fn first_time(trace: &Trace) -> Result<Option<i64>, AnalyzeError> {
    let mut first = None;
    source::for_each(trace, |event| {
        first = Some(event.ts_ns);
        ControlFlow::Break(())
    })?;
    Ok(first)
}

/// What is known of the lock before any event is read.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) lock: LockRow,
    pub(crate) origin_ns: i64,
    pub(crate) holds_recorded: bool,
}

/// Intervals of one lock that can be gone through again.
pub(crate) trait Replay {
    /// Hands every interval and every loss to `sink`, in the order of their ends. Returns when the trace ended.
    fn replay<S: Pass>(&self, sink: &mut S) -> Result<i64, AnalyzeError>;
}

/// What goes over the intervals.
pub(crate) trait Pass: Sink {
    /// `count` events are missing before `ts_ns`.
    fn lost(&mut self, ts_ns: i64, count: i64);
}

struct TraceEvents<'a> {
    trace: &'a Trace,
    lock: LockId,
    rules: &'a Rules,
    end_ns: i64,
}

impl Replay for TraceEvents<'_> {
    fn replay<S: Pass>(&self, sink: &mut S) -> Result<i64, AnalyzeError> {
        let mut engine = Engine::new(self.rules.clone());
        let mut end_ns = self.end_ns;
        source::for_each(self.trace, |event| {
            end_ns = end_ns.max(event.ts_ns);
            if event.kind == EventKind::Lost {
                sink.lost(event.ts_ns, event.count.unwrap_or(0));
                engine.push(event, sink);
            } else if event.lock == Some(self.lock) {
                engine.push(event, sink);
            }
            ControlFlow::Continue(())
        })?;
        engine.finish(end_ns, sink);
        Ok(end_ns)
    }
}

/// First the facts, then the plan, then the pass that fills it.
pub(crate) fn compute(
    about: About,
    tasks: &[TaskRow],
    query: &Query,
    intervals: &impl Replay,
) -> Result<Timeline, AnalyzeError> {
    let since_origin = |ns: i64| about.origin_ns.saturating_add(ns);
    let window = query.window.map(|(from, to)| (since_origin(from), since_origin(to)));
    let mut survey = Survey::new(window);
    let end_ns = intervals.replay(&mut survey)?;
    let (from_ns, to_ns) = match window {
        Some((from_ns, to_ns)) => (from_ns, to_ns.min(end_ns)),
        None => survey.span(&about),
    };
    let mut fill = Fill::new(Grid::new(from_ns, to_ns, query.columns), &survey, tasks);
    intervals.replay(&mut fill)?;
    Ok(fill.finish(about))
}

/// Whether the end of a hold means something.
fn is_measured(hold: &Hold) -> bool {
    !matches!(hold.state, HoldState::AcquisitionOnly | HoldState::ReleaseUnseen)
}

#[cfg(test)]
pub(crate) mod tests;
