//! A slow and obviously correct model of holds, waits and blame.
//!
//! It keeps the whole history, searches it for the end of each hold and wait, and decides for every
//! nanosecond of every wait which hold it is charged to. It shares only the definition with the engine.

#![allow(clippy::unwrap_used, reason = "only tests call this")]

use crate::testing::Intervals;
use std::collections::BTreeMap;

use trace_format::{Event, EventKind, LockId, LockKind, Mode, TaskId};

use super::{Counts, histories};
use crate::items::{Charge, Hold, HoldState, Outcome, Wait};

/// Charged ns by lock, waiting task, and owner and begin of the hold; `None` for a hand-off gap.
pub type Shares = BTreeMap<(LockId, TaskId, Option<(TaskId, i64)>), i64>;

/// A hold of the model: the engine's data for it, and the reading of the lock's clock at its begin and end.
#[derive(Clone, Debug)]
struct ModelHold {
    hold: Hold,
    point: Option<u32>,
    since: i64,
    until: Option<i64>,
    depth: i64,
    whole: bool,
    /// The wait that led to it.
    waited: Option<usize>,
}

#[derive(Clone, Debug)]
struct ModelWait {
    wait: Wait,
    open: bool,
    /// For each nanosecond of it, the hold that it is charged to, and whether the lock was free then.
    payers: Vec<(Option<usize>, bool)>,
    /// For each nanosecond of it, whether the oldest open hold of the lock is one of the waiting task itself
    /// and excludes all others.
    own: Vec<bool>,
}

/// The model after the whole history.
#[derive(Clone, Default)]
pub struct Model {
    holds: Vec<ModelHold>,
    waits: Vec<ModelWait>,
    counts: Counts,
    pub shares: Shares,
}

/// The events between two losses, which are independent of all others.
struct Segment<'a> {
    events: &'a [Event],
    loss_ns: Option<i64>,
    first_hold: usize,
    first_wait: usize,
    /// The time since which the start of every hold of a lock is seen.
    whole: BTreeMap<LockId, i64>,
}

impl Segment<'_> {
    /// The latest time that any event of the lock had, up to this row.
    fn clock(&self, lock: LockId, row: usize) -> i64 {
        let of_lock = self.events[..=row].iter().filter(|event| event.lock == Some(lock));
        of_lock.map(|event| event.ts_ns).max().unwrap()
    }
}

/// Whether holds of this mode are recorded at all.
fn measures(lock: LockId, mode: Mode) -> bool {
    match histories::kind(lock) {
        LockKind::Mutex | LockKind::CondVar => false,
        LockKind::PercpuRwSem => mode == Mode::Exclusive,
        _ => true,
    }
}

fn excludes(hold: &Hold) -> bool {
    hold.mode == Mode::Exclusive && histories::kind(hold.lock) != LockKind::Semaphore
}

impl Model {
    pub fn of(events: &[Event], end_ns: i64) -> Self {
        let mut model = Self::default();
        let mut begin: usize = 0;
        for (row, event) in events.iter().enumerate() {
            if event.kind == EventKind::Lost {
                model.counts.losses += 1;
                let end = (event.ts_ns, HoldState::CutByLoss, Outcome::CutByLoss);
                model.segment(events, begin..row, end);
                begin = row + 1;
            }
        }
        model.segment(events, begin..events.len(), (end_ns, HoldState::OpenAtEnd, Outcome::OpenAtEnd));
        model
    }

    fn segment(
        &mut self,
        events: &[Event],
        rows: std::ops::Range<usize>,
        (end_ns, state, outcome): (i64, HoldState, Outcome),
    ) {
        let mut segment = Segment {
            loss_ns: rows.start.checked_sub(1).map(|row| events[row].ts_ns),
            events: &events[rows],
            first_hold: self.holds.len(),
            first_wait: self.waits.len(),
            whole: BTreeMap::new(),
        };
        for row in 0..segment.events.len() {
            self.row(row, &mut segment);
        }
        for held in &mut self.holds[segment.first_hold..] {
            if held.until.is_none() && held.hold.state != HoldState::AcquisitionOnly {
                (held.hold.end_ns, held.hold.state) = (end_ns.max(held.hold.start_ns), state);
            }
        }
        for waiting in &mut self.waits[segment.first_wait..] {
            if waiting.open {
                let last = segment.clock(waiting.wait.lock, segment.events.len() - 1);
                (waiting.wait.end_ns, waiting.wait.outcome) = (end_ns.max(last), outcome);
            }
        }
        self.count_waits(&segment);
        self.blame(&segment);
    }

