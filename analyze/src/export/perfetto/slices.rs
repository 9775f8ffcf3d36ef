//! Holds and waits as slices, the flows between them, and how many wait.
//!
//! What ended enters, packets leave. A hold that others waited for is kept back until the next such hold of the lock has ended: by
//! then it is known which waits it was the last to delay. A flow leads from it to the hold that such a wait ended with; Perfetto draws
//! it from the release to the acquisition.

use rustc_hash::FxHashMap;
use trace_format::{LockId, TaskId};

use super::{
    messages::{DebugAnnotation, TracePacket, TrackEvent, Type},
    packets::{Packets, Text},
    tracks::Tracks,
};
use crate::{
    error::AnalyzeError,
    export::waiting::{Owned, Waiting},
    intervals::{Charge, Hold, HoldState, Outcome, Share, Sink, Wait},
    names::Names,
    report::trust::Watch,
    scope::Chosen,
};

/// Takes intervals.
pub(super) struct Slices<'a, 'w> {
    names: &'a Names,
    chosen: &'a Chosen,
    packets: Packets<'w>,
    tracks: Tracks,
    waiting: Waiting,
    /// By lock: the last hold that others waited for.
    released: FxHashMap<LockId, Released>,
    /// Who has a lock after a wait, since when, and the flow that leads there.
    handed: FxHashMap<(LockId, TaskId), (i64, u64)>,
    last_flow: u64,
    items: u64,
    watch: Watch,
}

/// A hold that has ended and is not written yet.
#[derive(Debug)]
struct Released {
    hold: Owned,
    track: u64,
    end_ns: i64,
    /// With its flows.
    begin: TrackEvent,
}

impl<'a, 'w> Slices<'a, 'w> {
    pub(super) fn new(names: &'a Names, chosen: &'a Chosen, packets: Packets<'w>) -> Self {
        Self {
            names,
            chosen,
            packets,
            tracks: Tracks::default(),
            waiting: Waiting::default(),
            released: FxHashMap::default(),
            handed: FxHashMap::default(),
            last_flow: 0,
            items: 0,
            watch: Watch::default(),
        }
    }

    /// Writes what was kept back. How many slices there are.
    pub(super) fn finish(mut self) -> Result<(u64, Watch), AnalyzeError> {
        let mut left: Vec<(LockId, Released)> = self.released.drain().collect();
        left.sort_unstable_by_key(|(lock, _)| *lock);
        for (_, released) in left {
            self.write_released(released);
        }
        self.packets.finish()?;
        Ok((self.items, self.watch))
    }

    fn event(&mut self, ns: i64, track: u64, kind: Type, event: TrackEvent) {
        let track_event = Some(TrackEvent { track_uuid: Some(track), kind: Some(kind.into()), ..event });
        self.packets.at(ns, TracePacket { track_event, ..TracePacket::default() });
    }

    fn slice(&mut self, (start_ns, end_ns): (i64, i64), track: u64, begin: TrackEvent) {
        self.event(start_ns, track, Type::SliceBegin, begin);
        self.event(end_ns, track, Type::SliceEnd, TrackEvent::default());
    }

    fn write_released(&mut self, released: Released) {
        self.slice((released.hold.1, released.end_ns), released.track, released.begin);
    }

    /// A flow from this hold, if it is the last one that others waited for.
    fn flow_from(&mut self, lock: LockId, hold: Owned) -> Option<u64> {
        let released = self.released.get_mut(&lock).filter(|released| released.hold == hold)?;
        self.last_flow += 1;
        released.begin.flow_ids.push(self.last_flow);
        Some(self.last_flow)
    }

    fn count(&mut self, lock: LockId, ns: i64, count: i64) {
        let counter_value = Some(count);
        if !self.chosen.window.holds(ns) {
            return;
        }
        let track = self.tracks.counter(lock, self.names, &mut self.packets);
        self.event(ns, track, Type::Counter, TrackEvent { counter_value, ..TrackEvent::default() });
    }

    fn place(&mut self, lock: LockId, stack: Option<trace_format::StackId>) -> Option<DebugAnnotation> {
        stack?;
        let (names, point) = (self.names, self.names.point_number(lock, stack));
        Some(self.packets.text("at", Text::Point(point), || names.point_of_number(point).label()))
    }

    fn task(&mut self, key: &'static str, task: Option<TaskId>) -> Option<DebugAnnotation> {
        let (names, task) = (self.names, task?);
        Some(self.packets.text(key, Text::Task(task), || names.task_label(task)))
    }

    fn int(&mut self, key: &'static str, value: Option<i64>) -> Option<DebugAnnotation> {
        value.map(|value| self.packets.int(key, value))
    }

