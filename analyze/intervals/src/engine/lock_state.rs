//! The open holds and waits of one lock, and what each event does to them.
//!
//! The rules follow FreeBSD's LOCK_PROFILING where it defines any, so that its columns agree with FreeBSD's:
//!
//! * The first `wait` of a task opens its wait; further ones change nothing.
//! * Recursion of an exclusive lock by its owner makes one hold, from the first acquire to the last release.
//! * If an owner of a shared lock acquires it again at the same site, its hold goes on. At another site it
//!   opens a second hold; a release ends the latest hold of its mode.
//! * A release by a task without a hold ends the oldest hold of another task, if all holds of the lock were
//!   seen to begin: the lock was initialised in the trace, or an owner released an exclusive hold. Otherwise
//!   the release belongs to a hold from before the trace.
//!
//! [`charge`](super::charge) decides which hold a wait is charged to.

use trace_format::{CallKind, EventRow, LockId, Mode, StackId, TaskId};

use super::{
    counts::Counts,
    deadlock::{self, OpenLocks},
    ends::History,
    open_list::{Keyed, OpenList},
    rules::{EndsBy, LockRule, Rules},
};
use crate::items::{Charge, Hold, HoldState, Item, Outcome, Share, Sink, Wait, started};

/// The state of a lock on which nothing is open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Idle {
    /// The time of its last event.
    pub(super) now_ns: i64,
    /// The owner of the last hold that lasted longer than the nanosecond in which it began.
    pub(super) last_owner: Option<TaskId>,
    /// Whether the start of every hold was seen.
    pub(super) complete: bool,
}

impl Idle {
    /// A lock of which no event was seen.
    pub(super) const UNSEEN: Self = Self { now_ns: i64::MIN, last_owner: None, complete: false };
}

/// The state of a lock on which something is open.
#[derive(Debug, Default)]
pub(super) struct LockState {
    pub(super) lock: Option<LockId>,
    pub(super) rule: LockRule,
    /// The time up to which waits are charged.
    pub(super) now_ns: i64,
    /// Whether a wait or a hold began at `now_ns`, whose events are not all known yet.
    pub(super) fresh: bool,
    /// The only hold, as long as it is simple.
    pub(super) simple: Option<SimpleStart>,
    /// All other open holds, oldest first.
    pub(super) holds: OpenList<OpenHold>,
    /// Open waits in the order of their begin; those without a charge are last.
    pub(super) waits: OpenList<OpenWait>,
    /// Waits that ended before they had a charge.
    pub(super) ended: Vec<Wait>,
    /// The number of waits of tasks that have a hold.
    pub(super) own_waits: usize,
    /// If shares are sent: the tasks whose waits have shares of their own, and the number of shared waits of
    /// all other tasks.
    pub(super) apart: Vec<TaskId>,
    pub(super) shared_waits: usize,
    /// The time during which the waits of tasks without a hold were charged to no hold.
    pub(super) gap_ns: i64,
    /// As in [`Idle`].
    pub(super) last_owner: Option<TaskId>,
    /// As in [`Idle`].
    pub(super) complete: bool,
}

/// The start of a hold that is simple so far: no other hold of the lock is open, and the lock has had no event
/// since this hold began.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimpleStart {
    pub(super) task: TaskId,
    pub(super) stack: Option<StackId>,
}

impl SimpleStart {
    /// Returns the hold as a search for deadlocks knows it.
    fn open(self, lock: LockId) -> deadlock::OpenHold {
        let Self { task, stack } = self;
        deadlock::OpenHold { lock, task, mode: Mode::Exclusive, stack, excludes: true }
    }
}

#[derive(Debug)]
pub(super) struct OpenHold {
    pub(super) hold: Hold,
    /// Its begin, on the clock of the lock.
    pub(super) since_ns: i64,
    /// Whether it can only begin when all others have ended.
    pub(super) excludes: bool,
    /// Whether another task has since got the lock in a way that excludes this hold: its release is late or
    /// missing.
    pub(super) superseded: bool,
    /// Acquires minus releases.
    depth: i64,
    /// Whether the start of every hold was seen when it began.
    complete: bool,
}