    fn row(&mut self, row: usize, segment: &mut Segment<'_>) {
        let event = &segment.events[row];
        let (Some(lock), Some(task)) = (event.lock, event.task) else { return };
        let mode = event.mode.unwrap_or(Mode::Exclusive);
        let now = segment.clock(lock, row);
        match event.kind {
            EventKind::Init => {
                segment.whole.entry(lock).or_insert(now);
            }
            EventKind::Destroy => {
                for at in segment.first_hold..self.holds.len() {
                    if self.is_open(at) && self.holds[at].hold.lock == lock {
                        let unseen = self.superseded(segment, at, now - 1);
                        let seen = seen_state(&self.holds[at].hold, event.ts_ns);
                        let state = if unseen { HoldState::ReleaseUnseen } else { seen };
                        end(&mut self.holds[at], event.ts_ns, now, state);
                    }
                }
            }
            EventKind::TryFail => self.counts.try_failures += 1,
            EventKind::Wait if self.waits_at(segment, lock, task).is_none() => {
                self.counts.waits_begun += 1;
                let measured = measures(lock, Mode::Exclusive);
                self.counts.unmeasured_waits += u64::from(!measured);
                let wait = Wait { owner: event.peer_task, ..new_wait(event, now) };
                self.waits.push(ModelWait { wait, open: true, payers: Vec::new(), own: Vec::new() });
            }
            EventKind::Acquire | EventKind::Abandon => {
                if let Some((hold, waited)) = self.end_wait(segment, event, now)
                    && event.kind == EventKind::Acquire
                {
                    self.acquire(segment, hold, waited, now);
                }
            }
            EventKind::Release if measures(lock, mode) => self.release(segment, event, now),
            _ => {}
        }
    }

    fn waits_at(&self, segment: &Segment<'_>, lock: LockId, task: TaskId) -> Option<usize> {
        let waits = |w: &ModelWait| w.open && w.wait.lock == lock && w.wait.task == task;
        self.waits[segment.first_wait..].iter().position(waits).map(|at| at + segment.first_wait)
    }

    fn is_open(&self, at: usize) -> bool {
        self.holds[at].until.is_none() && self.holds[at].hold.state != HoldState::AcquisitionOnly
    }

    /// Ends the wait that this event ends, and returns the hold that it begins, if it begins one.
    fn end_wait(&mut self, segment: &Segment<'_>, event: &Event, now: i64) -> Option<(Hold, Option<usize>)> {
        let (lock, task) = (event.lock?, event.task?);
        let acquired = event.kind == EventKind::Acquire;
        let outcome = if acquired { Outcome::Acquired } else { Outcome::Abandoned(event.errno) };
        let known = |ns: i64| segment.loss_ns.is_none_or(|loss| event.ts_ns - ns > loss);
        let waited = self.waits_at(segment, lock, task);
        let (contended, wait_ns) = match (waited, event.wait_ns) {
            (Some(at), _) => {
                let waiting = &mut self.waits[at];
                waiting.open = false;
                waiting.wait = ended(waiting.wait, event, now, outcome);
                (true, Some(now - waiting.wait.start_ns))
            }
            (None, Some(0)) if acquired => (false, Some(0)),
            (None, Some(ns)) if known(ns) => {
                self.counts.inferred_waits += 1;
                let wait = Wait { start_seen: false, ..new_wait(event, event.ts_ns - ns) };
                let wait = ended(wait, event, event.ts_ns, outcome);
                self.waits.push(ModelWait { wait, open: false, payers: Vec::new(), own: Vec::new() });
                (true, Some(ns))
            }
            (None, _) => {
                self.counts.begin_unseen += 1;
                (true, None)
            }
        };
        let hold = Hold {
            lock,
            task,
            mode: event.mode.unwrap_or(Mode::Exclusive),
            start_ns: event.ts_ns,
            end_ns: event.ts_ns,
            stack: event.stack,
            contended,
            wait_ns,
            gap_ns: if contended { None } else { Some(0) },
            blocked_ns: event.blocked_ns.filter(|_| contended),
            runq_ns: event.runq_ns.filter(|_| contended),
            waits_begun: 0,
            wait_caused_ns: 0,
            max_waiters: 0,
            owner_changed: false,
            acquisitions: 1,
            recursions: 0,
            released_by: None,
            state: HoldState::OpenAtEnd,
        };
        Some((hold, waited))
    }

