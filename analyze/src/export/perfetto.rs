//! A trace for Perfetto (ui.perfetto.dev, trace_processor): holds and waits as slices on a track per thread.
//!
//! Packets are written as holds and waits end, so memory does not grow with the trace. The holds and waits of
//! a thread nest on its track; locks that were not released in the reverse order of their acquisition get
//! tracks below it. A flow leads from the hold that a wait was charged to last to the hold that the wait
//! ended with: from the release to the next acquisition. A hold that others waited for is kept until the next
//! such hold of the lock has ended: by then it is known which waits it delayed last. Each lock with waits has
//! a counter of its waiters.
//!
//! The format is TrackEvent of <https://perfetto.dev/docs/reference/synthetic-track-event>. Times are in ns
//! of the boot clock, as all times in Perfetto, if the trace relates its clock to that one; otherwise of the
//! trace's own clock.

use rustc_hash::FxHashMap;
use trace_format::{LockId, StackId, TaskId, Trace};

use super::{
    options::Options,
    read::{ONE_CLOCK, Out, Written, open_one, read_while},
};
use intervals::{
    input::Input,
    input::names::Names,
    items::{Charge, Hold, HoldId, HoldState, Item, Needs, Outcome, Stretch, Wait},
};
use output::error::AnalyzeError;

mod lanes;
mod messages;
mod packets;
#[cfg(test)]
pub(super) mod tests;
mod tracks;

use messages::{DebugAnnotation, TracePacket, TrackEvent, Type};
use packets::{Packets, Text};
use tracks::Tracks;

/// Writes the packets of the trace.
pub(super) fn write(traces: &[Trace], options: &Options, out: Out<'_>) -> Result<Written, AnalyzeError> {
    let input = open_one(traces, options, ONE_CLOCK)?;
    let mut perfetto = Perfetto::new(out);
    perfetto.packets.begin(&input.trace.info().clocks_start);
    let needs = Needs { shares: true, ..Needs::default() };
    let trust = read_while(&input, needs, true, |item, is_selected| {
        perfetto.push(item, &input, is_selected);
        !perfetto.packets.has_failed()
    })?;
    perfetto.end();
    perfetto.packets.finish()?;
    Ok(Written::new(perfetto.items, [trust], Vec::new()))
}

/// Writes holds and waits as slices.
struct Perfetto<'w> {
    packets: Packets<'w>,
    tracks: Tracks,
    waiting: Waiting,
    /// By lock: the last hold that others waited for.
    released: FxHashMap<LockId, Released>,
    /// By the owner of a lock after a wait: the start of its hold, and the flow that leads there.
    handed: FxHashMap<(LockId, TaskId), (i64, u64)>,
    last_flow: u64,
    items: usize,
}

/// A hold that has ended and is not written yet.
#[derive(Debug)]
struct Released {
    hold: HoldStart,
    track: u64,
    end_ns: i64,
    /// The start of the slice, with its flows.
    begin: TrackEvent,
}

