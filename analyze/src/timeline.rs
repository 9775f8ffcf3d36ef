//! One lock over time: who held it, who waited for it and for whom.
//!
//! A trace and the id of a lock enter, a [`Timeline`] leaves: plain numbers, whose amount is bounded by the number of
//! columns and lanes and not by the trace. Colours, coordinates and text are the business of [`plot`](crate::plot).
//!
//! The trace is read twice: the first pass finds the span and the busiest threads, the second lays every interval on
//! the columns. Neither keeps intervals that are narrower than a column.

use std::ops::ControlFlow;

use rustc_hash::{FxHashMap, FxHashSet};
use trace_format::{EventKind, LockId, LockRow, Mode, TaskId, TaskRow, Trace};

use crate::{
    AnalyzeError,
    intervals::{Engine, Hold, HoldState, Outcome, Rules, Sink, Wait},
    names::Names,
    source,
};

mod grid;
mod lanes;
mod owners;
mod waiters;

pub use grid::{Grid, MAX_COLUMNS};
pub use lanes::{Cell, Span, Track, cells};
pub use owners::OwnerShare;

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
    let mut survey = Survey { window, ..Survey::default() };
    let end_ns = intervals.replay(&mut survey)?;
    let (from_ns, to_ns) = match window {
        Some((from_ns, to_ns)) => (from_ns, to_ns.min(end_ns)),
        None => survey.span(&about),
    };
    let mut fill = Fill::new(Grid::new(from_ns, to_ns, query.columns), &survey, tasks);
    intervals.replay(&mut fill)?;
    Ok(fill.finish(about))
}

/// The first pass: how long each thread held and waited, and from when to when.
#[derive(Debug, Default)]
struct Survey {
    window: Option<(i64, i64)>,
    first_ns: Option<i64>,
    last_ns: Option<i64>,
    /// Whether something ends with the trace and not by itself.
    open: bool,
    busy_ns: FxHashMap<TaskId, i64>,
}

impl Survey {
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
    fn span(&self, about: &About) -> (i64, i64) {
        let first = self.first_ns.unwrap_or(about.lock.first_ns);
        let last = self.last_ns.unwrap_or(about.lock.last_ns).max(first);
        let margin = (last.saturating_sub(first) / 64).max(500);
        // A time before the trace began would puzzle; an open end has no margin behind it.
        let from = first.saturating_sub(margin).max(about.origin_ns.min(first));
        (from, if self.open { last } else { last.saturating_add(margin) })
    }

