//! The second pass: every interval finds its lane and its columns.
//!
//! The window and the lanes of the [`Survey`] enter, and again the intervals; a [`Timeline`] leaves.

use rustc_hash::FxHashMap;
use trace_format::{Mode, TaskId, TaskRow};

use super::{
    About, Blocker, Grid, Lane, Pass, Span, Timeline, Totals, Track, Who, is_measured, owners,
    survey::Survey, waiters,
};
use crate::intervals::{Hold, HoldState, Outcome, Sink, Wait};

/// The lanes as they fill.
#[derive(Debug)]
pub(super) struct Fill {
    grid: Grid,
    lanes: Vec<Lane>,
    lane_of: FxHashMap<TaskId, usize>,
    /// The lane of everybody else, if there is one.
    others: Option<usize>,
    totals: Totals,
    waiters: waiters::WaiterCount,
    losses: FxHashMap<usize, i64>,
    /// Whether any hold was shared, so that holds may overlap.
    shared: bool,
}

impl Fill {
    pub(super) fn new(grid: Grid, survey: &Survey, tasks: &[TaskRow]) -> Self {
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
            shared: false,
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

    pub(super) fn finish(mut self, about: About) -> Timeline {
        for lane in &mut self.lanes {
            lane.hold.spans.sort_by_key(|span| (span.from_ns, span.to_ns));
            lane.wait.spans.sort_by_key(|span| (span.from_ns, span.to_ns));
        }
        let holds: Vec<&Track> = self.lanes.iter().map(|lane| &lane.hold).collect();
        let owners = owners::shares(&self.grid, &holds, !self.shared);
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
        self.shared |= hold.mode == Mode::Shared;
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
