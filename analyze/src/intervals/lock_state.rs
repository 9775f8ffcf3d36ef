//! What is open on one lock, and what each event does to it.
//!
//! The rules are those of FreeBSD's LOCK_PROFILING where that says something, so that its columns come out as its
//! own do:
//!
//! * the first `wait` of a task opens its wait, further ones change nothing;
//! * recursion of an exclusive lock by its owner is invisible: one hold, from the first acquire to the last release;
//! * an owner of a shared lock that acquires it again at the same point extends its hold; at another point it opens
//!   a second one, and a release ends the one of its mode that was opened last;
//! * who releases a lock without holding it ends the oldest hold of another task, if it is known that all holds of
//!   the lock were seen to begin: it was initialised in the trace, or an owner gave an exclusive hold back. Otherwise
//!   the release is that of a hold from before the trace.
//!
//! Who is charged for waiting is decided in [`charge`](super::charge).

use trace_format::{EventRow, LockId, Mode, TaskId};

use super::{Charge, Counts, Hold, HoldState, Outcome, Rules, Share, Sink, Wait};

/// What is known of a lock while nothing is open on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rest {
    /// When it was last seen.
    pub(super) now_ns: i64,
    /// Whose hold was the last to begin and to last.
    pub(super) last_owner: Option<TaskId>,
    /// Whether all holds were seen to begin.
    pub(super) whole: bool,
}

/// What is open on one lock.
#[derive(Debug, Default)]
pub(super) struct LockState {
    /// Which one.
    pub(super) lock: Option<LockId>,
    /// Whether the source records holds of this lock.
    pub(super) measured: bool,
    /// Up to when waits are charged.
    pub(super) now_ns: i64,
    /// Whether a wait or a hold began at `now_ns`, of which not all events are known yet.
    pub(super) fresh: bool,
    /// The oldest first.
    pub(super) holds: Vec<OpenHold>,
    /// In the order of their begin; those that are not counted for a hold yet are the last.
    pub(super) waits: Vec<OpenWait>,
    /// Waits that ended before they could be counted for a hold.
    pub(super) ended: Vec<Wait>,
    /// How many waits are of tasks that have a hold.
    pub(super) own_waits: usize,
    /// For how long nobody was charged, whoever waited.
    pub(super) gap_ns: i64,
    /// Whose hold was the last to begin and to last.
    pub(super) last_owner: Option<TaskId>,
    /// Whether all holds were seen to begin.
    whole: bool,
}

#[derive(Debug)]
pub(super) struct OpenHold {
    pub(super) hold: Hold,
    /// When it began, on the clock of the lock.
    pub(super) since_ns: i64,
    /// Whether it can only begin when all others have ended.
    pub(super) excludes: bool,
    /// Somebody else got the lock since in a way that excludes this hold: its release came late, or never will.
    pub(super) superseded: bool,
    /// Who is charged to it right now, while that is counted one by one.
    pub(super) waiters: i64,
    point: Option<i64>,
    /// Acquires less releases.
    depth: i64,
    /// Whether all holds that were open at its begin were seen to begin.
    whole: bool,
}

#[derive(Debug)]
pub(super) struct OpenWait {
    pub(super) wait: Wait,
    /// The lock's `gap_ns` when it began, less what it has of its own.
    pub(super) gap_from_ns: i64,
    /// What is charged since the last share.
    pub(super) run: Option<Share>,
}

/// One event and its surroundings.
pub(super) struct At<'a, E: EventRow, S: Sink> {
    pub(super) lock: LockId,
    pub(super) task: TaskId,
    pub(super) event: &'a E,
    pub(super) rules: &'a Rules,
    pub(super) last_loss_ns: Option<i64>,
    pub(super) counts: &'a mut Counts,
    pub(super) sink: &'a mut S,
}

impl<E: EventRow, S: Sink> At<'_, E, S> {
    fn mode(&self) -> Mode {
        self.event.mode().unwrap_or(Mode::Exclusive)
    }

    /// A wait that begins at `start_ns`, as far as this event knows it.
    fn wait(&self, start_ns: i64) -> Wait {
        Wait {
            lock: self.lock,
            task: self.task,
            mode: self.mode(),
            start_ns,
            end_ns: start_ns,
            stack: self.event.stack(),
            outcome: Outcome::OpenAtEnd,
            wait_ns: 0,
            gap_ns: None,
            blocked_ns: None,
            runq_ns: None,
            owner: None,
            waker: None,
            waker_stack: None,
            charge: Charge::Unknown,
        }
    }
}

impl LockState {
    /// Becomes the state of a lock on which nothing is open. What was allocated stays so.
    pub(super) fn begin(&mut self, lock: LockId, rest: Rest, measured: bool) {
        let Rest { now_ns, last_owner, whole } = rest;
        let (mut holds, mut waits) = (std::mem::take(&mut self.holds), std::mem::take(&mut self.waits));
        let mut ended = std::mem::take(&mut self.ended);
        holds.clear();
        waits.clear();
        ended.clear();
        let (lock, fresh, own_waits, gap_ns) = (Some(lock), false, 0, 0);
        *self =
            Self { lock, measured, now_ns, fresh, holds, waits, ended, own_waits, gap_ns, last_owner, whole };
    }

