//! The pass over the events: what is open per lock, and what each event does to it.
//!
//! The rules are those of FreeBSD's LOCK_PROFILING where that says something, so that its columns come out as its
//! own do:
//!
//! * the first `wait` of a task opens its wait, further ones change nothing;
//! * recursion of an exclusive lock by its owner is invisible: one hold, from the first acquire to the last release;
//! * an owner of a shared lock that acquires it again at the same point extends its hold; at another point it opens
//!   a second one, and a release ends the one that was opened last;
//! * a wait is charged to the oldest hold with `start <= begin < end`, by time and not by the order of rows: events
//!   of two CPUs with equal times come in any order. So a wait is charged when the first event of its lock with
//!   another time arrives.

use rustc_hash::FxHashMap;
use trace_format::{Event, EventKind, LockId, Mode, TaskId};

use super::{Charge, Counts, Hold, HoldState, Outcome, Rules, Sink, Wait};

/// Turns events into holds and waits.
#[derive(Debug)]
pub struct Engine {
    rules: Rules,
    locks: FxHashMap<LockId, LockState>,
    last_loss_ns: Option<i64>,
    counts: Counts,
}

/// What is open on one lock.
#[derive(Debug, Default)]
struct LockState {
    /// In the order of their begin.
    holds: Vec<OpenHold>,
    /// In the order of their begin; those that are not charged yet are the last.
    waits: Vec<Wait>,
    /// Waits that ended before they could be charged.
    ended: Vec<Wait>,
    /// When the waits began that are not charged yet.
    uncharged_ns: Option<i64>,
}

#[derive(Debug)]
struct OpenHold {
    hold: Hold,
    point: Option<i64>,
    /// Acquires less releases.
    depth: i64,
    /// Somebody else got the lock since in a way that excludes this hold: its release came late, or never will.
    superseded: bool,
}

impl Engine {
    /// An engine at the begin of a trace.
    pub fn new(rules: Rules) -> Self {
        Self { rules, locks: FxHashMap::default(), last_loss_ns: None, counts: Counts::default() }
    }

    /// Takes the next event of the trace.
    pub fn push(&mut self, event: &Event, sink: &mut impl Sink) {
        if event.kind == EventKind::Lost {
            return self.lost(event.ts_ns, sink);
        }
        let Some(lock) = event.lock else { return };
        let state = self.locks.entry(lock).or_default();
        if state.uncharged_ns.is_some_and(|ns| ns != event.ts_ns) {
            state.charge(&mut self.counts, sink);
        }
        if event.kind == EventKind::Destroy {
            return state.destroy(event.ts_ns, &mut self.counts, sink);
        }
        let Some(task) = event.task else { return };
        let mut at = At { lock, task, event, rules: &self.rules, counts: &mut self.counts, sink };
        match event.kind {
            EventKind::Wait => state.wait(&mut at),
            EventKind::Acquire => state.acquire(&mut at, self.last_loss_ns),
            EventKind::Abandon => state.abandon(&mut at, self.last_loss_ns),
            EventKind::TryFail => at.counts.try_failures += 1,
            EventKind::Release => state.release(&mut at),
            EventKind::Wake | EventKind::Init | EventKind::Destroy | EventKind::OffCpu | EventKind::Lost => {}
        }
    }

    /// Ends the trace at `end_ns`: what is still open leaves as such.
    pub fn finish(mut self, end_ns: i64, sink: &mut impl Sink) -> Counts {
        self.cut(end_ns, HoldState::OpenAtEnd, Outcome::OpenAtEnd, sink);
        self.counts
    }

    fn lost(&mut self, ts_ns: i64, sink: &mut impl Sink) {
        self.counts.losses += 1;
        self.last_loss_ns = Some(ts_ns);
        self.cut(ts_ns, HoldState::CutByLoss, Outcome::CutByLoss, sink);
    }

    fn cut(&mut self, end_ns: i64, hold_state: HoldState, outcome: Outcome, sink: &mut impl Sink) {
        let mut open: Vec<(LockId, LockState)> = self.locks.drain().collect();
        open.sort_unstable_by_key(|(lock, _)| *lock);
        for (_, mut state) in open {
            state.charge(&mut self.counts, sink);
            for OpenHold { hold, .. } in state.holds {
                sink.hold(&Hold { end_ns: end_ns.max(hold.start_ns), state: hold_state, ..hold });
            }
            for wait in state.waits {
                let end_ns = end_ns.max(wait.start_ns);
                sink.wait(&Wait { end_ns, outcome, wait_ns: end_ns.saturating_sub(wait.start_ns), ..wait });
            }
        }
    }
}