impl<'w> Perfetto<'w> {
    fn new(out: Out<'w>) -> Self {
        Self {
            packets: Packets::new(out),
            tracks: Tracks::default(),
            waiting: Waiting::default(),
            released: FxHashMap::default(),
            handed: FxHashMap::default(),
            last_flow: 0,
            items: 0,
        }
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

    /// Returns a new flow from this hold, if it is the last one that others waited for.
    fn flow_from(&mut self, lock: LockId, hold: HoldStart) -> Option<u64> {
        let released = self.released.get_mut(&lock).filter(|released| released.hold == hold)?;
        self.last_flow += 1;
        released.begin.flow_ids.push(self.last_flow);
        Some(self.last_flow)
    }

    fn count(&mut self, lock: LockId, ns: i64, count: i64, input: &Input<'_>) {
        if !input.selection.window.contains(ns) {
            return;
        }
        let counter_value = Some(count);
        let track = self.tracks.counter(lock, &input.names, &mut self.packets);
        self.event(ns, track, Type::Counter, TrackEvent { counter_value, ..TrackEvent::default() });
    }

    fn site(&mut self, lock: LockId, stack: Option<StackId>, names: &Names) -> Option<DebugAnnotation> {
        stack?;
        let point = names.point_number(lock, stack);
        Some(self.packets.text("at", Text::Point(point), || names.point_of_number(point).label()))
    }

    fn task(&mut self, key: &'static str, task: Option<TaskId>, names: &Names) -> Option<DebugAnnotation> {
        let task = task?;
        Some(self.packets.text(key, Text::Task(task), || names.task_label(task)))
    }

    fn int(&mut self, key: &'static str, value: Option<i64>) -> Option<DebugAnnotation> {
        value.map(|value| self.packets.int(key, value))
    }

    fn begin_hold(&mut self, hold: &Hold, names: &Names) -> TrackEvent {
        let is_known = hold.state != HoldState::AcquisitionOnly;
        let known = |value: i64| Some(value).filter(|value| is_known && *value > 0);
        let is_usual = matches!(hold.state, HoldState::Complete | HoldState::AcquisitionOnly);
        let annotations = [
            self.site(hold.lock, hold.stack, names),
            Some(self.packets.word("mode", hold.mode.as_str())),
            (!is_usual).then(|| self.packets.word("state", hold.state.as_str())),
            self.int("wait_ns", hold.wait_ns.filter(|_| hold.contended)),
            self.int("wait_caused_ns", known(hold.wait_caused_ns)),
            self.int("waits_begun", known(hold.waits_begun)),
            self.int("max_waiters", known(hold.max_waiters)),
            self.task("released_by", hold.released_by, names),
        ];
        TrackEvent {
            category_iids: vec![self.packets.category(if is_known { "hold" } else { "acquisition" })],
            name_iid: Some(self.packets.number(Text::HoldOf(hold.lock), || names.lock_label(hold.lock))),
            debug_annotations: annotations.into_iter().flatten().collect(),
            ..TrackEvent::default()
        }
    }

    fn begin_wait(&mut self, wait: &Wait, names: &Names) -> TrackEvent {
        let (outcome, errno) = (wait.outcome.as_str(), wait.outcome.errno());
        let holder = match wait.charge {
            Charge::Hold { task, .. } => Some(task),
            Charge::Gap | Charge::Unknown => None,
        };
        let annotations = [
            self.site(wait.lock, wait.stack, names),
            Some(self.packets.word("mode", wait.mode.as_str())),
            Some(self.packets.word("outcome", outcome)),
            self.int("errno", errno.map(i64::from)),
            self.int("gap_ns", wait.gap_ns),
            self.int("blocked_ns", wait.blocked_ns),
            self.int("runq_ns", wait.runq_ns),
            self.task("holder", holder, names),
            self.task("owner", wait.owner, names),
            self.task("waker", wait.waker, names),
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

impl Perfetto<'_> {
    fn push(&mut self, item: Item<'_>, input: &Input<'_>, is_selected: bool) {
        match item {
            Item::WaitBegins(wait) => {
                let count = self.waiting.begin(wait);
                self.count(wait.lock, wait.start_ns, count, input);
            }
            Item::Stretch(_) | Item::Share(..) => self.waiting.charge(item),
            Item::Hold(hold) if is_selected => self.hold(hold, input),
            Item::Wait(wait) => {
                let ended = self.waiting.end(wait);
                if let Some((count, _)) = ended {
                    self.count(wait.lock, wait.end_ns, count, input);
                }
                if is_selected {
                    self.wait(wait, ended.and_then(|(_, charged)| charged), input);
                }
            }
            _ => {}
        }
    }

    /// Writes the holds that are left.
    fn end(&mut self) {
        let mut left: Vec<(LockId, Released)> = self.released.drain().collect();
        left.sort_unstable_by_key(|(lock, _)| *lock);
        left.into_iter().for_each(|(_, released)| self.write_released(released));
    }

    fn hold(&mut self, hold: &Hold, input: &Input<'_>) {
        let names = &input.names;
        self.items += 1;
        let mut begin = self.begin_hold(hold, names);
        // The flow leads to the hold that the wait ended with, not to an earlier one of the same task.
        let key = (hold.lock, hold.task);
        if let Some((_, flow)) = self.handed.get(&key).copied().filter(|(ns, _)| *ns == hold.start_ns) {
            begin.terminating_flow_ids.push(flow);
            self.handed.remove(&key);
        }
        if hold.state == HoldState::AcquisitionOnly {
            let at = (hold.start_ns, hold.start_ns);
            let track = self.tracks.of(hold.task, at, false, names, &mut self.packets);
            return self.event(hold.start_ns, track, Type::Instant, begin);
        }
        let has_flows = hold.wait_caused_ns > 0;
        let span = (hold.start_ns, hold.end_ns);
        let track = self.tracks.of(hold.task, span, has_flows, names, &mut self.packets);
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

    /// Writes a wait. `charged` is the hold that it was charged to last.
    fn wait(&mut self, wait: &Wait, charged: Option<HoldStart>, input: &Input<'_>) {
        let names = &input.names;
        self.items += 1;
        let from = charged.filter(|_| wait.outcome == Outcome::Acquired);
        if let Some(flow) = from.and_then(|hold| self.flow_from(wait.lock, hold)) {
            self.handed.insert((wait.lock, wait.task), (wait.end_ns, flow));
        }
        let span = (wait.start_ns, wait.end_ns);
        let track = self.tracks.of(wait.task, span, false, names, &mut self.packets);
        let begin = self.begin_wait(wait, names);
        self.slice(span, track, begin);
    }
}

/// The open waits by lock and task, and what is known of each lock.
#[derive(Debug, Default)]
struct Waiting {
    open: FxHashMap<(LockId, TaskId), Open>,
    locks: FxHashMap<LockId, Waiters>,
}

/// The open waits of a task. A wait that ended where it began may be reported after the task began the next
/// one.
#[derive(Debug, Default)]
struct Open {
    /// The starts of the waits.
    starts: Vec<i64>,
    /// The last payer of a wait that has shares of its own.
    charged: Option<Option<HoldStart>>,
}

/// The waiters of a lock.
#[derive(Debug, Default)]
struct Waiters {
    count: i64,
    /// The last payer, and until when.
    charged: Option<(HoldStart, i64)>,
}

/// The owner and the start of a hold.
type HoldStart = (TaskId, i64);

impl Waiting {
    /// Adds a wait. Returns the number of waiters now.
    fn begin(&mut self, wait: &Wait) -> i64 {
        self.open.entry((wait.lock, wait.task)).or_default().starts.push(wait.start_ns);
        let count = &mut self.locks.entry(wait.lock).or_default().count;
        *count += 1;
        *count
    }

    /// Notes the hold that is charged for the waits.
    fn charge(&mut self, item: Item<'_>) {
        let start = |payer: HoldId| (payer.task, payer.start_ns);
        match item {
            Item::Stretch(&Stretch { lock, payer: Some(payer), start_ns, ns, .. }) => {
                let charged = (start(payer), start_ns.saturating_add(ns));
                self.locks.entry(lock).or_default().charged = Some(charged);
            }
            Item::Share(wait, share) => {
                let before = self.last_of_all(wait);
                let Some(open) = self.open.get_mut(&(wait.lock, wait.task)) else { return };
                let charged = open.charged.get_or_insert(before);
                *charged = share.payer.map(start).or(*charged);
            }
            _ => {}
        }
    }

    /// Returns the last payer of all waits for a lock since a wait began.
    fn last_of_all(&self, wait: &Wait) -> Option<HoldStart> {
        let (hold, until_ns) = self.locks.get(&wait.lock)?.charged?;
        (until_ns > wait.start_ns).then_some(hold)
    }

    /// Removes a wait. Returns the number of waiters now and the hold that was charged last, or `None` if the
    /// start of the wait was not seen.
    fn end(&mut self, wait: &Wait) -> Option<(i64, Option<HoldStart>)> {
        let key = (wait.lock, wait.task);
        let open = self.open.get_mut(&key)?;
        // A wait whose start was not seen can end while another one is open.
        let at = open.starts.iter().position(|start_ns| *start_ns == wait.start_ns)?;
        open.starts.swap_remove(at);
        let charged = open.charged.take();
        if open.starts.is_empty() {
            self.open.remove(&key);
        }
        let charged = charged.unwrap_or_else(|| self.last_of_all(wait));
        let count = &mut self.locks.get_mut(&wait.lock)?.count;
        *count -= 1;
        Some((*count, charged))
    }
}