    fn acquire(&mut self, segment: &Segment<'_>, mut hold: Hold, waited: Option<usize>, now: i64) {
        let point = hold.stack.map(|stack| histories::POINTS[stack.0 as usize]);
        if !measures(hold.lock, hold.mode) {
            hold.state = HoldState::AcquisitionOnly;
        } else {
            let mine = |held: &ModelHold| held.hold.lock == hold.lock && held.hold.task == hold.task;
            for at in segment.first_hold..self.holds.len() {
                if self.is_open(at) && mine(&self.holds[at]) && self.superseded(segment, at, now - 1) {
                    end(&mut self.holds[at], hold.start_ns, now, HoldState::ReleaseUnseen);
                }
            }
            let again = (segment.first_hold..self.holds.len()).rev().find(|at| {
                let held = &self.holds[*at];
                let same = mine(held) && held.hold.mode == hold.mode;
                self.is_open(*at) && same && (excludes(&hold) || held.point == point)
            });
            if let Some(at) = again {
                self.holds[at].depth += 1;
                self.holds[at].hold.recursions += i64::from(excludes(&hold));
                self.holds[at].hold.acquisitions += i64::from(!excludes(&hold));
                return;
            }
        }
        let whole = segment.whole.contains_key(&hold.lock);
        self.holds.push(ModelHold { hold, point, since: now, until: None, depth: 1, whole, waited });
    }

    fn release(&mut self, segment: &mut Segment<'_>, event: &Event, now: i64) {
        let open: Vec<usize> = (segment.first_hold..self.holds.len())
            .filter(|at| self.is_open(*at) && Some(self.holds[*at].hold.lock) == event.lock)
            .collect();
        let mine = |at: &&usize| Some(self.holds[**at].hold.task) == event.task;
        let of_mode = |at: &&usize| event.mode.is_none_or(|mode| self.holds[**at].hold.mode == mode);
        let latest_of_mode = open.iter().rev().find(|at| mine(at) && of_mode(at));
        let latest = || open.iter().rev().find(mine);
        let handed_over = || {
            let others = open.iter().filter(|at| of_mode(at) && self.holds[**at].whole);
            others
                .filter(|at| !self.superseded(segment, **at, now - 1))
                .min_by_key(|at| self.age(segment, **at, now))
        };
        let Some(at) = latest_of_mode.or_else(latest).or_else(handed_over).copied() else {
            self.counts.unpaired_releases += 1;
            return;
        };
        self.holds[at].depth -= 1;
        if self.holds[at].depth > 0 {
            return;
        }
        let hold = self.holds[at].hold;
        if Some(hold.task) != event.task {
            self.counts.hand_overs += 1;
            self.holds[at].hold.released_by = event.task;
        } else if excludes(&hold) && !self.superseded(segment, at, now - 1) {
            segment.whole.entry(hold.lock).or_insert(now);
        }
        end(&mut self.holds[at], event.ts_ns, now, seen_state(&hold, event.ts_ns));
    }

    /// Smaller is older: by begin, then by task. Those that begin now are in the order of rows.
    fn age(&self, segment: &Segment<'_>, at: usize, now: i64) -> (i64, i32, usize) {
        let held = &self.holds[at];
        let task = if held.since < now { held.hold.task.0 } else { 0 };
        (held.since, task, at - segment.first_hold)
    }

    /// Whether, up to and with the instant `ns`, another task began a hold that excludes this one.
    fn superseded(&self, segment: &Segment<'_>, at: usize, ns: i64) -> bool {
        self.superseded_among(&self.of_lock(segment, self.holds[at].hold.lock), at, ns)
    }

