//! Thundering herds: for each mutex, the wake-ups of condition waits that were in vain.
//!
//! A wake-up is in vain if the woken task waits for the same condition variable again before it releases the
//! mutex for anything else. The wait for the mutex is part of the condition wait, so its time is in no wait
//! for the mutex.

use std::{cell::RefCell, rc::Rc};

use rustc_hash::FxHashMap;
use trace_format::{EventKind, EventRow, LockId, LockKind, TaskId};

use intervals::{
    input::names::Names,
    links::{LastOfTwo, Mark},
};

/// A signal or broadcast wakes a herd if it ends this many waits.
const HERD: u32 = 3;
/// Herds count if one in so many signals that end waits wakes one: threads that run late seem to be woken by
/// the last signal.
const RARE: i64 = 10;

/// The herds that came for one mutex.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Herds {
    /// Signals and broadcasts that ended waits.
    signals: i64,
    /// Signals and broadcasts that woke a herd, most of it in vain.
    pub(super) wakes: i64,
    /// The waits that they ended, and those in vain.
    pub(super) woken: i64,
    pub(super) vain: i64,
    /// The time from a wake-up in vain until its task had the mutex, in ns.
    pub(super) vain_ns: i64,
    /// The same by task.
    pub(super) by_task: FxHashMap<TaskId, i64>,
}

/// Returns a finder for a trace with these locks; `None` if it has no condition variables.
pub(super) fn finder(names: &Names) -> Option<Finder<'_>> {
    let has_some = names.locks().iter().any(|lock| lock.kind == LockKind::CondVar);
    let is_condition = |lock: LockId| names.lock(lock).is_some_and(|row| row.kind == LockKind::CondVar);
    has_some.then(|| Finder::new(Box::new(is_condition)))
}

/// A condition wait that is open.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    condition: LockId,
    since_ns: i64,
    mutex: LockId,
}

/// A condition wait that a signal ended.
#[derive(Debug)]
struct Woken {
    wake: SharedWake,
    condition: LockId,
    mutex: LockId,
    /// The time from the signal until the task had the mutex.
    ns: i64,
}

#[derive(Debug, Default)]
struct Task {
    /// The lock that it released last, and when.
    released: Option<(LockId, i64)>,
    waiting: Option<Waiting>,
    woken: Option<Woken>,
    /// The release of the mutex by a woken task, which is in vain if a wait follows at once.
    leaving: Option<(Woken, i64)>,
}

/// A signal or broadcast.
#[derive(Debug, Default)]
struct Wake {
    mutex: Option<LockId>,
    woken: u32,
    vain: Vec<(TaskId, i64)>,
}

/// A signal that may still end waits, or whose waits may still be in vain. It counts once nothing refers to
/// it.
type SharedWake = Rc<RefCell<Wake>>;

/// Finds herds.
pub(super) struct Finder<'a> {
    is_condition: Box<dyn Fn(LockId) -> bool + 'a>,
    now_ns: i64,
    tasks: FxHashMap<TaskId, Task>,
    /// The last signals of each condition variable.
    last: FxHashMap<LockId, LastOfTwo<TaskId, SharedWake>>,
    found: FxHashMap<LockId, Herds>,
}

impl<'a> Finder<'a> {
    fn new(is_condition: Box<dyn Fn(LockId) -> bool + 'a>) -> Self {
        let (tasks, last, found) = Default::default();
        Self { is_condition, now_ns: i64::MIN, tasks, last, found }
    }

