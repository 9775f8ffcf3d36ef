//! Random histories of locks: arbitrary ones, because recorders lose events and programs have bugs, and
//! orderly ones, in which locks exclude and waits end.

#![allow(clippy::unwrap_used, reason = "only tests call this")]

use proptest::{collection::vec, option, prelude::*, sample::Index};
use trace_format::{
    Event, EventKind, LockId, LockKind, LockRow, Mode, RunInfo, Scope, StackId, Syscall, TaskId, TaskState,
    run_info::Source,
};

use super::Rules;

/// Kinds of the locks: one without recorded holds, a counting one, one with holds of writers only, an idle
/// one, two for chains, and two threads.
pub const KINDS: [LockKind; 10] = [
    LockKind::RwSem,
    LockKind::RwSem,
    LockKind::Mutex,
    LockKind::Semaphore,
    LockKind::PercpuRwSem,
    LockKind::CondVar,
    LockKind::RwSem,
    LockKind::RwSem,
    LockKind::Thread,
    LockKind::Thread,
];
/// The condition variable.
const IDLE: i32 = 5;
/// The first of the threads.
const FIRST_THREAD: i32 = 8;
/// Locks of orderly histories that exclude.
const CHAINED: [i32; 4] = [0, 1, 6, 7];
pub const TASKS: i32 = 4;
pub const STACKS: i32 = 3;
/// Stacks 0 and 1 have the same site.
pub const POINTS: [u32; STACKS as usize] = [0, 0, 1];

pub fn kind(lock: LockId) -> LockKind {
    KINDS[usize::try_from(lock.0).unwrap()]
}

/// A footer and locks for the histories below.
pub fn context() -> (RunInfo, Vec<LockRow>) {
    let source = |kind: LockKind| Source {
        kinds: vec![kind.to_string()],
        holds: kind != LockKind::Mutex,
        ..Source::default()
    };
    let info = RunInfo { sources: KINDS[1..].iter().copied().map(source).collect(), ..RunInfo::default() };
    let lock =
        |(id, kind): (i32, &LockKind)| LockRow { scope: Scope::Kernel, ..LockRow::new(LockId(id), *kind) };
    (info, (0..).zip(&KINDS).map(lock).collect())
}

pub fn rules() -> Rules {
    let (info, locks) = context();
    Rules::new(&info, &locks).with_points(POINTS.to_vec(), Vec::new())
}

pub fn end_of(events: &[Event]) -> i64 {
    events.last().map_or(0, |event| event.ts_ns) + 7
}

/// A random event, and its distance from the previous one.
fn any_event() -> impl Strategy<Value = (i64, Event)> {
    let kind = prop_oneof![
        4 => Just(EventKind::Wait),
        6 => Just(EventKind::Acquire),
        6 => Just(EventKind::Release),
        2 => Just(EventKind::Abandon),
        1 => Just(EventKind::TryFail),
        1 => prop_oneof![
            9 => Just(EventKind::Destroy),
            6 => Just(EventKind::Lost),
            6 => Just(EventKind::Init),
            1 => Just(EventKind::Wake),
            1 => Just(EventKind::OffCpu),
        ],
    ];
    let mode = prop_oneof![5 => Just(Some(Mode::Exclusive)), 4 => Just(Some(Mode::Shared)), 1 => Just(None)];
    let wait = prop_oneof![6 => Just(Some(0)), 3 => Just(None), 2 => (1..20i64).prop_map(Some)];
    let lock =
        prop_oneof![8 => Just(0), 3 => Just(1), 1 => Just(2), 3 => Just(3), 2 => Just(4), 1 => Just(5)];
    // A third of the events share the time of the one before, and a few come late.
    let step = prop_oneof![10 => Just(0i64), 20 => 0..6i64, 1 => -4..0i64];
    (step, kind, mode, lock, 0..TASKS, 0..STACKS, wait).prop_map(
        |(step, kind, mode, lock, task, stack, wait)| {
            let mut event = Event::new(0, kind, 0);
            if kind != EventKind::Lost {
                event.mode = mode;
                event.lock = Some(LockId(lock));
                event.task = Some(TaskId(task));
                event.stack = Some(StackId(stack));
            }
            if matches!(kind, EventKind::Acquire | EventKind::Abandon) {
                event.wait_ns = wait;
                // Blocked time, run-queue time and waker, some of them unknown.
                (event.blocked_ns, event.runq_ns) =
                    [(None, None), (Some(2), Some(1)), (Some(1), None)][stack as usize];
                event.peer_task = (stack == 1).then_some(TaskId((task + 2) % TASKS));
            }
            if kind == EventKind::Wait {
                event.peer_task = (stack == 0).then_some(TaskId((task + 1) % TASKS));
            }
            (step, event)
        },
    )
}

