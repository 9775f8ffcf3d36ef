//! The first pass: from when to when the lock was busy, and with whom.
//!
//! Intervals enter; a window and the busiest threads leave. No interval is kept.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use trace_format::TaskId;

use super::{About, MAX_LANES, Pass, is_measured};
use crate::intervals::{Hold, HoldState, Outcome, Sink, Wait};

/// The first pass: how long each thread held and waited, and from when to when.
#[derive(Debug, Default)]
pub(super) struct Survey {
    window: Option<(i64, i64)>,
    first_ns: Option<i64>,
    last_ns: Option<i64>,
    /// Whether something ends with the trace and not by itself.
    open: bool,
    busy_ns: FxHashMap<TaskId, i64>,
}

impl Survey {
    /// A survey of a window, or of everything.
    pub(super) fn new(window: Option<(i64, i64)>) -> Self {
        Self { window, ..Self::default() }
    }

    fn add(&mut self, task: TaskId, start_ns: i64, end_ns: i64, open: bool) {
        let (start, end) = match self.window {
            None => (start_ns, end_ns),
            Some((from, to)) if start_ns < to && (end_ns > from || start_ns >= from) => {
                (start_ns.max(from), end_ns.min(to))
            }
            Some(_) => return,
        };
        self.first_ns = Some(self.first_ns.unwrap_or(start).min(start));
        self.last_ns = Some(self.last_ns.unwrap_or(end).max(end));
        self.open |= open;
        let busy = self.busy_ns.entry(task).or_default();
        *busy = busy.saturating_add(end.saturating_sub(start));
    }

    /// From the first interval to the last, with a margin, so that begins and ends are seen as such.
    pub(super) fn span(&self, about: &About) -> (i64, i64) {
        let first = self.first_ns.unwrap_or(about.lock.first_ns);
        let last = self.last_ns.unwrap_or(about.lock.last_ns).max(first);
        let margin = (last.saturating_sub(first) / 64).max(500);
        // A time before the trace began would puzzle; an open end has no margin behind it.
        let from = first.saturating_sub(margin).max(about.origin_ns.min(first));
        (from, if self.open { last } else { last.saturating_add(margin) })
    }

    /// The busiest threads, and how many more there are.
    pub(super) fn lanes(&self) -> (Vec<TaskId>, usize) {
        let mut tasks: Vec<(i64, TaskId)> = self.busy_ns.iter().map(|(task, ns)| (*ns, *task)).collect();
        tasks.sort_unstable_by_key(|(ns, task)| (Reverse(*ns), *task));
        let more = tasks.len().saturating_sub(MAX_LANES);
        (tasks.into_iter().take(MAX_LANES).map(|(_, task)| task).collect(), more)
    }
}

impl Sink for Survey {
    fn hold(&mut self, hold: &Hold) {
        let end_ns = if is_measured(hold) { hold.end_ns } else { hold.start_ns };
        self.add(hold.task, hold.start_ns, end_ns, hold.state == HoldState::OpenAtEnd);
    }

    fn wait(&mut self, wait: &Wait) {
        self.add(wait.task, wait.start_ns, wait.end_ns, wait.outcome == Outcome::OpenAtEnd);
    }
}

impl Pass for Survey {
    fn lost(&mut self, _ts_ns: i64, _count: i64) {}
}