    /// The holds of a lock.
    fn of_lock(&self, segment: &Segment<'_>, lock: LockId) -> Vec<usize> {
        (segment.first_hold..self.holds.len()).filter(|at| self.holds[*at].hold.lock == lock).collect()
    }

    fn superseded_among(&self, of_lock: &[usize], at: usize, ns: i64) -> bool {
        let held = &self.holds[at];
        let key = |at: usize| (self.holds[at].since, self.holds[at].hold.task.0, at);
        of_lock.iter().copied().any(|other| {
            let later = &self.holds[other];
            let excluded = excludes(&held.hold) || excludes(&later.hold);
            let lasts = later.until.is_none_or(|until| until > later.since);
            let is_hold = later.hold.state != HoldState::AcquisitionOnly;
            let others = later.hold.lock == held.hold.lock && later.hold.task != held.hold.task;
            is_hold && others && excluded && lasts && key(other) > key(at) && later.since <= ns
        })
    }

    /// The oldest hold of another task that is open in the instant `ns`.
    fn payer(&self, of_lock: &[usize], wait: &Wait, ns: i64) -> Option<usize> {
        let open = of_lock.iter().copied().filter(|at| {
            let held = &self.holds[*at];
            let lasts = held.since <= ns && held.until.is_none_or(|until| ns < until);
            let is_hold = held.hold.state != HoldState::AcquisitionOnly;
            is_hold && lasts && held.hold.task != wait.task
        });
        open.filter(|at| !self.superseded_among(of_lock, *at, ns))
            .min_by_key(|at| (self.holds[*at].since, self.holds[*at].hold.task.0, *at))
    }

    /// Returns whether the start of every hold of the lock was seen, and no task holds it.
    fn is_free(&self, segment: &Segment<'_>, of_lock: &[usize], wait: &Wait, ns: i64) -> bool {
        let whole = segment.whole.get(&wait.lock).is_some_and(|since| *since <= ns);
        let of_nobody = Wait { task: TaskId(i32::MAX), ..*wait };
        whole && measures(wait.lock, Mode::Shared) && self.payer(of_lock, &of_nobody, ns).is_none()
    }

    /// The hold in which each wait began.
    fn count_waits(&mut self, segment: &Segment<'_>) {
        for at in segment.first_wait..self.waits.len() {
            let ModelWait { wait, .. } = self.waits[at].clone();
            if !wait.start_seen || !measures(wait.lock, Mode::Exclusive) {
                continue;
            }
            let of_lock = self.of_lock(segment, wait.lock);
            self.waits[at].wait.charge = match self.payer(&of_lock, &wait, wait.start_ns) {
                Some(at) => {
                    let hold = &mut self.holds[at].hold;
                    hold.waits_begun += 1;
                    Charge::Hold { task: hold.task, start_ns: hold.start_ns }
                }
                None => {
                    self.counts.gap_waits += 1;
                    Charge::Gap
                }
            };
        }
    }

    /// ModelTask is charged for each nanosecond of each wait.
    fn blame(&mut self, segment: &Segment<'_>) {
        let mut waiters: BTreeMap<(usize, i64), i64> = BTreeMap::new();
        for at in segment.first_wait..self.waits.len() {
            let ModelWait { mut wait, .. } = self.waits[at].clone();
            wait.wait_ns = wait.end_ns - wait.start_ns;
            if wait.start_seen && measures(wait.lock, Mode::Exclusive) {
                let mut gap_ns = 0;
                let of_lock = self.of_lock(segment, wait.lock);
                for ns in wait.start_ns..wait.end_ns {
                    let payer = self.payer(&of_lock, &wait, ns);
                    let free = self.is_free(segment, &of_lock, &wait, ns);
                    let oldest = self.payer(&of_lock, &Wait { task: TaskId(i32::MAX), ..wait }, ns);
                    let own = oldest.map(|at| &self.holds[at].hold);
                    let own = own.is_some_and(|own| own.task == wait.task && excludes(own));
                    self.waits[at].payers.push((payer, free));
                    self.waits[at].own.push(own);
                    let hold = payer.map(|at| (self.holds[at].hold.task, self.holds[at].hold.start_ns));
                    *self.shares.entry((wait.lock, wait.task, hold)).or_default() += 1;
                    match payer {
                        Some(at) => {
                            self.holds[at].hold.wait_caused_ns += 1;
                            *waiters.entry((at, ns)).or_default() += 1;
                        }
                        None => gap_ns += 1,
                    }
                }
                wait.gap_ns = Some(gap_ns);
                self.counts.waited_ns += wait.wait_ns;
                self.counts.gap_ns += gap_ns;
            }
            self.waits[at].wait = wait;
        }
        for ((at, _), waiters) in waiters {
            let hold = &mut self.holds[at].hold;
            hold.max_waiters = hold.max_waiters.max(waiters);
        }
        self.owners(segment);
        for held in &mut self.holds[segment.first_hold..] {
            if let Some(waited) = held.waited {
                held.hold.gap_ns = self.waits[waited].wait.gap_ns;
            }
        }
    }

