//! A slow and obviously correct model of lock orders: it keeps each attempt to take a lock, and tries all
//! tuples of attempts.

use std::collections::{BTreeMap, BTreeSet};

use trace_format::{Event, EventKind, LockId, LockKind, LockRow, Mode, StackId, TaskId, TaskRow};

use super::Verdict;

/// A lock, its mode, and the site.
pub(super) type Taking = (LockId, Mode, i32);

/// The steps of a cycle: what was held and what was wanted, from the smallest held lock on.
pub(super) type Signature = Vec<(Taking, Taking)>;

/// An attempt to take a lock while others are held.
#[derive(Clone, Debug)]
struct Attempt {
    task: TaskId,
    held: Vec<Taking>,
    wanted: Taking,
    /// The locks that other tasks hold while they wait for a barrier, and these tasks; what all equal
    /// attempts have.
    behind: BTreeSet<(LockId, TaskId)>,
}

impl Attempt {
    /// Equal attempts have an equal nesting.
    fn nesting(&self) -> (BTreeSet<Taking>, Taking) {
        (self.held.iter().copied().collect(), self.wanted)
    }
}

/// Returns the verdict on each cycle of at most `length` locks, for a history in which locks exclude as they
/// should.
pub(super) fn verdicts(
    events: &[Event],
    locks: &[LockRow],
    tasks: &[TaskRow],
    site: &dyn Fn(Option<StackId>) -> i32,
    length: usize,
) -> BTreeMap<Signature, Verdict> {
    let attempts = attempts(events, locks, site);
    let mut found = BTreeMap::new();
    let context = Context { attempts: &attempts, locks, tasks };
    for length in 2..=length {
        context.extend(length, &mut Vec::new(), &mut found);
    }
    found
}

/// Returns all attempts, also equal attempts of one task.
fn attempts(events: &[Event], locks: &[LockRow], site: &dyn Fn(Option<StackId>) -> i32) -> Vec<Attempt> {
    let mut attempts: Vec<Attempt> = Vec::new();
    let is_idle = |lock: LockId| locks[lock.0 as usize].kind == LockKind::Barrier;
    for (at, event) in events.iter().enumerate() {
        let (Some(task), Some(lock)) = (event.task, event.lock) else { continue };
        let before = since_loss(&events[..at]);
        let waits = before.iter().rev().find(|row| row.task == Some(task) && row.lock == Some(lock));
        let is_end = waits.is_some_and(|row| row.kind == EventKind::Wait);
        let wants = event.kind == EventKind::Wait
            || event.kind == EventKind::Acquire && !is_end && !is_downgrade(before, event);
        let held = held(before, task, site, &is_idle);
        if wants && !is_idle(lock) && !held.is_empty() && !held.iter().any(|(of, ..)| *of == lock) {
            let wanted = (lock, event.mode.unwrap(), site(event.stack));
            attempts.push(Attempt { task, held, wanted, behind: behind(events, event, site, &is_idle) });
        }
    }
    let all = attempts.clone();
    for attempt in &mut attempts {
        let nesting = attempt.nesting();
        for other in all.iter().filter(|other| other.nesting() == nesting) {
            attempt.behind.retain(|lock| other.behind.contains(lock));
        }
    }
    attempts
}

/// Returns the locks that tasks hold which wait for a barrier from before this event until after it.
fn behind(
    events: &[Event],
    event: &Event,
    site: &dyn Fn(Option<StackId>) -> i32,
    is_idle: &dyn Fn(LockId) -> bool,
) -> BTreeSet<(LockId, TaskId)> {
    let until = events.partition_point(|row| row.ts_ns <= event.ts_ns);
    let rows = since_loss(&events[..until]);
    let earlier = &rows[..rows.partition_point(|row| row.ts_ns < event.ts_ns)];
    let mut behind = BTreeSet::new();
    for task in rows.iter().filter_map(|row| row.task).filter(|task| Some(*task) != event.task) {
        let last = |rows: &[Event]| rows.iter().rfind(|row| row.task == Some(task)).copied();
        let waits = |row: Event| row.kind == EventKind::Wait && row.lock.is_some_and(is_idle);
        if last(earlier) == last(rows) && last(rows).is_some_and(waits) {
            let held = held(earlier, task, site, is_idle);
            let exclusive = held.iter().filter(|(_, mode, _)| *mode == Mode::Exclusive);
            behind.extend(exclusive.map(|(lock, ..)| (*lock, task)));
        }
    }
    behind
}

/// Returns whether a task turns its exclusive hold into a shared one.
fn is_downgrade(before: &[Event], event: &Event) -> bool {
    let is_release = |row: &&Event| {
        row.task == event.task && row.kind == EventKind::Release && row.mode == Some(Mode::Exclusive)
    };
    let released = before.iter().rev().find(is_release);
    event.mode == Some(Mode::Shared)
        && event.wait_ns == Some(0)
        && released.is_some_and(|row| (row.lock, row.ts_ns) == (event.lock, event.ts_ns))
}

fn since_loss(events: &[Event]) -> &[Event] {
    let loss = events.iter().rposition(|event| event.kind == EventKind::Lost);
    &events[loss.map_or(0, |at| at + 1)..]
}

