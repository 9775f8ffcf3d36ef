//! The second pass: puts every interval into its lane and columns.
//!
//! The [`Survey`] of the first pass has chosen the window and the lanes.

use rustc_hash::FxHashMap;
use trace_format::{Mode, TaskId, TaskRow};

use super::{
    chart::{Blocker, Chart, Lane, LaneSubject, LockContext, Site, Span, Totals, Track},
    grid::Grid,
    overall::Overall,
    survey::{Survey, is_measured},
    track::holders,
    waiters::WaiterCount,
};
use crate::charges::add;
use intervals::items::{Hold, HoldId, HoldState, Item, Needs, Outcome, Sink, Wait};

/// The chart while it is filled.
#[derive(Debug)]
pub(super) struct Fill<'a> {
    context: &'a LockContext<'a>,
    grid: Grid,
    lanes: Vec<Lane>,
    lane_of: FxHashMap<TaskId, usize>,
    /// The lane of all other threads, if there is one.
    others: Option<usize>,
    sites: Vec<Site>,
    site_tracks: Vec<Track>,
    site_of: FxHashMap<u32, usize>,
    totals: Totals,
    waiters: WaiterCount,
    losses: FxHashMap<usize, i64>,
    /// Whether any hold was shared, so that holds may overlap.
    shared: bool,
}

impl<'a> Fill<'a> {
    pub(super) fn new(context: &'a LockContext<'a>, grid: Grid, survey: &Survey<'_>) -> Self {
        let (first, more) = survey.lanes();
        let rows: Vec<TaskRow> = first.into_iter().map(|id| context.task(id)).collect();
        let lane_of = rows.iter().enumerate().map(|(lane, row)| (row.id, lane)).collect();
        let lane = |subject| Lane {
            subject,
            totals: Totals::default(),
            hold: Track::new(&grid),
            off_cpu: Vec::new(),
            wait: Track::new(&grid),
            abandoned: vec![0; grid.columns()],
        };
        let mut lanes: Vec<Lane> = rows.into_iter().map(|row| lane(LaneSubject::Thread(row))).collect();
        let others = (more > 0).then_some(lanes.len());
        lanes.extend((more > 0).then(|| lane(LaneSubject::Others(more))));
        let (first, more) = survey.sites();
        let site = |name| Site { name, hold_ns: 0 };
        let mut sites: Vec<Site> = first.iter().map(|number| site(context.site_name(*number))).collect();
        sites.extend((more > 0).then(|| site(format!("{more} more sites"))));
        Self {
            context,
            grid,
            site_tracks: sites.iter().map(|_| Track::new(&grid)).collect(),
            site_of: first.into_iter().enumerate().map(|(at, number)| (number, at)).collect(),
            sites,
            lanes,
            lane_of,
            others,
            totals: Totals::default(),
            waiters: WaiterCount::new(grid),
            losses: FxHashMap::default(),
            shared: false,
        }
    }

    fn lane(&self, task: TaskId) -> Option<usize> {
        self.lane_of.get(&task).copied().or(self.others)
    }

    fn count(&mut self, lane: usize, count: impl Fn(&mut Totals)) {
        count(&mut self.totals);
        count(&mut self.lanes[lane].totals);
    }

    /// Returns the part of an interval that lies in the window.
    fn clip(&self, start_ns: i64, end_ns: i64, unseen_end: bool) -> Option<Span> {
        let (from_ns, to_ns) = self.grid.clip(start_ns, end_ns)?;
        let (open_start, open_end) = (from_ns > start_ns, unseen_end || to_ns < end_ns);
        Some(Span { from_ns, to_ns, open_start, open_end, blocker: Blocker::Unknown, woken_ns: None })
    }

    fn add_site(&mut self, hold: &Hold, span: Span) {
        let Some(last) = self.sites.len().checked_sub(1) else { return };
        let at = self.site_of.get(&self.context.site(hold.stack)).copied().unwrap_or(last);
        add(&mut self.sites[at].hold_ns, span.to_ns - span.from_ns);
        self.site_tracks[at].add(&self.grid, span, true);
    }