    /// What is left of it when nothing is open; `None` while something is.
    pub(super) fn rest(&self) -> Option<Rest> {
        let idle = self.holds.is_empty() && self.waits.is_empty() && self.ended.is_empty();
        let Self { now_ns, last_owner, whole, .. } = *self;
        idle.then_some(Rest { now_ns, last_owner, whole })
    }

    pub(super) fn init(&mut self) {
        self.whole = true;
    }

    pub(super) fn wait<E: EventRow, S: Sink>(&mut self, at: &mut At<'_, E, S>) {
        if self.waits.iter().any(|open| open.wait.task == at.task) {
            return;
        }
        at.counts.waits_begun += 1;
        let mut wait = at.wait(self.now_ns);
        wait.owner = at.event.peer_task();
        if self.measured {
            self.fresh = true;
            self.own_waits += usize::from(self.is_owner(at.task));
        } else {
            at.counts.unmeasured_waits += 1;
        }
        at.sink.wait_begins(&wait);
        self.waits.push(OpenWait { wait, gap_from_ns: self.gap_ns, run: None });
    }

    pub(super) fn acquire<E: EventRow, S: Sink>(&mut self, at: &mut At<'_, E, S>) {
        let waited = self.end_wait(at, Outcome::Acquired);
        let hold = Hold {
            lock: at.lock,
            task: at.task,
            mode: at.mode(),
            start_ns: at.event.ts_ns(),
            end_ns: at.event.ts_ns(),
            stack: at.event.stack(),
            contended: waited.contended,
            wait_ns: waited.wait_ns,
            gap_ns: waited.gap_ns,
            blocked_ns: at.event.blocked_ns().filter(|_| waited.contended),
            runq_ns: at.event.runq_ns().filter(|_| waited.contended),
            waits_begun: 0,
            wait_caused_ns: 0,
            max_waiters: 0,
            owner_changed: false,
            acquisitions: 1,
            recursions: 0,
            released_by: None,
            state: HoldState::AcquisitionOnly,
        };
        if !at.rules.measures(at.lock, hold.mode) {
            at.sink.acquired(&hold);
            return at.sink.hold(&hold);
        }
        let point = at.rules.point(at.lock, at.event.stack());
        let excludes = at.rules.excludes(at.lock, hold.mode);
        self.forget_superseded(at);
        if let Some(open) = self.holds.iter_mut().rev().find(|open| open.is_reentered_by(&hold, point)) {
            open.depth += 1;
            if excludes {
                open.hold.recursions += 1;
            } else {
                open.hold.acquisitions += 1;
                at.sink.acquired(&open.hold);
            }
            return;
        }
        at.sink.acquired(&hold);
        let (since_ns, whole) = (self.now_ns, self.whole);
        let (superseded, waiters, depth) = (false, 0, 1);
        self.holds.push(OpenHold { hold, since_ns, excludes, superseded, waiters, point, depth, whole });
        self.fresh = true;
    }

    pub(super) fn abandon<E: EventRow, S: Sink>(&mut self, at: &mut At<'_, E, S>) {
        let outcome = Outcome::Abandoned(at.event.errno());
        self.end_wait(at, outcome);
    }

    pub(super) fn release<E: EventRow, S: Sink>(&mut self, at: &mut At<'_, E, S>) {
        if !at.rules.measures(at.lock, at.mode()) {
            return;
        }
        let Some(index) = self.released(at.task, at.event.mode()) else {
            at.counts.unpaired_releases += 1;
            return;
        };
        self.holds[index].depth -= 1;
        if self.holds[index].depth > 0 {
            return;
        }
        let open = &mut self.holds[index];
        let owner = open.hold.task;
        if owner == at.task {
            self.whole |= open.excludes && !open.superseded;
        } else {
            open.hold.released_by = Some(at.task);
            at.counts.hand_overs += 1;
        }
        complete(&mut open.hold, at.event.ts_ns(), at.counts, at.sink);
        self.holds.remove(index);
        if self.own_waits > 0 && self.is_waiting(owner) && !self.is_owner(owner) {
            self.own_waits -= 1;
        }
    }

    /// Which hold a release by `task` ends.
    fn released(&self, task: TaskId, mode: Option<Mode>) -> Option<usize> {
        let of_mode = |open: &OpenHold| mode.is_none_or(|mode| open.hold.mode == mode);
        let latest = |wanted: &dyn Fn(&OpenHold) -> bool| {
            self.holds.iter().rposition(|open| open.hold.task == task && wanted(open))
        };
        let handed_over =
            || self.holds.iter().position(|open| open.whole && !open.superseded && of_mode(open));
        latest(&of_mode).or_else(|| latest(&|_| true)).or_else(handed_over)
    }