/// Arbitrary histories.
pub fn history() -> impl Strategy<Value = Vec<Event>> {
    vec(any_event(), 0..60).prop_map(|steps| {
        let mut now = 1000;
        let at = |(step, event): (i64, Event)| {
            now += step;
            Event { ts_ns: now, ..event }
        };
        steps.into_iter().map(at).collect()
    })
}

/// Histories of correct programs on two locks: all waits end, and only owners release.
pub fn orderly_history() -> impl Strategy<Value = Vec<Event>> {
    orderly_steps(2, 80).prop_map(|steps| orderly_events(steps, false))
}

/// Orderly histories in which a waiting task does nothing else and its locks are mostly exclusive, so that
/// waits form chains and cycles.
pub fn nested_history() -> impl Strategy<Value = Vec<Event>> {
    orderly_steps(CHAINED.len(), 160).prop_map(|steps| orderly_events(steps, true))
}

/// Histories in which tasks wait while they hold, with what the orderly ones lack: waits that are known only
/// from their ends, hand-overs, downgrades, upgrades, failed tries, owners that the lock word named, holds of
/// no length, and idle waits.
pub fn shaped_history() -> impl Strategy<Value = Vec<Event>> {
    (nested_history(), vec((0..8u8, any::<[Index; 2]>(), 0..TASKS), 0..12)).prop_map(
        |(mut events, shapes)| {
            for (shape, places, other) in shapes {
                if !events.is_empty() {
                    add_shape(&mut events, shape, places, TaskId(other));
                }
            }
            events
        },
    )
}

/// Changes the history at a place; what a change begins may end at a later one.
fn add_shape(events: &mut Vec<Event>, shape: u8, [place, later]: [Index; 2], other: TaskId) {
    // The next row that the change is for.
    let is_for = |event: &Event| match shape {
        0 | 5 => event.kind == EventKind::Wait,
        1 => event.kind == EventKind::Release,
        2 => event.kind == EventKind::Release && event.mode == Some(Mode::Exclusive),
        3 => event.kind == EventKind::Acquire && event.mode == Some(Mode::Shared),
        _ => true,
    };
    let from = place.index(events.len());
    let Some(at) = (from..events.len()).find(|at| is_for(&events[*at])) else { return };
    let row = events[at];
    let of = |kind, mode, wait_ns| Event { kind, mode: Some(mode), wait_ns, peer_task: None, ..row };
    let mut end = None;
    match shape {
        0 => drop(events.remove(at)),
        1 => events[at].task = Some(other),
        2 => {
            events.insert(at + 1, of(EventKind::Acquire, Mode::Shared, Some(0)));
            end = Some(of(EventKind::Release, Mode::Shared, None));
        }
        3 => {
            events.insert(at + 1, of(EventKind::Wait, Mode::Exclusive, None));
            end = Some(of(EventKind::Abandon, Mode::Exclusive, None));
        }
        4 => {
            let failure = Event { task: Some(other), ..of(EventKind::TryFail, Mode::Exclusive, None) };
            events.insert(at, failure);
        }
        5 => events[at].peer_task = Some(other),
        6 => {
            for (kind, wait_ns) in [(EventKind::Release, None), (EventKind::Acquire, Some(0))] {
                events.insert(at + 1, Event { task: Some(other), ..of(kind, Mode::Exclusive, wait_ns) });
            }
        }
        _ => {
            let idle = |kind| Event { lock: Some(LockId(IDLE)), ..of(kind, Mode::Exclusive, None) };
            events.insert(at, idle(EventKind::Wait));
            end = Some(idle(EventKind::Acquire));
        }
    }
    if let Some(end) = end {
        let after = at + 2 + later.index(events.len() - at);
        let after = after.min(events.len());
        events.insert(after, Event { ts_ns: events[after - 1].ts_ns, ..end });
    }
}