/// Returns the locks that a task holds after these events.
fn held(
    events: &[Event],
    task: TaskId,
    site: &dyn Fn(Option<StackId>) -> i32,
    is_idle: &dyn Fn(LockId) -> bool,
) -> Vec<Taking> {
    let mut held: Vec<Taking> = Vec::new();
    let mut depth: BTreeMap<LockId, i32> = BTreeMap::new();
    for event in events.iter().filter(|event| event.task == Some(task)) {
        let Some(lock) = event.lock.filter(|lock| !is_idle(*lock)) else { continue };
        match event.kind {
            EventKind::Acquire => {
                let depth = depth.entry(lock).or_default();
                if *depth == 0 {
                    held.push((lock, event.mode.unwrap(), site(event.stack)));
                }
                *depth += 1;
            }
            EventKind::Release => {
                let depth = depth.entry(lock).or_default();
                *depth -= 1;
                if *depth == 0 {
                    held.retain(|(of, ..)| *of != lock);
                }
            }
            _ => {}
        }
    }
    held
}

struct Context<'a> {
    attempts: &'a [Attempt],
    locks: &'a [LockRow],
    tasks: &'a [TaskRow],
}

impl Context<'_> {
    /// Tries all tuples of attempts that begin with `chosen`. A step is an attempt and the place of the lock
    /// that it holds.
    fn extend(
        &self,
        length: usize,
        chosen: &mut Vec<(usize, usize)>,
        found: &mut BTreeMap<Signature, Verdict>,
    ) {
        if chosen.len() == length {
            return self.judge(chosen, found);
        }
        for (at, attempt) in self.attempts.iter().enumerate() {
            for held in 0..attempt.held.len() {
                let lock = attempt.held[held].0;
                let follows = chosen.last().is_none_or(|(before, _)| {
                    let (first, of_first) = chosen[0];
                    // A cycle begins with its smallest lock.
                    self.attempts[*before].wanted.0 == lock && lock > self.attempts[first].held[of_first].0
                });
                if follows {
                    chosen.push((at, held));
                    self.extend(length, chosen, found);
                    chosen.pop();
                }
            }
        }
    }

    fn judge(&self, chosen: &[(usize, usize)], found: &mut BTreeMap<Signature, Verdict>) {
        let steps: Vec<(Taking, Taking)> = chosen
            .iter()
            .map(|(at, held)| (self.attempts[*at].held[*held], self.attempts[*at].wanted))
            .collect();
        let (first, last) = (steps[0].0, steps[steps.len() - 1].1);
        let nodes: BTreeSet<LockId> = steps.iter().map(|(held, _)| held.0).collect();
        if last.0 != first.0 || nodes.len() < steps.len() {
            return;
        }
        let verdict = self.verdict(chosen, &steps);
        // The best of all tuples counts.
        let known = found.entry(steps).or_insert(verdict);
        if rank(verdict) > rank(*known) {
            *known = verdict;
        }
    }

    fn verdict(&self, chosen: &[(usize, usize)], steps: &[(Taking, Taking)]) -> Verdict {
        let mut inversion = Verdict::Inversion;
        for (at, (_, wanted)) in steps.iter().enumerate() {
            let held = steps[(at + 1) % steps.len()].0;
            if !self.excludes(*wanted, held) {
                let kind = self.locks[wanted.0.0 as usize].kind;
                if kind != LockKind::RwSem {
                    return Verdict::Shared;
                }
                inversion = Verdict::NeedsWriter;
            }
        }
        let attempts: Vec<&Attempt> = chosen.iter().map(|(at, _)| &self.attempts[*at]).collect();
        let pairs = || {
            (0..attempts.len())
                .flat_map(|a| (0..a).map(move |b| (a, b)))
                .map(|(a, b)| (attempts[a], attempts[b]))
        };
        let have_gate = |(a, b): (&Attempt, &Attempt)| {
            a.held
                .iter()
                .any(|one| b.held.iter().any(|other| one.0 == other.0 && self.excludes(*one, *other)))
                || self.waits_behind(a, b)
                || self.waits_behind(b, a)
        };
        let alive = |task: TaskId| {
            let row = &self.tasks[task.0 as usize];
            (row.start_ns.unwrap_or(i64::MIN), row.exit_ns.unwrap_or(i64::MAX))
        };
        let overlap = |(a, b): (&Attempt, &Attempt)| {
            let (a, b) = (alive(a.task), alive(b.task));
            a.0 < b.1 && b.0 < a.1
        };
        if pairs().any(have_gate) {
            Verdict::Gated
        } else if pairs().any(|(a, b)| a.task == b.task) {
            Verdict::OneThread
        } else if !pairs().all(overlap) {
            Verdict::NeverTogether
        } else {
            inversion
        }
    }

    /// Whether a task that waits for the first attempt holds a lock that the second one needs, or a task that
    /// waits for that.
    fn waits_behind(&self, one: &Attempt, other: &Attempt) -> bool {
        one.behind.iter().any(|(lock, task)| {
            let exclusive = (*lock, Mode::Exclusive, 0);
            // The task itself goes on with its lock.
            let is_held = other.task != *task
                && other.held.iter().any(|held| held.0 == *lock && self.excludes(exclusive, *held));
            let is_held_behind = other.behind.iter().any(|(also, of)| also == lock && of != task);
            is_held || is_held_behind && self.excludes(exclusive, exclusive)
        })
    }

    fn excludes(&self, one: Taking, other: Taking) -> bool {
        let counts = self.locks[one.0.0 as usize].kind == LockKind::Semaphore;
        !counts && (one.1 == Mode::Exclusive || other.1 == Mode::Exclusive)
    }
}

fn rank(verdict: Verdict) -> i32 {
    match verdict {
        Verdict::Shared => 0,
        Verdict::Gated => 1,
        Verdict::OneThread => 2,
        Verdict::NeverTogether => 3,
        Verdict::Inversion | Verdict::NeedsWriter => 4,
    }
}