    /// The end of a lock is the release of whoever holds it.
    pub(super) fn destroy(&mut self, ts_ns: i64, counts: &mut Counts, sink: &mut impl Sink) {
        self.own_waits = 0;
        for mut open in self.holds.drain(..) {
            if open.superseded {
                release_unseen(open.hold, ts_ns, counts, sink);
            } else {
                complete(&mut open.hold, ts_ns, counts, sink);
            }
        }
    }

    /// Ends everything at `end_ns`, where nothing ended by itself.
    pub(super) fn cut(
        &mut self,
        end_ns: i64,
        hold_state: HoldState,
        outcome: Outcome,
        counts: &mut Counts,
        sink: &mut impl Sink,
    ) {
        self.advance(end_ns, counts, sink);
        self.settle(counts, sink);
        for OpenHold { hold, .. } in std::mem::take(&mut self.holds) {
            sink.hold(&Hold { end_ns: end_ns.max(hold.start_ns), state: hold_state, ..hold });
        }
        for open in std::mem::take(&mut self.waits) {
            let wait = self.finished(open, counts, sink);
            sink.wait(&Wait { outcome, ..wait });
        }
    }

    /// Ends the wait of this task, if it waited, and says for how long.
    fn end_wait<E: EventRow, S: Sink>(&mut self, at: &mut At<'_, E, S>, outcome: Outcome) -> Waited {
        let event = at.event;
        let open = self.waits.iter().position(|open| open.wait.task == at.task);
        let mut wait = match open {
            Some(index) => {
                let open = self.waits.remove(index);
                if self.own_waits > 0 && self.is_owner(at.task) {
                    self.own_waits -= 1;
                }
                self.finished(open, at.counts, at.sink)
            }
            None => match event.wait_ns() {
                Some(ns) if ns <= 0 && outcome == Outcome::Acquired => {
                    return Waited { contended: false, wait_ns: Some(0), gap_ns: Some(0) };
                }
                Some(ns) if at.last_loss_ns.is_none_or(|loss| event.ts_ns().saturating_sub(ns) > loss) => {
                    // It is never charged: the holds of its begin are gone.
                    at.counts.inferred_waits += 1;
                    let ns = ns.max(0);
                    let start_ns = event.ts_ns().saturating_sub(ns);
                    Wait { end_ns: event.ts_ns(), wait_ns: ns, ..at.wait(start_ns) }
                }
                _ => {
                    at.counts.begin_unseen += 1;
                    return Waited { contended: true, wait_ns: None, gap_ns: None };
                }
            },
        };
        wait.outcome = outcome;
        wait.stack = wait.stack.or(event.stack());
        wait.blocked_ns = event.blocked_ns();
        wait.runq_ns = event.runq_ns();
        wait.waker = event.peer_task();
        wait.waker_stack = event.peer_stack();
        if self.measured && open.is_some() && wait.charge == Charge::Unknown {
            self.ended.push(wait);
        } else {
            at.sink.wait(&wait);
        }
        Waited { contended: true, wait_ns: Some(wait.wait_ns), gap_ns: wait.gap_ns }
    }

    /// The task acquires a lock that somebody else had since its own hold: that hold ended unseen.
    fn forget_superseded<E: EventRow, S: Sink>(&mut self, at: &mut At<'_, E, S>) {
        let stale = |open: &mut OpenHold| open.superseded && open.hold.task == at.task;
        for OpenHold { hold, .. } in self.holds.extract_if(.., stale) {
            release_unseen(hold, at.event.ts_ns(), at.counts, at.sink);
        }
    }

    fn is_owner(&self, task: TaskId) -> bool {
        self.holds.iter().any(|open| open.hold.task == task)
    }

    fn is_waiting(&self, task: TaskId) -> bool {
        self.waits.iter().any(|open| open.wait.task == task)
    }
}

impl OpenHold {
    /// Whether `hold` is no hold of its own but one more acquisition within this one.
    fn is_reentered_by(&self, hold: &Hold, point: Option<i64>) -> bool {
        let same = self.hold.task == hold.task && self.hold.mode == hold.mode;
        same && (self.excludes || self.point == point)
    }
}

/// Whether and how long a task waited for what it now has, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waited {
    contended: bool,
    wait_ns: Option<i64>,
    gap_ns: Option<i64>,
}

/// The hold ends as it should, and leaves. A hold is large, so it stays where it is for that.
fn complete(hold: &mut Hold, end_ns: i64, counts: &mut Counts, sink: &mut impl Sink) {
    if end_ns < hold.start_ns {
        counts.backwards += 1;
        hold.end_ns = hold.start_ns;
        hold.state = HoldState::Backwards;
    } else {
        hold.end_ns = end_ns;
        hold.state = HoldState::Complete;
    }
    sink.hold(hold);
}

fn release_unseen(hold: Hold, end_ns: i64, counts: &mut Counts, sink: &mut impl Sink) {
    counts.releases_unseen += 1;
    sink.hold(&Hold { end_ns: end_ns.max(hold.start_ns), state: HoldState::ReleaseUnseen, ..hold });
}