/// One event and its surroundings.
struct At<'a, S: Sink> {
    lock: LockId,
    task: TaskId,
    event: &'a Event,
    rules: &'a Rules,
    counts: &'a mut Counts,
    sink: &'a mut S,
}

impl<S: Sink> At<'_, S> {
    fn mode(&self) -> Mode {
        self.event.mode.unwrap_or(Mode::Exclusive)
    }

    /// A wait that begins at `start_ns`, as far as this event knows it.
    fn wait(&self, start_ns: i64, charge: Charge) -> Wait {
        Wait {
            lock: self.lock,
            task: self.task,
            mode: self.mode(),
            start_ns,
            end_ns: start_ns,
            stack: self.event.stack,
            outcome: Outcome::OpenAtEnd,
            wait_ns: 0,
            blocked_ns: None,
            runq_ns: None,
            owner: None,
            waker: None,
            waker_stack: None,
            charge,
        }
    }
}

impl LockState {
    fn wait<S: Sink>(&mut self, at: &mut At<'_, S>) {
        if self.waits.iter().any(|wait| wait.task == at.task) {
            return;
        }
        at.counts.waits_begun += 1;
        let mut wait = at.wait(at.event.ts_ns, Charge::Unknown);
        wait.owner = at.event.peer_task;
        if at.rules.measures_holds(at.lock) {
            self.uncharged_ns = Some(at.event.ts_ns);
        } else {
            at.counts.unmeasured_waits += 1;
        }
        self.waits.push(wait);
    }

    fn acquire<S: Sink>(&mut self, at: &mut At<'_, S>, last_loss_ns: Option<i64>) {
        let waited = self.end_wait(at, Outcome::Acquired, last_loss_ns);
        let hold = Hold {
            lock: at.lock,
            task: at.task,
            mode: at.mode(),
            start_ns: at.event.ts_ns,
            end_ns: at.event.ts_ns,
            stack: at.event.stack,
            contended: waited != Waited::Not,
            wait_ns: match waited {
                Waited::Not => Some(0),
                Waited::For(ns) => Some(ns),
                Waited::Unknown => None,
            },
            waits_begun: 0,
            acquisitions: 1,
            recursions: 0,
            state: HoldState::AcquisitionOnly,
        };
        if !at.rules.measures(at.lock, hold.mode) {
            return at.sink.hold(&hold);
        }
        let point = at.rules.point(at.lock, at.event.stack);
        self.forget_superseded(at);
        if let Some(open) = self.holds.iter_mut().rev().find(|open| open.is_reentered_by(&hold, point)) {
            open.depth += 1;
            match hold.mode {
                Mode::Exclusive => open.hold.recursions += 1,
                Mode::Shared => open.hold.acquisitions += 1,
            }
            return;
        }
        for open in &mut self.holds {
            let excluded = open.hold.mode == Mode::Exclusive || hold.mode == Mode::Exclusive;
            open.superseded |= excluded && open.hold.task != at.task;
        }
        self.holds.push(OpenHold { hold, point, depth: 1, superseded: false });
    }

    fn abandon<S: Sink>(&mut self, at: &mut At<'_, S>, last_loss_ns: Option<i64>) {
        let outcome = Outcome::Abandoned(at.event.errno);
        self.end_wait(at, outcome, last_loss_ns);
    }

    /// A release ends the hold that its task opened last.
    fn release<S: Sink>(&mut self, at: &mut At<'_, S>) {
        if !at.rules.measures(at.lock, at.mode()) {
            return;
        }
        let Some(index) = self.holds.iter().rposition(|open| open.hold.task == at.task) else {
            at.counts.unpaired_releases += 1;
            return;
        };
        self.holds[index].depth -= 1;
        if self.holds[index].depth == 0 {
            let open = self.holds.remove(index);
            complete(open.hold, at.event.ts_ns, at.counts, at.sink);
        }
    }

    /// The end of a lock is the release of whoever holds it.
    fn destroy(&mut self, ts_ns: i64, counts: &mut Counts, sink: &mut impl Sink) {
        for open in self.holds.drain(..) {
            if open.superseded {
                release_unseen(open.hold, ts_ns, counts, sink);
            } else {
                complete(open.hold, ts_ns, counts, sink);
            }
        }
    }

