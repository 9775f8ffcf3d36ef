//! The engine against a slow model that is right at sight, on random histories.
//!
//! The model keeps the whole history, finds each hold's end and each wait's end by looking for it, and charges each
//! wait by asking every hold whether it is the one. What it shares with the engine is the definition only.

use proptest::{collection::vec, prelude::*, test_runner::Config};
use trace_format::{
    Event, EventKind, LockId, LockKind, LockRow, Mode, RunInfo, Scope, StackId, TaskId, run_info::Source,
};

use super::{Charge, Counts, Engine, Hold, HoldState, Intervals, Outcome, Rules, Wait};

const LOCKS: i32 = 3;
/// The last lock is of a kind whose source records no holds.
const UNMEASURED: LockId = LockId(LOCKS - 1);
const TASKS: i32 = 4;
const STACKS: i32 = 3;
/// Stacks 0 and 1 are the same point.
const POINTS: [u32; STACKS as usize] = [0, 0, 1];

/// A footer and locks for the histories below: kernel locks of two kinds, one with holds and one without.
pub(crate) fn surroundings() -> (RunInfo, Vec<LockRow>) {
    let source = |kind: &str, holds| Source { kinds: vec![kind.to_owned()], holds, ..Source::default() };
    let info = RunInfo { sources: vec![source("rwsem", true), source("mutex", false)], ..RunInfo::default() };
    let lock = |id| LockRow {
        id: LockId(id),
        address: None,
        kind: if LockId(id) == UNMEASURED { LockKind::Mutex } else { LockKind::RwSem },
        scope: Scope::Kernel,
        pid: None,
        name: None,
        init_stack: None,
        first_ns: 0,
        last_ns: 0,
    };
    (info, (0..LOCKS).map(lock).collect())
}

fn rules() -> Rules {
    let (info, locks) = surroundings();
    Rules::new(&info, &locks).with_points(POINTS.to_vec(), Vec::new())
}

fn run(events: &[Event], end_ns: i64) -> (Intervals, Counts) {
    let mut engine = Engine::new(rules());
    let mut intervals = Intervals::default();
    for event in events {
        engine.push(event, &mut intervals);
    }
    let counts = engine.finish(end_ns, &mut intervals);
    (intervals, counts)
}

/// A hold of the model: what the engine says of it, and the row of the history that began it.
#[derive(Clone, Debug)]
struct ModelHold {
    hold: Hold,
    point: Option<u32>,
    first_row: usize,
    depth: i64,
    open: bool,
}

/// Everything by looking back at the whole history.
#[derive(Default)]
struct Model {
    holds: Vec<ModelHold>,
    waits: Vec<(Wait, bool)>,
    counts: Counts,
}

impl Model {
    fn of(events: &[Event], end_ns: i64) -> Self {
        let mut model = Self::default();
        // Between two losses, nothing knows of what is outside.
        let mut begin: usize = 0;
        for (row, event) in events.iter().enumerate() {
            if event.kind == EventKind::Lost {
                model.counts.losses += 1;
                let loss = begin.checked_sub(1).map(|row| events[row].ts_ns);
                model.segment(
                    &events[begin..row],
                    loss,
                    event.ts_ns,
                    HoldState::CutByLoss,
                    Outcome::CutByLoss,
                );
                begin = row + 1;
            }
        }
        let loss = begin.checked_sub(1).map(|row| events[row].ts_ns);
        model.segment(&events[begin..], loss, end_ns, HoldState::OpenAtEnd, Outcome::OpenAtEnd);
        model
    }

    fn segment(
        &mut self,
        events: &[Event],
        loss_ns: Option<i64>,
        end_ns: i64,
        state: HoldState,
        outcome: Outcome,
    ) {
        let (first_hold, first_wait) = (self.holds.len(), self.waits.len());
        for (row, event) in events.iter().enumerate() {
            self.row(row, event, loss_ns, first_hold, first_wait);
        }
        for held in &mut self.holds[first_hold..] {
            if held.open {
                end(held, end_ns, state);
            }
        }
        for (wait, open) in &mut self.waits[first_wait..] {
            if *open {
                (wait.end_ns, wait.outcome, wait.wait_ns) = (end_ns, outcome, end_ns - wait.start_ns);
            }
        }
        self.charge(first_hold, first_wait);
    }