#[derive(Debug)]
pub(super) struct OpenWait {
    pub(super) wait: Wait,
    /// The lock's `gap_ns` at the start of the wait, minus the gap time of this wait alone.
    pub(super) gap_from_ns: i64,
    /// The share that is not emitted yet, if the wait has shares of its own.
    pub(super) run: Option<Share>,
    /// Whether it ends at some time by itself.
    is_timed: bool,
}

/// One event and its context.
pub(super) struct Step<'a, E: EventRow, S: Sink> {
    pub(super) lock: LockId,
    pub(super) task: TaskId,
    pub(super) event: &'a E,
    pub(super) rules: &'a Rules,
    pub(super) last_loss_ns: Option<i64>,
    pub(super) counts: &'a mut Counts,
    pub(super) sink: &'a mut S,
}

impl<E: EventRow, S: Sink> Step<'_, E, S> {
    #[inline]
    fn acquired(&mut self, hold: &Hold) {
        if self.sink.needs().acquired {
            self.sink.push(Item::Acquired(hold));
        }
    }

    fn mode(&self) -> Mode {
        self.event.mode().unwrap_or(Mode::Exclusive)
    }

    /// Returns a hold that begins with this event, without an end.
    #[inline(always)]
    fn hold(&self, waited: Waited) -> Hold {
        Hold {
            mode: self.mode(),
            contended: waited.contended,
            wait_ns: waited.wait_ns,
            gap_ns: waited.gap_ns,
            blocked_ns: self.event.blocked_ns().filter(|_| waited.contended),
            runq_ns: self.event.runq_ns().filter(|_| waited.contended),
            ..started(self.lock, self.task, self.event.ts_ns(), self.event.stack())
        }
    }

    /// Returns a wait that begins at `start_ns`, with the fields of this event.
    fn wait(&self, start_ns: i64) -> Wait {
        Wait {
            lock: self.lock,
            task: self.task,
            mode: self.mode(),
            start_ns,
            start_seen: true,
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
    /// Becomes the state of an idle lock. Most acquisitions find their lock idle, so this sets only what
    /// differs between locks: nothing is open on a state that is free.
    #[inline]
    pub(super) fn begin(&mut self, lock: LockId, idle: Idle, rules: &Rules) {
        debug_assert!(self.idle().is_some(), "a state in use is not free");
        self.lock = Some(lock);
        self.rule = rules.of(lock);
        self.fresh = false;
        self.own_waits = 0;
        self.gap_ns = 0;
        Idle { now_ns: self.now_ns, last_owner: self.last_owner, complete: self.complete } = idle;
    }

    /// Returns the state of the idle lock; `None` while anything is open.
    pub(super) fn idle(&self) -> Option<Idle> {
        let is_idle =
            self.simple.is_none() && self.holds.is_empty() && self.waits.is_empty() && self.ended.is_empty();
        let Self { now_ns, last_owner, complete, .. } = *self;
        is_idle.then_some(Idle { now_ns, last_owner, complete })
    }

    /// Whether no task has the lock: the start of every hold was seen, and no hold is open.
    pub(super) fn is_free(&self) -> bool {
        self.complete
            && self.rule.measures(Mode::Shared)
            && self.holds.counting().all(|(_, open)| open.superseded)
    }

    pub(super) fn init(&mut self) {
        self.complete = true;
    }

    pub(super) fn wait<E: EventRow, S: Sink>(&mut self, step: &mut Step<'_, E, S>) {
        if self.waits.has(step.task) {
            return;
        }
        step.counts.waits_begun += 1;
        let mut wait = step.wait(self.now_ns);
        wait.owner = step.event.peer_task();
        if self.rule.measures_holds {
            self.fresh = true;
            self.own_waits += usize::from(self.is_owner(step.task));
        } else {
            step.counts.unmeasured_waits += 1;
        }
        step.sink.push(Item::WaitBegins(&wait));
        self.shared_waits += usize::from(wait.mode == Mode::Shared);
        let is_timed = step.event.call() == Some(CallKind::Timed);
        self.waits.push(OpenWait { wait, gap_from_ns: self.gap_ns, run: None, is_timed });
    }

    #[inline]
    pub(super) fn acquire<E: EventRow, S: Sink>(&mut self, step: &mut Step<'_, E, S>) {
        if !self.begin_simple(step.lock, step.task, step.event, step.sink) {
            self.acquire_any(step);
        }
    }

    fn acquire_any<E: EventRow, S: Sink>(&mut self, step: &mut Step<'_, E, S>) {
        let waited = self.end_wait(step, Outcome::Acquired);
        if !self.rule.measures(step.mode()) {
            let hold = step.hold(waited);
            step.acquired(&hold);
            return step.sink.push(Item::Hold(&hold));
        }
        let excludes = self.rule.excludes(step.mode());
        if !self.holds.is_empty() {
            self.forget_superseded(step);
        }
        let rule = self.rule;
        let mut own = self.holds.of(step.task);
        let reentered =
            own.find(|at| self.holds.get(*at).is_some_and(|open| open.is_reentered_by(step, rule)));
        drop(own);
        if let Some(open) = reentered.and_then(|at| self.holds.get_mut(at)) {
            open.depth += 1;
            if excludes {
                open.hold.recursions += 1;
            } else {
                open.hold.acquisitions += 1;
                open.hold.end_ns = step.event.ts_ns();
                step.acquired(&open.hold);
            }
            return;
        }
        self.fresh = true;
        // A hold is large: it is made where it stays.
        self.holds.push(OpenHold::new(step.hold(waited), self.now_ns, excludes, self.complete));
        if let Some(open) = self.holds.iter().next_back() {
            step.acquired(&open.hold);
        }
    }

    pub(super) fn abandon<E: EventRow, S: Sink>(&mut self, step: &mut Step<'_, E, S>) {
        let outcome = Outcome::Abandoned(step.event.errno());
        self.end_wait(step, outcome);
    }

    pub(super) fn release<E: EventRow, S: Sink>(&mut self, step: &mut Step<'_, E, S>) {
        if !self.rule.measures(step.mode()) {
            return;
        }
        let found = self.released(step.task, step.event.mode());
        let Some((index, open)) = found.and_then(|at| Some((at, self.holds.get_mut(at)?))) else {
            step.counts.unpaired_releases += 1;
            return;
        };
        open.depth -= 1;
        if open.depth > 0 {
            return;
        }
        let owner = open.hold.task;
        if owner == step.task {
            self.complete |= open.excludes && !open.superseded;
        } else {
            open.hold.released_by = Some(step.task);
            step.counts.hand_overs += 1;
        }
        complete(&mut open.hold, step.event.ts_ns(), step.counts, step.sink);
        self.holds.discard(index);
        if self.own_waits > 0 && self.is_waiting(owner) && !self.is_owner(owner) {
            self.own_waits -= 1;
        }
    }

    /// Returns the index of the hold that a release by `task` ends.
    fn released(&self, task: TaskId, mode: Option<Mode>) -> Option<usize> {
        let of_mode = |open: &OpenHold| mode.is_none_or(|mode| open.hold.mode == mode);
        let own = self.holds.of(task).find(|at| self.holds.get(*at).is_some_and(of_mode));
        let own_of_any_mode = || self.holds.of(task).next();
        let is_handed_over = |open: &OpenHold| open.complete && !open.superseded && of_mode(open);
        let handed_over = || self.holds.counting().find(|(_, open)| is_handed_over(open)).map(|(at, _)| at);
        own.or_else(own_of_any_mode).or_else(handed_over)
    }

    /// Ends all holds: destroying a lock releases it.
    pub(super) fn destroy(&mut self, ts_ns: i64, counts: &mut Counts, sink: &mut impl Sink) {
        self.own_waits = 0;
        for mut open in self.holds.take() {
            if open.superseded {
                release_unseen(open.hold, ts_ns, counts, sink);
            } else {
                complete(&mut open.hold, ts_ns, counts, sink);
            }
        }
    }

    /// Adds the open holds that are not superseded, and the open waits.
    pub(super) fn add_open(&self, open: &mut OpenLocks, history: &History) {
        let Some(lock) = self.lock else { return };
        let of_open = |OpenWait { wait, is_timed, .. }: &OpenWait| {
            let (task, mode, stack, start_ns) = (wait.task, wait.mode, wait.stack, wait.start_ns);
            let (excludes, is_timed) = (self.rule.excludes(mode), *is_timed);
            deadlock::OpenWait { lock, task, mode, stack, start_ns, excludes, is_timed }
        };
        for waiter in self.waits.iter().filter(|waiter| !waiter.is_timed) {
            let wait = of_open(waiter);
            match self.rule.ends_by {
                Some(EndsBy::Exit) => open.joins.push((wait, waiter.wait.owner)),
                Some(EndsBy::Signal) => {
                    open.conditions.push((wait, history.signallers.get(&lock).cloned().unwrap_or_default()));
                }
                None if !self.rule.measures_holds => open.idle.push(wait),
                None => {}
            }
        }
        if !self.rule.measures_holds {
            return;
        }
        let is_new = |open: &OpenHold| self.fresh && open.since_ns >= self.now_ns;
        let new = New::of(self.holds.iter().filter(|open| is_new(open)));
        let is_open = |open: &&OpenHold| !open.superseded && !new.supersede(open, is_new(open));
        for OpenHold { hold, excludes, .. } in self.holds.iter().filter(is_open) {
            let (task, mode, stack, excludes) = (hold.task, hold.mode, hold.stack, *excludes);
            open.holds.push(deadlock::OpenHold { lock, task, mode, stack, excludes });
        }
        open.holds.extend(self.simple.map(|simple| simple.open(lock)));
        open.waits.extend(self.waits.iter().map(of_open));
    }

    /// Ends everything at `end_ns`, with these incomplete states.
    pub(super) fn cut(
        &mut self,
        end_ns: i64,
        hold_state: HoldState,
        outcome: Outcome,
        counts: &mut Counts,
        sink: &mut impl Sink,
    ) {
        self.unfold_simple();
        self.advance(end_ns, counts, sink);
        self.settle(counts, sink);
        for OpenHold { hold, .. } in self.holds.take() {
            let hold = Hold { end_ns: end_ns.max(hold.start_ns), state: hold_state, ..hold };
            sink.push(Item::Hold(&hold));
        }
        let waits: Vec<OpenWait> = self.waits.take().collect();
        for open in waits {
            let wait = self.finished(open, counts, sink);
            sink.push(Item::Wait(&Wait { outcome, ..wait }));
        }
    }

    /// Ends the wait of this task, if there is one, and returns its length.
    #[inline]
    fn end_wait<E: EventRow, S: Sink>(&mut self, step: &mut Step<'_, E, S>, outcome: Outcome) -> Waited {
        let open = self.waits.of(step.task).next();
        let had_none = open.is_none() && outcome == Outcome::Acquired;
        if had_none && step.event.wait_ns().is_some_and(|ns| ns <= 0) {
            return Waited { contended: false, wait_ns: Some(0), gap_ns: Some(0) };
        }
        self.end_some_wait(step, outcome, open)
    }

    /// Ends the wait with this index, or one whose begin was not seen, and returns its length.
    fn end_some_wait<E: EventRow, S: Sink>(
        &mut self,
        step: &mut Step<'_, E, S>,
        outcome: Outcome,
        open: Option<usize>,
    ) -> Waited {
        let event = step.event;
        let mut wait = match open.and_then(|at| self.waits.remove(at)) {
            Some(open) => {
                if self.own_waits > 0 && self.is_owner(step.task) {
                    self.own_waits -= 1;
                }
                if open.run.is_some() {
                    self.apart.retain(|task| *task != step.task);
                } else {
                    self.shared_waits -= usize::from(open.wait.mode == Mode::Shared);
                }
                self.finished(open, step.counts, step.sink)
            }
            None => match event.wait_ns() {
                Some(ns) if step.last_loss_ns.is_none_or(|loss| event.ts_ns().saturating_sub(ns) > loss) => {
                    // It is never charged: the holds at its begin are no longer known.
                    step.counts.inferred_waits += 1;
                    let ns = ns.max(0);
                    let start_ns = event.ts_ns().saturating_sub(ns);
                    Wait { start_seen: false, end_ns: event.ts_ns(), wait_ns: ns, ..step.wait(start_ns) }
                }
                _ => {
                    step.counts.begin_unseen += 1;
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
        if self.rule.measures_holds && open.is_some() && wait.charge == Charge::Unknown {
            self.ended.push(wait);
        } else {
            step.sink.push(Item::Wait(&wait));
        }
        Waited { contended: true, wait_ns: Some(wait.wait_ns), gap_ns: wait.gap_ns }
    }

    /// Ends holds of this task that another task has superseded: it acquires the lock again, so their release
    /// was not seen.
    fn forget_superseded<E: EventRow, S: Sink>(&mut self, step: &mut Step<'_, E, S>) {
        for OpenHold { hold, .. } in self.holds.extract(step.task, |open| open.superseded) {
            release_unseen(hold, step.event.ts_ns(), step.counts, step.sink);
        }
    }

    fn is_owner(&self, task: TaskId) -> bool {
        self.holds.has(task)
    }

    /// Whether a task has a hold, simple or not.
    pub(super) fn has_hold_of(&self, task: Option<TaskId>) -> bool {
        self.simple.is_some_and(|simple| Some(simple.task) == task)
            || task.is_some_and(|task| self.is_owner(task))
    }

    pub(super) fn is_waiting(&self, task: TaskId) -> bool {
        self.waits.has(task)
    }
}

impl Keyed for OpenHold {
    type Key = TaskId;

    fn key(&self) -> TaskId {
        self.hold.task
    }
}

impl Keyed for OpenWait {
    type Key = TaskId;

    fn key(&self) -> TaskId {
        self.wait.task
    }
}

/// The holds that began at the present time, which supersede older ones. Only [`settle`](LockState::settle)
/// marks those.
#[derive(Default)]
struct New {
    /// The smallest and the largest task of all of them, and of those that exclude others.
    any: Option<(TaskId, TaskId)>,
    excluding: Option<(TaskId, TaskId)>,
}

impl New {
    fn of<'a>(new: impl Iterator<Item = &'a OpenHold>) -> Self {
        let with = |tasks: Option<(TaskId, TaskId)>, task: TaskId| {
            let (first, last) = tasks.unwrap_or((task, task));
            Some((first.min(task), last.max(task)))
        };
        new.fold(Self::default(), |Self { any, excluding }, OpenHold { hold, excludes, .. }| Self {
            any: with(any, hold.task),
            excluding: if *excludes { with(excluding, hold.task) } else { excluding },
        })
    }

    /// Whether one of them supersedes a hold.
    fn supersede(&self, OpenHold { hold, excludes, .. }: &OpenHold, is_new: bool) -> bool {
        let others = if *excludes { self.any } else { self.excluding };
        // Of holds that began in the same nanosecond, the one with the smaller task id is the older.
        let is_other = |(first, last): (TaskId, TaskId)| last > hold.task || !is_new && first < hold.task;
        others.is_some_and(is_other)
    }
}

impl OpenHold {
    /// A hold that begins. `complete` says whether all holds of its lock are recorded.
    #[inline(always)]
    pub(super) fn new(hold: Hold, since_ns: i64, excludes: bool, complete: bool) -> Self {
        Self { hold, since_ns, excludes, superseded: false, depth: 1, complete }
    }

    /// Whether the acquisition in `step` is a further one within this hold.
    fn is_reentered_by<E: EventRow, S: Sink>(&self, step: &Step<'_, E, S>, rule: LockRule) -> bool {
        let point = |stack| step.rules.point(rule, stack);
        self.hold.task == step.task
            && self.hold.mode == step.mode()
            && (self.excludes || point(self.hold.stack) == point(step.event.stack()))
    }
}

/// The wait before an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waited {
    contended: bool,
    wait_ns: Option<i64>,
    gap_ns: Option<i64>,
}

/// Emits a hold that ends with a release. Takes a reference because a hold is large.
fn complete(hold: &mut Hold, end_ns: i64, counts: &mut Counts, sink: &mut impl Sink) {
    if end_ns < hold.start_ns {
        counts.backwards += 1;
        hold.end_ns = hold.start_ns;
        hold.state = HoldState::Backwards;
    } else {
        hold.end_ns = end_ns;
        hold.state = HoldState::Complete;
    }
    sink.push(Item::Hold(hold));
}

fn release_unseen(hold: Hold, end_ns: i64, counts: &mut Counts, sink: &mut impl Sink) {
    counts.releases_unseen += 1;
    let hold = Hold { end_ns: end_ns.max(hold.start_ns), state: HoldState::ReleaseUnseen, ..hold };
    sink.push(Item::Hold(&hold));
}