    /// Adds the next row.
    pub(super) fn push(&mut self, row: &dyn EventRow) {
        self.now_ns = self.now_ns.max(row.ts_ns());
        if row.kind() == EventKind::Lost {
            return self.end();
        }
        let (Some(id), Some(lock)) = (row.task(), row.lock()) else { return };
        let (now_ns, task) = (self.now_ns, self.tasks.entry(id).or_default());
        // A task that released the mutex did so for something else than a wait, unless this row is one.
        let leaving = task.leaving.take();
        let mut over = None;
        match (row.kind(), (self.is_condition)(lock)) {
            (EventKind::Wake, true) => {
                let signal = Mark { task: id, ns: now_ns, value: SharedWake::default() };
                let replaced = self.last.entry(lock).or_default().set(signal);
                replaced.into_iter().for_each(|mark| add(&mut self.found, mark.value));
            }
            (EventKind::Wait, true) => {
                let released = task.released.filter(|(_, ns)| *ns == now_ns);
                task.waiting =
                    released.map(|(mutex, _)| Waiting { condition: lock, since_ns: now_ns, mutex });
                over = task.woken.take();
                if let Some((woken, ns)) = &leaving
                    && (woken.condition, *ns) == (lock, now_ns)
                {
                    woken.wake.borrow_mut().vain.push((id, woken.ns));
                }
            }
            (EventKind::Acquire, true) => {
                over = task.woken.take();
                let wait = task.waiting.take().filter(|wait| wait.condition == lock);
                task.woken = wait.and_then(|Waiting { since_ns, mutex, .. }| {
                    let signal = self.last.get(&lock)?.of_another(&id, since_ns)?;
                    let mut wake = signal.value.borrow_mut();
                    wake.woken += 1;
                    wake.mutex.get_or_insert(mutex);
                    let (wake, ns) = (Rc::clone(&signal.value), now_ns - signal.ns);
                    Some(Woken { wake, condition: lock, mutex, ns })
                });
            }
            (EventKind::Abandon, true) => task.waiting = None,
            (EventKind::Release, false) => {
                task.released = Some((lock, now_ns));
                task.leaving = task.woken.take_if(|woken| woken.mutex == lock).map(|woken| (woken, now_ns));
            }
            _ => {}
        }
        let ended = leaving.map(|(woken, _)| woken).into_iter().chain(over);
        ended.for_each(|woken| add(&mut self.found, woken.wake));
    }

    /// Returns the herds by mutex, where they are not rare.
    pub(super) fn finish(self) -> FxHashMap<LockId, Herds> {
        let mut found = self.all();
        found.retain(|_, herds| herds.wakes > 0 && herds.wakes * RARE >= herds.signals);
        found
    }

    /// Returns all herds.
    fn all(mut self) -> FxHashMap<LockId, Herds> {
        self.end();
        self.found
    }

    /// Ends everything: nothing goes across a loss.
    fn end(&mut self) {
        let Self { tasks, last, found, .. } = self;
        for (_, task) in tasks.drain() {
            let woken = task.woken.into_iter().chain(task.leaving.map(|(woken, _)| woken));
            woken.for_each(|woken| add(found, woken.wake));
        }
        let signals = last.drain().flat_map(|(_, last)| last.into_marks());
        signals.for_each(|mark| add(found, mark.value));
    }
}