    fn row(&mut self, row: usize, event: &Event, loss_ns: Option<i64>, first_hold: usize, first_wait: usize) {
        let (Some(lock), Some(mode)) = (event.lock, event.mode) else { return };
        if event.kind == EventKind::Destroy {
            for at in first_hold..self.holds.len() {
                let state =
                    if self.superseded(at, row) { HoldState::ReleaseUnseen } else { HoldState::Complete };
                let held = &mut self.holds[at];
                if held.open && held.hold.lock == lock {
                    end(held, event.ts_ns, state);
                }
            }
            return;
        }
        let Some(task) = event.task else { return };
        let measured = lock != UNMEASURED;
        let waiting = |(wait, open): &(Wait, bool)| *open && wait.lock == lock && wait.task == task;
        let waits_at = self.waits[first_wait..].iter().position(waiting).map(|at| at + first_wait);
        let mine = |held: &ModelHold| held.open && held.hold.lock == lock && held.hold.task == task;
        match event.kind {
            EventKind::TryFail => self.counts.try_failures += 1,
            EventKind::Wait if waits_at.is_none() => {
                self.counts.waits_begun += 1;
                self.counts.unmeasured_waits += u64::from(!measured);
                self.waits.push((new_wait(event, lock, task, mode, event.ts_ns), true));
            }
            EventKind::Acquire | EventKind::Abandon => {
                let acquired = event.kind == EventKind::Acquire;
                let outcome = if acquired { Outcome::Acquired } else { Outcome::Abandoned(event.errno) };
                let (contended, wait_ns) = match (waits_at, event.wait_ns) {
                    (Some(at), given) => {
                        let (wait, open) = &mut self.waits[at];
                        *open = false;
                        wait.end_ns = event.ts_ns;
                        wait.wait_ns = given.unwrap_or(event.ts_ns - wait.start_ns);
                        wait.outcome = outcome;
                        (true, Some(wait.wait_ns))
                    }
                    (None, Some(0)) if acquired => (false, Some(0)),
                    (None, Some(ns)) if loss_ns.is_none_or(|loss| event.ts_ns - ns > loss) => {
                        self.counts.inferred_waits += 1;
                        let mut wait = new_wait(event, lock, task, mode, event.ts_ns - ns);
                        (wait.end_ns, wait.wait_ns, wait.outcome) = (event.ts_ns, ns, outcome);
                        self.waits.push((wait, false));
                        (true, Some(ns))
                    }
                    (None, _) => {
                        self.counts.begin_unseen += 1;
                        (true, None)
                    }
                };
                if acquired {
                    let hold = Hold {
                        lock,
                        task,
                        mode,
                        start_ns: event.ts_ns,
                        end_ns: event.ts_ns,
                        stack: event.stack,
                        contended,
                        wait_ns,
                        waits_begun: 0,
                        acquisitions: 1,
                        recursions: 0,
                        state: HoldState::AcquisitionOnly,
                    };
                    self.acquire(row, hold, first_hold, measured);
                }
            }
            EventKind::Release if measured => match self.holds[first_hold..].iter().rposition(mine) {
                None => self.counts.unpaired_releases += 1,
                Some(at) => {
                    let held = &mut self.holds[first_hold + at];
                    held.depth -= 1;
                    if held.depth == 0 {
                        end(held, event.ts_ns, HoldState::Complete);
                    }
                }
            },
            _ => {}
        }
    }

    fn acquire(&mut self, row: usize, hold: Hold, first_hold: usize, measured: bool) {
        let point = hold.stack.map(|stack| POINTS[stack.0 as usize]);
        if measured {
            for at in first_hold..self.holds.len() {
                let held = &self.holds[at];
                let mine = held.open && held.hold.lock == hold.lock && held.hold.task == hold.task;
                if mine && self.superseded(at, row) {
                    end(&mut self.holds[at], hold.start_ns, HoldState::ReleaseUnseen);
                }
            }
            let same = |held: &&mut ModelHold| {
                let other = held.hold;
                let of_mine = held.open && other.lock == hold.lock && other.task == hold.task;
                of_mine && other.mode == hold.mode && (hold.mode == Mode::Exclusive || held.point == point)
            };
            if let Some(held) = self.holds[first_hold..].iter_mut().rev().find(same) {
                held.depth += 1;
                match hold.mode {
                    Mode::Exclusive => held.hold.recursions += 1,
                    Mode::Shared => held.hold.acquisitions += 1,
                }
                return;
            }
        }
        self.holds.push(ModelHold { hold, point, first_row: row, depth: 1, open: measured });
    }

    /// Whether, before `row`, another task began a hold that excludes this one.
    fn superseded(&self, at: usize, row: usize) -> bool {
        let held = &self.holds[at];
        self.holds[at + 1..].iter().any(|later| {
            let excludes = held.hold.mode == Mode::Exclusive || later.hold.mode == Mode::Exclusive;
            let other = later.hold.lock == held.hold.lock && later.hold.task != held.hold.task;
            other && excludes && later.first_row < row
        })
    }