    fn begin_hold(&mut self, hold: &Hold) -> TrackEvent {
        let names = self.names;
        let is_known = hold.state != HoldState::AcquisitionOnly;
        let known = |value: i64| Some(value).filter(|value| is_known && *value > 0);
        let state = match hold.state {
            HoldState::Complete | HoldState::AcquisitionOnly => None,
            HoldState::OpenAtEnd => Some("open"),
            HoldState::CutByLoss => Some("cut"),
            HoldState::ReleaseUnseen => Some("release_unseen"),
            HoldState::Backwards => Some("backwards"),
        };
        let annotations = [
            self.place(hold.lock, hold.stack),
            Some(self.packets.word("mode", hold.mode.as_str())),
            state.map(|state| self.packets.word("state", state)),
            self.int("wait_ns", hold.wait_ns.filter(|_| hold.contended)),
            self.int("wait_caused_ns", known(hold.wait_caused_ns)),
            self.int("waits_begun", known(hold.waits_begun)),
            self.int("max_waiters", known(hold.max_waiters)),
            self.task("released_by", hold.released_by),
        ];
        TrackEvent {
            category_iids: vec![self.packets.category(if is_known { "hold" } else { "acquisition" })],
            name_iid: Some(self.packets.number(Text::HoldOf(hold.lock), || names.lock_label(hold.lock))),
            debug_annotations: annotations.into_iter().flatten().collect(),
            ..TrackEvent::default()
        }
    }

    fn begin_wait(&mut self, wait: &Wait) -> TrackEvent {
        let names = self.names;
        let (outcome, errno) = match wait.outcome {
            Outcome::Acquired => ("acquired", None),
            Outcome::Abandoned(errno) => ("abandoned", errno),
            Outcome::OpenAtEnd => ("open", None),
            Outcome::CutByLoss => ("cut", None),
        };
        let holder = match wait.charge {
            Charge::Hold { task, .. } => Some(task),
            Charge::Gap | Charge::Unknown => None,
        };
        let annotations = [
            self.place(wait.lock, wait.stack),
            Some(self.packets.word("mode", wait.mode.as_str())),
            Some(self.packets.word("outcome", outcome)),
            self.int("errno", errno.map(i64::from)),
            self.int("gap_ns", wait.gap_ns),
            self.int("blocked_ns", wait.blocked_ns),
            self.int("runq_ns", wait.runq_ns),
            self.task("holder", holder),
            self.task("owner", wait.owner),
            self.task("waker", wait.waker),
        ];
        let name = || format!("wait for {}", names.lock_label(wait.lock));
        TrackEvent {
            category_iids: vec![self.packets.category("wait")],
            name_iid: Some(self.packets.number(Text::WaitFor(wait.lock), name)),
            debug_annotations: annotations.into_iter().flatten().collect(),
            ..TrackEvent::default()
        }
    }
}

impl Sink for Slices<'_, '_> {
    const SHARES: bool = true;

    fn wait_begins(&mut self, wait: &Wait) {
        let count = self.waiting.begin(wait);
        self.count(wait.lock, wait.start_ns, count);
    }

    fn hold(&mut self, hold: &Hold) {
        if !self.chosen.wants_hold(hold) {
            return;
        }
        self.watch.hold(hold);
        self.items += 1;
        let mut begin = self.begin_hold(hold);
        // A hold that its task had already when it waited is not what it waited for.
        let key = (hold.lock, hold.task);
        if let Some((_, flow)) = self.handed.get(&key).copied().filter(|(ns, _)| *ns == hold.start_ns) {
            begin.terminating_flow_ids.push(flow);
            self.handed.remove(&key);
        }
        if hold.state == HoldState::AcquisitionOnly {
            let at = (hold.start_ns, hold.start_ns);
            let track = self.tracks.of(hold.task, at, false, self.names, &mut self.packets);
            return self.event(hold.start_ns, track, Type::Instant, begin);
        }
        let has_flows = hold.wait_caused_ns > 0;
        let span = (hold.start_ns, hold.end_ns);
        let track = self.tracks.of(hold.task, span, has_flows, self.names, &mut self.packets);
        if has_flows {
            let (owned, end_ns) = ((hold.task, hold.start_ns), hold.end_ns);
            let released = Released { hold: owned, track, end_ns, begin };
            if let Some(before) = self.released.insert(hold.lock, released) {
                self.write_released(before);
            }
        } else {
            self.slice(span, track, begin);
        }
    }

    fn wait(&mut self, wait: &Wait) {
        let ended = self.waiting.end(wait);
        if let Some((count, _)) = ended {
            self.count(wait.lock, wait.end_ns, count);
        }
        if !self.chosen.wants_wait(wait) {
            return;
        }
        self.watch.wait(wait);
        self.items += 1;
        let got = ended.and_then(|(_, charged)| charged).filter(|_| wait.outcome == Outcome::Acquired);
        if let Some(flow) = got.and_then(|hold| self.flow_from(wait.lock, hold)) {
            self.handed.insert((wait.lock, wait.task), (wait.end_ns, flow));
        }
        let span = (wait.start_ns, wait.end_ns);
        let track = self.tracks.of(wait.task, span, false, self.names, &mut self.packets);
        let begin = self.begin_wait(wait);
        self.slice(span, track, begin);
    }

    fn share(&mut self, wait: &Wait, share: &Share) {
        self.waiting.share(wait, share);
    }

    fn has_enough(&self) -> bool {
        self.packets.has_failed()
    }
}