/// A lock, a task, a mode, whether the task gives up or keeps what it has, and the distance from the step
/// before.
type OrderlyStep = (usize, i32, Mode, bool, i64);

fn orderly_steps(locks: usize, most: usize) -> impl Strategy<Value = Vec<OrderlyStep>> {
    let mode = prop_oneof![2 => Just(Mode::Exclusive), 1 => Just(Mode::Shared)];
    let step = prop_oneof![1 => Just(0), 2 => 0..5i64];
    vec((0..locks, 0..TASKS, mode, any::<bool>(), step), 0..most)
}

fn orderly_events(steps: Vec<OrderlyStep>, is_nested: bool) -> Vec<Event> {
    let mut locks: [Orderly; CHAINED.len()] = Default::default();
    let mut now = 1000;
    let mut events = Vec::new();
    for (lock, task, mode, gives_up, step) in steps {
        now += step;
        let is_elsewhere = locks.iter().enumerate().any(|(at, other)| at != lock && other.is_waiting(task));
        if is_nested && (is_elsewhere || locks[lock].is_held(task) && gives_up) {
            continue;
        }
        if let Some((kind, mode, wait_ns)) = locks[lock].next(task, mode, gives_up, now) {
            let (lock, task) = (Some(LockId(CHAINED[lock])), Some(TaskId(task)));
            let stack = Some(StackId(2 * i32::from(gives_up)));
            events.push(Event { lock, task, mode: Some(mode), stack, wait_ns, ..Event::new(now, kind, 0) });
        }
    }
    events
}

/// A lock that excludes as it should.
#[derive(Default)]
struct Orderly {
    owners: Vec<(i32, Mode)>,
    waiting: Vec<(i32, Mode, i64)>,
}

impl Orderly {
    fn is_waiting(&self, task: i32) -> bool {
        self.waiting.iter().any(|(waiter, ..)| *waiter == task)
    }

    fn is_held(&self, task: i32) -> bool {
        self.owners.iter().any(|(owner, _)| *owner == task)
    }

    /// Returns the next event of `task`.
    fn next(
        &mut self,
        task: i32,
        mode: Mode,
        gives_up: bool,
        now: i64,
    ) -> Option<(EventKind, Mode, Option<i64>)> {
        if let Some(at) = self.owners.iter().position(|(owner, _)| *owner == task) {
            let (_, mode) = self.owners.remove(at);
            return Some((EventKind::Release, mode, None));
        }
        let place = self.waiting.iter().position(|(waiter, ..)| *waiter == task);
        let mode = place.map_or(mode, |place| self.waiting[place].1);
        let both_shared = |(_, other): &(i32, Mode)| mode == Mode::Shared && *other == Mode::Shared;
        let is_free = self.owners.iter().all(both_shared);
        match place {
            None if is_free && self.waiting.is_empty() => {
                self.owners.push((task, mode));
                Some((EventKind::Acquire, mode, Some(0)))
            }
            None => {
                self.waiting.push((task, mode, now));
                Some((EventKind::Wait, mode, None))
            }
            Some(place) if is_free || gives_up => {
                let (_, mode, since) = self.waiting.remove(place);
                if is_free {
                    self.owners.push((task, mode));
                }
                let kind = if is_free { EventKind::Acquire } else { EventKind::Abandon };
                Some((kind, mode, Some(now - since)))
            }
            Some(_) => None,
        }
    }
}

/// A join: the thread, who joins it and who is it, the places of the end, the wait and the return, and
/// whether it waits and gives up.
pub type Join = (i32, [i32; 2], [Index; 3], bool, bool);

/// Joins, most of them as in correct programs.
pub fn joins() -> impl Strategy<Value = Vec<Join>> {
    let places = [any::<Index>(), any::<Index>(), any::<Index>()];
    let waits = (prop::bool::weighted(0.8), prop::bool::weighted(0.1));
    let join = (0..2i32, [0..TASKS, 0..TASKS], places, waits);
    vec(
        join.prop_map(|(thread, tasks, places, (waits, gives_up))| (thread, tasks, places, waits, gives_up)),
        0..6,
    )
}