    /// Ends the wait of this task, if it waited, and says for how long.
    fn end_wait<S: Sink>(
        &mut self,
        at: &mut At<'_, S>,
        outcome: Outcome,
        last_loss_ns: Option<i64>,
    ) -> Waited {
        let event = at.event;
        let open = self.waits.iter().position(|wait| wait.task == at.task);
        let mut wait = match open {
            Some(index) => self.waits.remove(index),
            None => match event.wait_ns {
                Some(ns) if ns <= 0 && outcome == Outcome::Acquired => return Waited::Not,
                Some(ns) if last_loss_ns.is_none_or(|loss| event.ts_ns.saturating_sub(ns) > loss) => {
                    // It is never charged: the holds of its begin are gone.
                    at.counts.inferred_waits += 1;
                    at.wait(event.ts_ns.saturating_sub(ns.max(0)), Charge::Unknown)
                }
                _ => {
                    at.counts.begin_unseen += 1;
                    return Waited::Unknown;
                }
            },
        };
        wait.end_ns = event.ts_ns.max(wait.start_ns);
        wait.wait_ns = event.wait_ns.unwrap_or(wait.end_ns.saturating_sub(wait.start_ns)).max(0);
        wait.outcome = outcome;
        wait.blocked_ns = event.blocked_ns;
        wait.runq_ns = event.runq_ns;
        wait.waker = event.peer_task;
        wait.waker_stack = event.peer_stack;
        if open.is_some() && wait.charge == Charge::Unknown && self.uncharged_ns.is_some() {
            self.ended.push(wait);
        } else {
            at.sink.wait(&wait);
        }
        Waited::For(wait.wait_ns)
    }

    /// Charges the waits that began at `uncharged_ns`, all events of that time being known by now.
    fn charge(&mut self, counts: &mut Counts, sink: &mut impl Sink) {
        if self.uncharged_ns.take().is_none() {
            return;
        }
        let fresh = self.waits.iter_mut().rev().take_while(|wait| wait.charge == Charge::Unknown);
        for wait in self.ended.iter_mut().chain(fresh) {
            let payer = self.holds.iter_mut().find(|open| !open.superseded && open.hold.task != wait.task);
            wait.charge = match payer {
                Some(OpenHold { hold, .. }) => {
                    hold.waits_begun += 1;
                    Charge::Hold { task: hold.task, start_ns: hold.start_ns }
                }
                None => {
                    counts.gap_waits += 1;
                    Charge::Gap
                }
            };
        }
        for wait in self.ended.drain(..) {
            sink.wait(&wait);
        }
    }

    /// The task acquires a lock that somebody else had since its own hold: that hold ended unseen.
    fn forget_superseded<S: Sink>(&mut self, at: &mut At<'_, S>) {
        let stale = |open: &mut OpenHold| open.superseded && open.hold.task == at.task;
        for OpenHold { hold, .. } in self.holds.extract_if(.., stale) {
            release_unseen(hold, at.event.ts_ns, at.counts, at.sink);
        }
    }
}

impl OpenHold {
    /// Whether `hold` is no hold of its own but one more acquisition within this one.
    fn is_reentered_by(&self, hold: &Hold, point: Option<i64>) -> bool {
        let same = self.hold.task == hold.task && self.hold.mode == hold.mode;
        same && (hold.mode == Mode::Exclusive || self.point == point)
    }
}

/// Whether and how long a task waited for what it now has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waited {
    Not,
    For(i64),
    Unknown,
}

fn complete(hold: Hold, end_ns: i64, counts: &mut Counts, sink: &mut impl Sink) {
    if end_ns < hold.start_ns {
        counts.backwards += 1;
        sink.hold(&Hold { end_ns: hold.start_ns, state: HoldState::Backwards, ..hold });
    } else {
        sink.hold(&Hold { end_ns, state: HoldState::Complete, ..hold });
    }
}

fn release_unseen(hold: Hold, end_ns: i64, counts: &mut Counts, sink: &mut impl Sink) {
    counts.releases_unseen += 1;
    sink.hold(&Hold { end_ns: end_ns.max(hold.start_ns), state: HoldState::ReleaseUnseen, ..hold });
}
