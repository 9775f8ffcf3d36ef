//! Thundering herds: rows of all locks enter in their order; for each mutex, the wake-ups of condition waits that were in vain leave.
//!
//! A wake-up is in vain if the woken task waits for the same condition variable again before it releases the mutex for anything else. The wait for
//! the mutex is part of the condition wait, so its time is in no wait for the mutex.

use rustc_hash::FxHashMap;
use trace_format::{EventKind, EventRow, LockId, LockKind, TaskId};

use intervals::input::names::Names;

/// A signal or broadcast wakes a herd if it ends this many waits.
const HERD: u32 = 3;
/// Herds count if one in so many signals that end waits wakes one: threads that run late seem to be woken by the last signal.
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
#[derive(Clone, Copy, Debug)]
struct Woken {
    /// The number of the signal.
    wake: u64,
    condition: LockId,
    mutex: LockId,
    ns: i64,
}

#[derive(Clone, Copy, Debug, Default)]
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
    /// The places from which it may still be reached.
    references: u32,
    mutex: Option<LockId>,
    woken: u32,
    vain: Vec<(TaskId, i64)>,
}

/// The last wake-ups of a condition variable by two tasks, the last one first: task, time and number.
type LastWakes = [Option<(TaskId, i64, u64)>; 2];

/// Finds herds.
pub(super) struct Finder<'a> {
    is_condition: Box<dyn Fn(LockId) -> bool + 'a>,
    now_ns: i64,
    tasks: FxHashMap<TaskId, Task>,
    last: FxHashMap<LockId, LastWakes>,
    wakes: FxHashMap<u64, Wake>,
    next: u64,
    found: FxHashMap<LockId, Herds>,
}

impl<'a> Finder<'a> {
    fn new(is_condition: Box<dyn Fn(LockId) -> bool + 'a>) -> Self {
        Self {
            is_condition,
            now_ns: i64::MIN,
            tasks: FxHashMap::default(),
            last: FxHashMap::default(),
            wakes: FxHashMap::default(),
            next: 0,
            found: FxHashMap::default(),
        }
    }

    /// Adds the next row.
    pub(super) fn push(&mut self, row: &dyn EventRow) {
        self.now_ns = self.now_ns.max(row.ts_ns());
        if row.kind() == EventKind::Lost {
            return self.end();
        }
        let (Some(id), Some(lock)) = (row.task(), row.lock()) else { return };
        let is_condition = (self.is_condition)(lock);
        match (row.kind(), is_condition) {
            (EventKind::Wake, true) => self.wakes_up(id, lock),
            (EventKind::Wait, true) => self.waits(id, lock),
            (EventKind::Acquire, true) => self.is_woken(id, lock),
            (EventKind::Abandon, true) => {
                self.stays(id);
                self.tasks.entry(id).or_default().waiting = None;
            }
            (EventKind::Release, false) => self.releases(id, lock),
            _ => self.stays(id),
        }
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

    fn wakes_up(&mut self, task: TaskId, condition: LockId) {
        self.stays(task);
        let number = self.next;
        self.next += 1;
        self.wakes.insert(number, Wake { references: 1, ..Wake::default() });
        let last = self.last.entry(condition).or_default();
        // The second one is of another task than the first one.
        let is_other = last[0].is_some_and(|(of, ..)| of != task);
        let [first, second] = *last;
        let gone = if is_other { second } else { first };
        last[1] = if is_other { first } else { second };
        last[0] = Some((task, self.now_ns, number));
        if let Some((.., gone)) = gone {
            self.forget(gone);
        }
    }

    fn waits(&mut self, id: TaskId, condition: LockId) {
        let now_ns = self.now_ns;
        let task = self.tasks.entry(id).or_default();
        let mutex = task.released.filter(|(_, ns)| *ns == now_ns).map(|(mutex, _)| mutex);
        task.waiting = mutex.map(|mutex| Waiting { condition, since_ns: now_ns, mutex });
        if let Some((woken, ns)) = task.leaving.take() {
            if woken.condition == condition
                && ns == now_ns
                && let Some(wake) = self.wakes.get_mut(&woken.wake)
            {
                wake.vain.push((id, woken.ns));
            }
            self.forget(woken.wake);
        }
        self.forget_woken(id);
    }

    fn is_woken(&mut self, id: TaskId, condition: LockId) {
        self.stays(id);
        self.forget_woken(id);
        let task = self.tasks.entry(id).or_default();
        let Some(Waiting { since_ns, mutex, .. }) =
            task.waiting.take().filter(|wait| wait.condition == condition)
        else {
            return;
        };
        let last = self.last.get(&condition).into_iter().flatten().flatten();
        let mut by_others = last.filter(|(of, ns, _)| *of != id && *ns >= since_ns);
        let Some((_, ns, number)) = by_others.next().copied() else { return };
        if let Some(wake) = self.wakes.get_mut(&number) {
            wake.woken += 1;
            wake.references += 1;
            wake.mutex.get_or_insert(mutex);
            task.woken = Some(Woken { wake: number, condition, mutex, ns: self.now_ns - ns });
        }
    }

    fn releases(&mut self, id: TaskId, lock: LockId) {
        self.stays(id);
        let now_ns = self.now_ns;
        let task = self.tasks.entry(id).or_default();
        task.released = Some((lock, now_ns));
        if let Some(woken) = task.woken.take_if(|woken| woken.mutex == lock) {
            task.leaving = Some((woken, now_ns));
        }
    }

    /// A task that released the mutex did so for something else than a wait.
    fn stays(&mut self, id: TaskId) {
        let leaving = self.tasks.get_mut(&id).and_then(|task| task.leaving.take());
        if let Some((woken, _)) = leaving {
            self.forget(woken.wake);
        }
    }

    fn forget_woken(&mut self, id: TaskId) {
        let woken = self.tasks.get_mut(&id).and_then(|task| task.woken.take());
        if let Some(woken) = woken {
            self.forget(woken.wake);
        }
    }

    /// Drops a reference to a wake-up, and adds it up once there is none.
    fn forget(&mut self, number: u64) {
        if let Some(wake) = self.wakes.get_mut(&number) {
            wake.references -= 1;
            if wake.references == 0
                && let Some(wake) = self.wakes.remove(&number)
            {
                self.add(&wake);
            }
        }
    }

    fn add(&mut self, wake: &Wake) {
        let vain = wake.vain.len();
        if let Some(mutex) = wake.mutex {
            self.found.entry(mutex).or_default().signals += 1;
        }
        let Some(mutex) = wake.mutex.filter(|_| wake.woken >= HERD && vain * 2 >= wake.woken as usize) else {
            return;
        };
        let herds = self.found.entry(mutex).or_default();
        herds.wakes += 1;
        herds.woken += i64::from(wake.woken);
        herds.vain += i64::try_from(vain).unwrap_or(i64::MAX);
        for (task, ns) in &wake.vain {
            herds.vain_ns = herds.vain_ns.saturating_add(*ns);
            let of_task = herds.by_task.entry(*task).or_default();
            *of_task = of_task.saturating_add(*ns);
        }
    }

    /// Ends everything: nothing goes across a loss.
    fn end(&mut self) {
        let wakes: Vec<Wake> = self.wakes.drain().map(|(_, wake)| wake).collect();
        wakes.iter().for_each(|wake| self.add(wake));
        self.tasks.clear();
        self.last.clear();
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
            // The wait must be the last thing that the task did with a condition variable, and its mutex its last release.
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
            // The task's rows from then on: releases of the mutex right before a wait, before anything else ends it.
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
            // One lock becomes a condition variable, and the time of each task's release is that of its next wait.
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