    /// The oldest hold of another task with `start <= begin < end` that nobody had superseded by then.
    fn charge(&mut self, first_hold: usize, first_wait: usize) {
        for wait_at in first_wait..self.waits.len() {
            let (wait, _) = self.waits[wait_at];
            let is_inferred = wait.charge == Charge::Gap;
            if wait.lock == UNMEASURED || is_inferred {
                self.waits[wait_at].0.charge = Charge::Unknown;
                continue;
            }
            let payer = (first_hold..self.holds.len()).find(|at| {
                let held = &self.holds[*at];
                let hold = &held.hold;
                let ended = hold.state == HoldState::OpenAtEnd || hold.state == HoldState::CutByLoss;
                let lasts = hold.start_ns <= wait.start_ns && (wait.start_ns < hold.end_ns || ended);
                let later = self.holds.iter().skip(first_hold).filter(|h| h.hold.start_ns <= wait.start_ns);
                let by_then = later.map(|h| h.first_row + 1).max().unwrap_or(0);
                hold.lock == wait.lock && hold.task != wait.task && lasts && !self.superseded(*at, by_then)
            });
            self.waits[wait_at].0.charge = match payer {
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

    fn intervals(mut self) -> (Intervals, Counts) {
        let with = |state| self.holds.iter().filter(|held| held.hold.state == state).count() as u64;
        self.counts.releases_unseen = with(HoldState::ReleaseUnseen);
        self.counts.backwards = with(HoldState::Backwards);
        let holds = self.holds.iter().map(|held| held.hold).collect();
        let waits = self.waits.iter().map(|(wait, _)| *wait).collect();
        (Intervals { holds, waits }, self.counts)
    }
}

fn end(held: &mut ModelHold, end_ns: i64, state: HoldState) {
    (held.open, held.hold.end_ns, held.hold.state) = (false, end_ns, state);
}

/// `Charge::Gap` stands for an inferred wait until charges are made.
fn new_wait(event: &Event, lock: LockId, task: TaskId, mode: Mode, start_ns: i64) -> Wait {
    let inferred = event.kind != EventKind::Wait;
    Wait {
        lock,
        task,
        mode,
        start_ns,
        end_ns: start_ns,
        stack: event.stack,
        outcome: Outcome::OpenAtEnd,
        wait_ns: 0,
        blocked_ns: None,
        runq_ns: None,
        owner: None,
        waker: None,
        waker_stack: None,
        charge: if inferred { Charge::Gap } else { Charge::Unknown },
    }
}

/// What can happen next, and how much later. Anything may follow anything: recorders lose events and programs have bugs.
fn any_event() -> impl Strategy<Value = (i64, Event)> {
    let kind = prop_oneof![
        4 => Just(EventKind::Wait),
        6 => Just(EventKind::Acquire),
        6 => Just(EventKind::Release),
        2 => Just(EventKind::Abandon),
        1 => Just(EventKind::TryFail),
        1 => prop_oneof![9 => Just(EventKind::Destroy), 6 => Just(EventKind::Lost), 1 => Just(EventKind::Wake)],
    ];
    let mode = prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared)];
    let wait = prop_oneof![6 => Just(Some(0)), 3 => Just(None), 2 => (1..20i64).prop_map(Some)];
    // A third of the events share the time of the one before.
    let step = prop_oneof![1 => Just(0i64), 2 => 0..6i64];
    (step, kind, mode, 0..LOCKS, 0..TASKS, 0..STACKS, wait).prop_map(
        |(step, kind, mode, lock, task, stack, wait)| {
            let mut event = Event::new(0, kind, 0);
            if kind != EventKind::Lost {
                event.mode = Some(mode);
                event.lock = Some(LockId(lock));
                event.task = Some(TaskId(task));
                event.stack = Some(StackId(stack));
            }
            if matches!(kind, EventKind::Acquire | EventKind::Abandon) {
                event.wait_ns = wait;
            }
            (step, event)
        },
    )
}

pub(crate) fn history() -> impl Strategy<Value = Vec<Event>> {
    vec(any_event(), 0..60).prop_map(|steps| {
        let mut now = 1000;
        let at = |(step, event): (i64, Event)| {
            now += step;
            Event { ts_ns: now, ..event }
        };
        steps.into_iter().map(at).collect()
    })
}

/// Well-behaved programs: locks that exclude, waits that end, releases by owners only.
fn orderly_history() -> impl Strategy<Value = Vec<Event>> {
    vec((0..LOCKS - 1, 0..TASKS, any::<bool>(), 1..5i64), 0..80).prop_map(|steps| {
        let mut owner = [None; LOCKS as usize];
        let mut waiting: Vec<Vec<(i32, i64)>> = vec![Vec::new(); LOCKS as usize];
        let mut now = 1000;
        let mut events = Vec::new();
        for (lock, task, give_up, step) in steps {
            now += step;
            let at = lock as usize;
            let mut event = |kind, wait_ns| {
                let base = Event::new(now, kind, 0);
                let (lock, task) = (Some(LockId(lock)), Some(TaskId(task)));
                events.push(Event { lock, task, mode: Some(Mode::Exclusive), wait_ns, ..base });
            };
            let place = waiting[at].iter().position(|(waiter, _)| *waiter == task);
            match (owner[at], place) {
                (Some(holder), None) if holder == task => {
                    event(EventKind::Release, None);
                    owner[at] = None;
                }
                (None, None) if waiting[at].is_empty() => {
                    event(EventKind::Acquire, Some(0));
                    owner[at] = Some(task);
                }
                (_, None) => {
                    event(EventKind::Wait, None);
                    waiting[at].push((task, now));
                }
                (None, Some(place)) => {
                    let (_, since) = waiting[at].remove(place);
                    event(EventKind::Acquire, Some(now - since));
                    owner[at] = Some(task);
                }
                (Some(_), Some(place)) if give_up => {
                    let (_, since) = waiting[at].remove(place);
                    event(EventKind::Abandon, Some(now - since));
                }
                (Some(_), Some(_)) => {}
            }
        }
        events
    })
}

fn in_order(mut intervals: Intervals) -> Intervals {
    intervals.holds.sort_by_key(|h| (h.lock, h.task, h.start_ns, h.end_ns, format!("{h:?}")));
    intervals.waits.sort_by_key(|w| (w.lock, w.task, w.start_ns, w.end_ns, format!("{w:?}")));
    intervals
}

fn end_of(events: &[Event]) -> i64 {
    events.last().map_or(0, |event| event.ts_ns) + 7
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(2500) })]

    #[test]
    fn the_engine_finds_what_the_model_finds(events in history()) {
        let end_ns = end_of(&events);
        let (found, counts) = run(&events, end_ns);
        let (expected, expected_counts) = Model::of(&events, end_ns).intervals();
        prop_assert_eq!(in_order(found), in_order(expected));
        prop_assert_eq!(counts, expected_counts);
    }

    #[test]
    fn every_wait_that_began_is_charged_once_or_counted_as_charged_to_nobody(events in history()) {
        let (found, counts) = run(&events, end_of(&events));
        let charged: i64 = found.holds.iter().map(|hold| hold.waits_begun).sum();
        prop_assert_eq!(charged as u64 + counts.gap_waits + counts.unmeasured_waits, counts.waits_begun);
        prop_assert_eq!(found.waits.len() as u64, counts.waits_begun + counts.inferred_waits);
    }

    #[test]
    fn the_order_of_locks_does_not_matter(events in history()) {
        // Locks are independent: one alone gives what it gives among others.
        let whole = in_order(run(&events, end_of(&events)).0);
        let mut apart = Intervals::default();
        for lock in 0..LOCKS {
            let wanted = |event: &&Event| event.lock.is_none_or(|l| l == LockId(lock));
            let alone: Vec<Event> = events.iter().filter(wanted).copied().collect();
            let (found, _) = run(&alone, end_of(&events));
            apart.holds.extend(found.holds);
            apart.waits.extend(found.waits);
        }
        prop_assert_eq!(in_order(apart), whole);
    }

    #[test]
    fn the_time_waited_for_an_exclusive_lock_is_that_of_its_holds_and_gaps(events in orderly_history()) {
        let (found, counts) = run(&events, end_of(&events));
        prop_assert_eq!((counts.unpaired_releases, counts.begin_unseen, counts.inferred_waits), (0, 0, 0));
        for wait in &found.waits {
            let held: i64 = found.holds.iter().filter(|hold| hold.lock == wait.lock).map(|hold| {
                (hold.end_ns.min(wait.end_ns) - hold.start_ns.max(wait.start_ns)).max(0)
            }).sum();
            let gaps = wait.wait_ns - held;
            prop_assert!(gaps >= 0, "{} ns of holds in {:?}", held, wait);
        }
        let contended = found.holds.iter().filter(|hold| hold.contended).count();
        let acquired = found.waits.iter().filter(|wait| wait.outcome == Outcome::Acquired).count();
        prop_assert_eq!(contended, acquired);
    }
}