    /// Returns the chart. If the trace was `cut_short` at the end of the window, nothing is known of its end.
    pub(super) fn finish(mut self, overall: Overall, cut_short: bool) -> Chart {
        let tracks = self.lanes.iter_mut().flat_map(|lane| [&mut lane.hold, &mut lane.wait]);
        for track in tracks.chain(&mut self.site_tracks) {
            track.spans.sort_by_key(|span| (span.from_ns, span.to_ns));
        }
        if cut_short {
            for totals in self.lanes.iter_mut().map(|lane| &mut lane.totals).chain([&mut self.totals]) {
                (totals.open_holds, totals.open_waits) = (0, 0);
            }
        }
        let context = self.context;
        let holds: Vec<&Track> = self.lanes.iter().map(|lane| &lane.hold).collect();
        let held = holders(&self.grid, &holds, !self.shared);
        let tracks: Vec<&Track> = self.site_tracks.iter().collect();
        let site_shares = holders(&self.grid, &tracks, !self.shared);
        if context.holds_recorded {
            for (index, lane) in self.lanes.iter_mut().enumerate() {
                lane.wait.attribute(&self.grid, index, &held);
            }
        }
        let mut losses: Vec<(usize, i64)> = self.losses.into_iter().collect();
        losses.sort_unstable();
        Chart {
            lock: context.lock.clone(),
            grid: self.grid,
            origin_ns: context.origin_ns,
            busiest: false,
            overall,
            holds_recorded: context.holds_recorded,
            totals: self.totals,
            lanes: self.lanes,
            holders: held,
            sites: self.sites,
            site_shares,
            waiters: self.waiters.finish(),
            deadlocks: Vec::new(),
            losses,
        }
    }
}

impl Sink for Fill<'_> {
    fn needs(&self) -> Needs {
        Needs { shares: true, ..Needs::default() }
    }

    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Hold(hold) => self.hold(hold),
            Item::Wait(wait) => self.wait(wait),
            Item::Share(_, share) => self.charge(share.payer, share.start_ns, share.ns, 1),
            Item::Stretch(of) => self.charge(of.payer, of.start_ns, of.ns, of.waits),
            Item::Lost { ts_ns, count } if self.grid.clip(ts_ns, ts_ns).is_some() => {
                add(self.losses.entry(self.grid.column_of(ts_ns)).or_default(), count);
            }
            _ => {}
        }
    }
}

impl Fill<'_> {
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
            add(&mut totals.hold_ns, span.to_ns - span.from_ns);
            totals.open_holds += u64::from(hold.state == HoldState::OpenAtEnd);
            totals.cut += u64::from(hold.state == HoldState::CutByLoss);
        });
        self.shared |= hold.mode == Mode::Shared;
        self.add_site(hold, span);
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
            add(&mut totals.wait_ns, span.to_ns - span.from_ns);
            totals.abandoned += u64::from(abandoned);
            totals.open_waits += u64::from(wait.outcome == Outcome::OpenAtEnd);
            totals.cut += u64::from(wait.outcome == Outcome::CutByLoss);
        });
        if let Some(owner) = wait.owner.and_then(|owner| self.lane_of.get(&owner)) {
            span.blocker = Blocker::Lane(*owner);
        }
        let woken_ns = wait.runq_ns.filter(|ns| *ns > 0).map(|ns| wait.end_ns.saturating_sub(ns));
        span.woken_ns = woken_ns.filter(|ns| (span.from_ns..span.to_ns).contains(ns));
        self.waiters.add(span.from_ns, span.to_ns);
        let exact = Some(lane) != self.others;
        let lane = &mut self.lanes[lane];
        lane.wait.add(&self.grid, span, exact);
        if abandoned {
            let count = &mut lane.abandoned[self.grid.column_of(span.to_ns)];
            *count = count.saturating_add(1);
        }
    }

    /// Adds time of this many waits to their payer.
    fn charge(&mut self, payer: Option<HoldId>, start_ns: i64, ns: i64, waits: i64) {
        let Some(payer) = payer else { return };
        let span = self.clip(start_ns, start_ns.saturating_add(ns), false);
        if let (Some(lane), Some(span)) = (self.lane(payer.task), span) {
            let ns = (span.to_ns - span.from_ns).saturating_mul(waits);
            self.count(lane, |totals| add(&mut totals.caused_ns, ns));
        }
    }
}