/// Drops a reference to a signal, and adds the signal to the herds of its mutex if nothing else refers to it.
fn add(found: &mut FxHashMap<LockId, Herds>, wake: SharedWake) {
    let Some(Wake { mutex: Some(mutex), woken, vain }) = Rc::into_inner(wake).map(RefCell::into_inner) else {
        return;
    };
    let herds = found.entry(mutex).or_default();
    herds.signals += 1;
    if woken < HERD || vain.len() * 2 < woken as usize {
        return;
    }
    herds.wakes += 1;
    herds.woken += i64::from(woken);
    herds.vain += i64::try_from(vain.len()).unwrap_or(i64::MAX);
    for (task, ns) in vain {
        herds.vain_ns = herds.vain_ns.saturating_add(ns);
        let of_task = herds.by_task.entry(task).or_default();
        *of_task = of_task.saturating_add(ns);
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, test_runner::Config};
    use trace_format::Event;

    use super::*;
    use crate::testing::{Parts, cases};
    use intervals::engine::histories::{self, history, orderly_history};

    fn of_events(events: &[Event], is_condition: impl Fn(LockId) -> bool) -> FxHashMap<LockId, Herds> {
        let mut finder = Finder::new(Box::new(is_condition));
        events.iter().for_each(|event| finder.push(event));
        finder.all()
    }

    /// A wait that a wake-up ended: whether it was in vain, its task, and the time.
    type Ended = (bool, TaskId, i64);

    /// Looks through all rows for each wait.
    fn model(events: &[Event], is_condition: impl Fn(LockId) -> bool) -> FxHashMap<LockId, Herds> {
        let mut now_ns = i64::MIN;
        let settled = events.iter().map(|event| {
            now_ns = now_ns.max(event.ts_ns);
            Event { ts_ns: now_ns, ..*event }
        });
        let rows: Vec<Event> = settled.collect();
        let is_lost = |row: &Event| row.kind == EventKind::Lost;
        let mut found: FxHashMap<LockId, Herds> = FxHashMap::default();
        // By wake-up: the mutex, and the waits that it ended.
        let mut wakes: Vec<(usize, LockId, Vec<Ended>)> = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            let Some(condition) =
                row.lock.filter(|lock| row.kind == EventKind::Acquire && is_condition(*lock))
            else {
                continue;
            };
            let epoch = rows[..at].iter().rposition(is_lost).map_or(0, |lost| lost + 1);
            let own = |other: &&usize| rows[**other].task == row.task && rows[**other].lock.is_some();
            let before: Vec<usize> = (epoch..at).collect();
            let own_before: Vec<usize> = before.iter().filter(own).copied().collect();
            // The wait must be the last thing that the task did with a condition variable, and its mutex its
            // last release.
            let is_of_condition = |at: &&usize| {
                let row = &rows[**at];
                row.lock.is_some_and(&is_condition)
                    && matches!(row.kind, EventKind::Wait | EventKind::Acquire | EventKind::Abandon)
            };
            let Some(wait) = own_before.iter().rfind(is_of_condition).copied() else { continue };
            if rows[wait].kind != EventKind::Wait || rows[wait].lock != Some(condition) {
                continue;
            }
            let is_release = |at: &&usize| {
                let row = &rows[**at];
                **at < wait
                    && row.kind == EventKind::Release
                    && row.lock.is_some_and(|lock| !is_condition(lock))
            };
            let Some(release) = own_before.iter().rfind(is_release).copied() else { continue };
            let Some(mutex) = rows[release].lock.filter(|_| rows[release].ts_ns == rows[wait].ts_ns) else {
                continue;
            };
            let is_wake = |by: &&usize| {
                let by = &rows[**by];
                by.kind == EventKind::Wake
                    && by.lock == Some(condition)
                    && by.task != row.task
                    && by.task.is_some()
                    && by.ts_ns >= rows[wait].ts_ns
            };
            let Some(wake) = before.iter().rfind(is_wake).copied() else { continue };
            // The task's rows from then on: releases of the mutex right before a wait, before anything else
            // ends it.
            let end = rows[at..].iter().position(is_lost).map_or(rows.len(), |lost| at + lost);
            let after: Vec<&Event> = rows[at + 1..end]
                .iter()
                .filter(|other| other.task == row.task && other.lock.is_some())
                .collect();
            let is_over = |row: &&&Event| {
                let is_condition = row.lock.is_some_and(&is_condition);
                is_condition && matches!(row.kind, EventKind::Wait | EventKind::Acquire)
                    || row.kind == EventKind::Release && row.lock == Some(mutex)
            };
            let over = after.iter().position(|row| is_over(&row));
            let is_vain = over.is_some_and(|over| {
                let (leaves, next) = (after[over], after.get(over + 1));
                leaves.kind == EventKind::Release
                    && next.is_some_and(|next| {
                        (next.kind, next.lock, next.ts_ns) == (EventKind::Wait, Some(condition), leaves.ts_ns)
                    })
            });
            let Some(task) = row.task else { continue };
            let ns = row.ts_ns - rows[wake].ts_ns;
            match wakes.iter_mut().find(|(number, ..)| *number == wake) {
                Some((_, _, woken)) => woken.push((is_vain, task, ns)),
                None => wakes.push((wake, mutex, vec![(is_vain, task, ns)])),
            }
        }
        for (_, mutex, woken) in wakes {
            found.entry(mutex).or_default().signals += 1;
            let vain: Vec<_> = woken.iter().filter(|(is_vain, ..)| *is_vain).collect();
            if woken.len() >= 3 && vain.len() * 2 >= woken.len() {
                let herds = found.entry(mutex).or_default();
                herds.wakes += 1;
                herds.woken += woken.len() as i64;
                herds.vain += vain.len() as i64;
                for (_, task, ns) in vain {
                    herds.vain_ns += ns;
                    *herds.by_task.entry(*task).or_default() += ns;
                }
            }
        }
        found
    }

    fn of_text(text: &str) -> Option<Herds> {
        let mut parts = Parts::parse(text);
        let mutex = parts.lock_id("m");
        let kind = |lock: LockId| parts.locks[usize::try_from(lock.0).unwrap()].kind;
        let mut found = of_events(&parts.events, |lock| kind(lock) == LockKind::CondVar);
        found.remove(&mutex).filter(|herds| herds.wakes > 0)
    }

    /// B, C and D wait; A wakes them at 50. B works, C and D wait again.
    const HERD: &str = "lock c condvar\n\
        1 B acquire m\n2 B release m\n2 B wait c\n3 C acquire m\n4 C release m\n4 C wait c\n5 D acquire m\n6 D release m\n6 D wait c\n\
        40 A acquire m\n50 A wake c\n52 A release m\n\
        55 B acquire c wait=53\n55 B acquire m\n58 B release m\n\
        60 C acquire c wait=56\n60 C acquire m\n62 C release m\n62 C wait c\n\
        65 D acquire c wait=59\n65 D acquire m\n66 D release m\n66 D wait c";

    #[test]
    fn those_that_wait_again_at_once_were_woken_in_vain() {
        let herds = of_text(HERD).unwrap();
        assert_eq!((herds.wakes, herds.woken, herds.vain, herds.vain_ns), (1, 3, 2, 10 + 15));
        assert_eq!(
            herds.by_task.values().copied().collect::<std::collections::BTreeSet<_>>(),
            [10, 15].into()
        );
        // C and D have something to do, too: most were not woken in vain.
        assert_eq!(of_text(&HERD.replace("62 C wait c", "64 C wait c")), None);
        assert_eq!(
            of_text(&HERD.replace("50 A wake c", "50 A wake d").replace("lock c", "lock d condvar\nlock c")),
            None
        );
        assert_eq!(of_text(&HERD.replace("65 D acquire c", "65 D abandon c")), None, "two are no herd");
        assert_eq!(of_text(&HERD.replace("52 A release m", "52 A release m\n53 - lost count=1")), None);
    }

    proptest! {
        #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(cases(10_000)) })]

        #[test]
        fn herds_are_those_of_the_model(events in prop_oneof![history(), orderly_history()]) {
            // One lock becomes a condition variable, and each task's release gets the time of its next wait.
            let mut events: Vec<Event> = events.into_iter().map(|event| match (event.lock, event.kind) {
                (Some(LockId(1)), EventKind::Release) => Event { lock: Some(LockId(5)), kind: EventKind::Wake, ..event },
                (Some(LockId(1)), _) => Event { lock: Some(LockId(5)), ..event },
                _ => event,
            }).collect();
            for at in 0..events.len() {
                if events[at].kind == EventKind::Wait && events[at].lock == Some(LockId(5)) && at % 4 != 0 {
                    let release = Event { kind: EventKind::Release, lock: Some(LockId(0)), ..events[at] };
                    if at > 0 { events[at - 1] = release; }
                }
            }
            let is_condition = |lock: LockId| histories::kind(lock) == LockKind::CondVar;
            prop_assert_eq!(of_events(&events, is_condition), model(&events, is_condition));
        }
    }
}