    /// Sets `owner_changed` of each hold.
    fn owners(&mut self, segment: &Segment<'_>) {
        let lasts = |held: &ModelHold| {
            let is_hold = held.hold.state != HoldState::AcquisitionOnly;
            is_hold && held.until.is_none_or(|until| until > held.since)
        };
        let mut order: Vec<usize> =
            (segment.first_hold..self.holds.len()).filter(|at| lasts(&self.holds[*at])).collect();
        order.sort_by_key(|at| {
            (self.holds[*at].hold.lock, self.holds[*at].since, self.holds[*at].hold.task, *at)
        });
        for pair in order.windows(2) {
            let (before, hold) = (self.holds[pair[0]].hold, &mut self.holds[pair[1]].hold);
            hold.owner_changed = before.lock == hold.lock && before.task != hold.task;
        }
    }

    /// Returns the hold that each nanosecond of each wait is charged to, and whether the lock was free then.
    /// Waits that are not charged have none.
    pub fn payers(&self) -> Vec<Vec<(Option<Hold>, bool)>> {
        let hold = |(payer, free): &(Option<usize>, bool)| (payer.map(|at| self.holds[at].hold), *free);
        let holds = |wait: &ModelWait| wait.payers.iter().map(hold).collect();
        self.waits.iter().map(holds).collect()
    }

    /// Returns, for each nanosecond of each wait, whether the oldest open hold is one of the waiting task and
    /// excludes all others.
    pub fn own(&self) -> Vec<Vec<bool>> {
        self.waits.iter().map(|wait| wait.own.clone()).collect()
    }

    /// Returns whether the begin of each wait was seen.
    pub fn begun(&self) -> Vec<bool> {
        self.waits.iter().map(|wait| wait.wait.start_seen).collect()
    }

    pub fn intervals(mut self) -> (Intervals, Counts) {
        let with = |state| self.holds.iter().filter(|held| held.hold.state == state).count() as u64;
        self.counts.releases_unseen = with(HoldState::ReleaseUnseen);
        self.counts.backwards = with(HoldState::Backwards);
        let holds = self.holds.iter().map(|held| held.hold).collect();
        let waits = self.waits.iter().map(|waiting| waiting.wait).collect();
        (Intervals { holds, waits }, self.counts)
    }
}

fn seen_state(hold: &Hold, end_ns: i64) -> HoldState {
    if end_ns < hold.start_ns { HoldState::Backwards } else { HoldState::Complete }
}

fn end(held: &mut ModelHold, end_ns: i64, now: i64, state: HoldState) {
    held.until = Some(now);
    (held.hold.end_ns, held.hold.state) = (end_ns.max(held.hold.start_ns), state);
}

fn ended(wait: Wait, event: &Event, end_ns: i64, outcome: Outcome) -> Wait {
    let (waker, waker_stack) = (event.peer_task, event.peer_stack);
    let (blocked_ns, runq_ns) = (event.blocked_ns, event.runq_ns);
    Wait { end_ns, outcome, waker, waker_stack, blocked_ns, runq_ns, ..wait }
}

fn new_wait(event: &Event, start_ns: i64) -> Wait {
    Wait {
        lock: event.lock.unwrap(),
        task: event.task.unwrap(),
        mode: event.mode.unwrap_or(Mode::Exclusive),
        start_ns,
        start_seen: true,
        end_ns: start_ns,
        stack: event.stack,
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
