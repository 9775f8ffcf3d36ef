//! Random programs that take and release locks, as histories of events: locks exclude, and only owners
//! release.

use proptest::{collection::vec, prelude::*, sample::Index};
use trace_format::{Event, EventKind, LockId, LockKind, Mode, StackId, TaskId};

pub(super) const TASKS: i32 = 4;
/// The locks of the random programs. A waiting writer stops new readers of the `RwSem`. The `Semaphore`
/// counts. Tasks wait idly for the `Barrier`.
pub(super) const KINDS: [LockKind; 6] = [
    LockKind::RwSem,
    LockKind::Mutex,
    LockKind::RwLock,
    LockKind::Semaphore,
    LockKind::Mutex,
    LockKind::Barrier,
];

/// The next move of a task.
#[derive(Clone, Debug)]
pub(super) struct Move {
    pub(super) task: i32,
    pub(super) lock: usize,
    pub(super) mode: Mode,
    pub(super) stack: i32,
    /// Whether it releases a lock, if it holds one; or gives up its wait.
    pub(super) lets_go: bool,
    pub(super) which: Index,
    pub(super) step: i64,
}

pub(super) fn moves(most: usize) -> impl Strategy<Value = Vec<Move>> {
    let mode = prop_oneof![3 => Just(Mode::Exclusive), 1 => Just(Mode::Shared)];
    let one = (0..TASKS, 0..KINDS.len(), mode, 0..3i32, prop::bool::weighted(0.35), any::<Index>(), 0..4i64);
    let one = one.prop_map(|(task, lock, mode, stack, lets_go, which, step)| Move {
        task,
        lock,
        mode,
        stack,
        lets_go,
        which,
        step,
    });
    vec(one, 0..most)
}

/// Locks that exclude as they should, and the tasks that hold or await them.
pub(super) struct Program<'a> {
    kinds: &'a [LockKind],
    /// By task: locks, modes and depths.
    pub(super) held: [Vec<(usize, Mode, i32)>; TASKS as usize],
    waits: [Option<(usize, Mode, i64)>; TASKS as usize],
    now_ns: i64,
    pub(super) events: Vec<Event>,
}

impl<'a> Program<'a> {
    pub(super) fn new(kinds: &'a [LockKind]) -> Self {
        Self {
            kinds,
            held: Default::default(),
            waits: [None; TASKS as usize],
            now_ns: 1000,
            events: Vec::new(),
        }
    }

    pub(super) fn push(
        &mut self,
        task: usize,
        kind: EventKind,
        lock: usize,
        mode: Mode,
        (stack, wait_ns): (i32, Option<i64>),
    ) {
        self.events.push(Event {
            task: Some(TaskId(task as i32)),
            lock: Some(LockId(lock as i32)),
            mode: Some(mode),
            stack: Some(StackId(stack)),
            wait_ns,
            ..Event::new(self.now_ns, kind, 0)
        });
    }

    /// Whether no other task has the lock in a way that excludes this mode.
    fn is_free(&self, task: usize, lock: usize, mode: Mode) -> bool {
        let counts = self.kinds[lock] == LockKind::Semaphore;
        let allows = |(of, other, _): &(usize, Mode, i32)| {
            *of != lock || counts || mode == Mode::Shared && *other == Mode::Shared
        };
        self.held.iter().enumerate().all(|(owner, held)| owner == task || held.iter().all(allows))
    }

    pub(super) fn make(&mut self, step: &Move) {
        let Move { task, lock, mode, stack, lets_go, .. } = *step;
        let task = task as usize;
        self.now_ns += step.step;
        if let Some((lock, mode, since_ns)) = self.waits[task] {
            let waited = Some(self.now_ns - since_ns);
            if self.is_free(task, lock, mode) && self.now_ns > since_ns {
                self.waits[task] = None;
                if self.kinds[lock] != LockKind::Barrier {
                    self.held[task].push((lock, mode, 1));
                }
                self.push(task, EventKind::Acquire, lock, mode, (stack, waited));
            } else if lets_go {
                self.waits[task] = None;
                self.push(task, EventKind::Abandon, lock, mode, (stack, waited));
            }
            return;
        }
        if lets_go && !self.held[task].is_empty() {
            let at = step.which.index(self.held[task].len());
            let (lock, mode, depth) = &mut self.held[task][at];
            let (lock, mode) = (*lock, *mode);
            *depth -= 1;
            if *depth == 0 {
                self.held[task].remove(at);
            }
            return self.push(task, EventKind::Release, lock, mode, (stack, None));
        }
        // A semaphore counts in one mode; a lock is taken again in the mode in which it is held, by writers
        // only.
        let mode = if matches!(self.kinds[lock], LockKind::RwSem | LockKind::RwLock) {
            mode
        } else {
            Mode::Exclusive
        };
        if let Some((_, mode, depth)) = self.held[task].iter_mut().find(|(of, ..)| *of == lock) {
            let (mode, is_writer) =
                (*mode, *mode == Mode::Exclusive && self.kinds[lock] != LockKind::Semaphore);
            if is_writer {
                *depth += 1;
                self.push(task, EventKind::Acquire, lock, mode, (stack, Some(0)));
            }
        } else if self.kinds[lock] != LockKind::Barrier && self.is_free(task, lock, mode) {
            self.held[task].push((lock, mode, 1));
            self.push(task, EventKind::Acquire, lock, mode, (stack, Some(0)));
        } else {
            self.waits[task] = Some((lock, mode, self.now_ns));
            self.push(task, EventKind::Wait, lock, mode, (stack, None));
        }
    }
}

/// Returns the events of a program that makes these moves.
pub(super) fn program(moves: &[Move], kinds: &[LockKind]) -> Vec<Event> {
    let mut program = Program::new(kinds);
    moves.iter().for_each(|step| program.make(step));
    program.events
}

/// Returns the history with a loss before the event at `at`, after which tasks hold nothing that they held
/// before.
pub(super) fn with_loss(events: Vec<Event>, at: usize) -> Vec<Event> {
    let (before, after) = events.split_at(at.min(events.len()));
    let ts_ns = before.last().map_or(0, |event| event.ts_ns);
    let mut all = before.to_vec();
    all.push(Event { count: Some(1), ..Event::new(ts_ns, EventKind::Lost, 0) });
    let mut held: Vec<(Option<TaskId>, Option<LockId>)> = Vec::new();
    for event in after {
        let key = (event.task, event.lock);
        match event.kind {
            EventKind::Acquire => held.push(key),
            EventKind::Release => match held.iter().position(|known| *known == key) {
                Some(at) => drop(held.swap_remove(at)),
                // It ends a hold from before the loss.
                None => continue,
            },
            _ => {}
        }
        all.push(*event);
    }
    all
}