/// Inserts the rows of joins, each at the time of the row before it.
pub fn with_joins(events: &[Event], joins: &[Join]) -> Vec<Event> {
    let mut all = events.to_vec();
    for (thread, [joiner, joined], [wake, wait, end], waits, gives_up) in joins {
        let place = |index: &Index| index.index(events.len() + 1);
        let (first, last) = (place(wait).min(place(end)), place(wait).max(place(end)));
        let end = if *gives_up { EventKind::Abandon } else { EventKind::Acquire };
        let mut rows = vec![(place(wake), EventKind::Wake, *joined), (last, end, *joiner)];
        if *waits {
            rows.push((first, EventKind::Wait, *joiner));
        }
        // The last one first, so that it moves no other.
        rows.sort_by_key(|(at, kind, _)| std::cmp::Reverse((*at, *kind != EventKind::Wait)));
        for (at, kind, task) in rows {
            let ts_ns = at.checked_sub(1).map_or(990, |before| all[before].ts_ns);
            let mut event = Event::new(ts_ns, kind, 0);
            (event.lock, event.task) = (Some(LockId(FIRST_THREAD + thread)), Some(TaskId(task)));
            event.stack = Some(StackId(0));
            event.wait_ns = (kind == end && !waits).then_some(0);
            all.insert(at, event);
        }
    }
    all
}

/// Reorders events of equal time. The events of one task keep their order, and so do all events around one
/// that has no task.
pub fn reordered(events: &[Event], choices: &[Index]) -> Vec<Event> {
    let mut choices = choices.iter().cycle();
    let mut out = Vec::new();
    for group in events.chunk_by(|a, b| a.ts_ns == b.ts_ns) {
        let mut by_task: Vec<Vec<Event>> = Vec::new();
        for event in group {
            match by_task.iter_mut().find(|queue| queue[0].task == event.task) {
                Some(queue) => queue.push(*event),
                None => by_task.push(vec![*event]),
            }
        }
        while !by_task.is_empty() {
            let at = choices.next().map_or(0, |choice| choice.index(by_task.len()));
            out.push(by_task[at].remove(0));
            by_task.retain(|queue| !queue.is_empty());
        }
    }
    out
}

/// Off-CPU times, each with the place of its row.
pub fn off_cpu() -> impl Strategy<Value = Vec<(Index, Event)>> {
    let state = option::of(proptest::sample::select(TaskState::ALL));
    let left = (state, option::of((-1..2).prop_map(|number| Syscall::of_number(number).unwrap())));
    let row = (any::<Index>(), 0..TASKS, 0..30i64, option::of(0..30i64), left);
    vec(row, 0..20).prop_map(|rows| {
        let event = |(at, task, wait, blocked, (state, syscall)): (Index, i32, i64, Option<i64>, _)| {
            let mut event = Event { syscall, ..Event::new(0, EventKind::OffCpu, 0) };
            (event.task, event.state, event.stack) = (Some(TaskId(task)), state, Some(StackId(0)));
            (event.wait_ns, event.blocked_ns) = (Some(wait), blocked.map(|ns| ns.min(wait)));
            (at, event)
        };
        rows.into_iter().map(event).collect()
    })
}

/// Inserts off-CPU times, each at the time of the row before it, and gives late rows the time of the row
/// before them.
pub fn with_off_cpu(events: &[Event], off_cpu: &[(Index, Event)]) -> Vec<Event> {
    let mut all = events.to_vec();
    for (at, event) in off_cpu {
        let at = at.index(all.len() + 1);
        let ts_ns = at.checked_sub(1).map_or(990, |before| all[before].ts_ns);
        all.insert(at, Event { ts_ns, ..*event });
    }
    let mut now_ns = i64::MIN;
    for event in &mut all {
        now_ns = now_ns.max(event.ts_ns);
        event.ts_ns = now_ns;
        if event.kind == EventKind::OffCpu {
            event.lock = None;
        }
    }
    all
}