    /// The busiest threads, and how many more there are.
    fn lanes(&self) -> (Vec<TaskId>, usize) {
        let mut tasks: Vec<(i64, TaskId)> = self.busy_ns.iter().map(|(task, ns)| (*ns, *task)).collect();
        tasks.sort_unstable_by_key(|(ns, task)| (std::cmp::Reverse(*ns), *task));
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

/// Whether the end of a hold means something.
fn is_measured(hold: &Hold) -> bool {
    !matches!(hold.state, HoldState::AcquisitionOnly | HoldState::ReleaseUnseen)
}

/// The second pass: every interval finds its lane and its columns.
#[derive(Debug)]
struct Fill {
    grid: Grid,
    lanes: Vec<Lane>,
    lane_of: FxHashMap<TaskId, usize>,
    /// The lane of everybody else, if there is one.
    others: Option<usize>,
    totals: Totals,
    waiters: waiters::WaiterCount,
    losses: FxHashMap<usize, i64>,
    shared: FxHashSet<Mode>,
}

impl Fill {
    fn new(grid: Grid, survey: &Survey, tasks: &[TaskRow]) -> Self {
        let (busiest, more) = survey.lanes();
        let row = |id: TaskId| {
            let at = usize::try_from(id.0).ok().and_then(|at| tasks.get(at)).filter(|row| row.id == id);
            at.or_else(|| tasks.iter().find(|row| row.id == id)).cloned().unwrap_or_else(|| unknown_task(id))
        };
        let mut rows: Vec<TaskRow> = busiest.into_iter().map(row).collect();
        rows.sort_by_key(|row| (row.pid, row.tid, row.id));
        let lane_of = rows.iter().enumerate().map(|(lane, row)| (row.id, lane)).collect();
        let lane = |who| Lane {
            who,
            totals: Totals::default(),
            hold: Track::new(&grid),
            wait: Track::new(&grid),
            abandoned: vec![0; grid.columns()],
        };
        let mut lanes: Vec<Lane> = rows.into_iter().map(|row| lane(Who::Thread(row))).collect();
        let others = (more > 0).then_some(lanes.len());
        lanes.extend((more > 0).then(|| lane(Who::Others(more))));
        Self {
            grid,
            lanes,
            lane_of,
            others,
            totals: Totals::default(),
            waiters: waiters::WaiterCount::new(grid),
            losses: FxHashMap::default(),
            shared: FxHashSet::default(),
        }
    }

    fn lane(&self, task: TaskId) -> Option<usize> {
        self.lane_of.get(&task).copied().or(self.others)
    }

    fn count(&mut self, lane: usize, add: impl Fn(&mut Totals)) {
        add(&mut self.totals);
        add(&mut self.lanes[lane].totals);
    }

    /// The part of an interval in the window.
    fn clip(&self, start_ns: i64, end_ns: i64, unseen_end: bool) -> Option<Span> {
        let (from_ns, to_ns) = self.grid.clip(start_ns, end_ns)?;
        let (open_start, open_end) = (from_ns > start_ns, unseen_end || to_ns < end_ns);
        Some(Span { from_ns, to_ns, open_start, open_end, blocker: Blocker::Unknown })
    }

    fn finish(mut self, about: About) -> Timeline {
        for lane in &mut self.lanes {
            lane.hold.spans.sort_by_key(|span| (span.from_ns, span.to_ns));
            lane.wait.spans.sort_by_key(|span| (span.from_ns, span.to_ns));
        }
        let holds: Vec<&Track> = self.lanes.iter().map(|lane| &lane.hold).collect();
        let owners = owners::shares(&self.grid, &holds, !self.shared.contains(&Mode::Shared));
        if about.holds_recorded {
            for (index, lane) in self.lanes.iter_mut().enumerate() {
                lane.wait.attribute(&self.grid, index, &owners);
            }
        }
        let mut losses: Vec<(usize, i64)> = self.losses.into_iter().collect();
        losses.sort_unstable();
        Timeline {
            lock: about.lock,
            grid: self.grid,
            origin_ns: about.origin_ns,
            holds_recorded: about.holds_recorded,
            totals: self.totals,
            lanes: self.lanes,
            owners,
            waiters: self.waiters.finish(),
            losses,
        }
    }
}

impl Sink for Fill {
    fn hold(&mut self, hold: &Hold) {
        let Some(lane) = self.lane(hold.task) else { return };
        if !is_measured(hold) {
            if self.clip(hold.start_ns, hold.start_ns, false).is_some() {
                self.count(lane, |totals| totals.unmeasured += 1);
            }
            return;
        }
        let unseen_end = hold.state != HoldState::Complete;
        let Some(span) = self.clip(hold.start_ns, hold.end_ns, unseen_end) else { return };
        self.count(lane, |totals| {
            totals.holds += 1;
            totals.hold_ns = totals.hold_ns.saturating_add(span.to_ns - span.from_ns);
            totals.open_holds += u64::from(hold.state == HoldState::OpenAtEnd);
            totals.cut += u64::from(hold.state == HoldState::CutByLoss);
        });
        self.shared.insert(hold.mode);
        let exact = Some(lane) != self.others;
        self.lanes[lane].hold.add(&self.grid, span, exact);
    }

    fn wait(&mut self, wait: &Wait) {
        let Some(lane) = self.lane(wait.task) else { return };
        let unseen_end = matches!(wait.outcome, Outcome::OpenAtEnd | Outcome::CutByLoss);
        let Some(mut span) = self.clip(wait.start_ns, wait.end_ns, unseen_end) else { return };
        let abandoned = matches!(wait.outcome, Outcome::Abandoned(_)) && !span.open_end;
        self.count(lane, |totals| {
            totals.waits += 1;
            totals.wait_ns = totals.wait_ns.saturating_add(span.to_ns - span.from_ns);
            totals.abandoned += u64::from(abandoned);
            totals.open_waits += u64::from(wait.outcome == Outcome::OpenAtEnd);
            totals.cut += u64::from(wait.outcome == Outcome::CutByLoss);
        });
        if let Some(owner) = wait.owner.and_then(|owner| self.lane_of.get(&owner)) {
            span.blocker = Blocker::Lane(*owner);
        }
        self.waiters.add(span.from_ns, span.to_ns);
        let exact = Some(lane) != self.others;
        let lane = &mut self.lanes[lane];
        lane.wait.add(&self.grid, span, exact);
        if abandoned {
            let count = &mut lane.abandoned[self.grid.column_of(span.to_ns)];
            *count = count.saturating_add(1);
        }
    }
}

impl Pass for Fill {
    fn lost(&mut self, ts_ns: i64, count: i64) {
        if self.grid.clip(ts_ns, ts_ns).is_some() {
            let sum = self.losses.entry(self.grid.column_of(ts_ns)).or_default();
            *sum = sum.saturating_add(count);
        }
    }
}

/// A task that the tasks table does not have.
fn unknown_task(id: TaskId) -> TaskRow {
    TaskRow { id, pid: 0, tid: 0, comm: None, start_ns: None, exit_ns: None, cgroup: None }
}

#[cfg(test)]
pub(crate) mod tests;
