//! Collects the dependencies of a trace, in one pass over all its rows.
//!
//! A task wants a lock at a `wait` row, or at an `acquire` row without one. It does not if it has the lock
//! already, if it turns its exclusive hold into a shared one, or if the call was a try: the row says so, or
//! else its stack. A lock that was taken by a try is held from then on.
//!
//! Rows of all locks share one clock, the running maximum of their times.
//!
//! A task may hold a lock while it waits idly for others to do something, for a semaphore, say. That lock is
//! a gate of what these others do. Which tasks wait idly at a time is known when the clock moves on, so the
//! order of rows of equal time does not matter.

use std::{collections::BTreeMap, sync::Arc};

use rustc_hash::FxHashMap;
use trace_format::{CallKind, Event, EventKind, LockId, Mode, TaskId};

use super::{
    dependency::{Dependencies, Dependency, DependencyId},
    held::HeldLocks,
    node::Nodes,
};
use crate::{
    engine::{Engine, Rules, deadlock::Deadlock},
    input::names::Names,
};

/// Collects dependencies. `selects` returns whether the filter selects a row.
pub struct Collector<'a, F> {
    names: &'a Names,
    nodes: &'a Nodes<'a>,
    rules: Arc<Rules>,
    selects: F,
    engine: Engine,
    held: HeldLocks,
    tasks: FxHashMap<TaskId, TaskState>,
    dependencies: Dependencies,
    /// The tasks that held locks when they began to wait idly, for what, and since when.
    idle: BTreeMap<(TaskId, LockId), i64>,
    /// The dependencies of this nanosecond, with their tasks.
    fresh: Vec<(DependencyId, TaskId)>,
    now_ns: i64,
}

/// The most tasks that hold locks and wait idly, and the most of their locks, that are looked at for a
/// dependency.
const MAX_IDLE: usize = 64;

/// The state of a task besides its held locks.
#[derive(Debug, Default)]
struct TaskState {
    /// The locks that it waits for, with the dependencies that these waits made.
    waits: Vec<(LockId, Option<DependencyId>)>,
    /// The last exclusive hold that it released, and the time.
    released: Option<(LockId, i64)>,
}

/// The dependencies of a trace.
#[derive(Debug)]
pub struct Collected {
    pub(super) dependencies: Vec<Dependency>,
    /// Attempts that were not kept, because there were too many distinct nestings.
    pub dropped: u64,
    /// The deadlocks at the end.
    pub deadlocks: Vec<Deadlock>,
}

impl<'a, F: Fn(&Event) -> bool> Collector<'a, F> {
    pub fn new(names: &'a Names, nodes: &'a Nodes<'a>, rules: Arc<Rules>, selects: F) -> Self {
        Self {
            names,
            nodes,
            selects,
            engine: Engine::new(Arc::clone(&rules)),
            held: HeldLocks::new(Arc::clone(&rules)),
            rules,
            tasks: FxHashMap::default(),
            dependencies: Dependencies::default(),
            idle: BTreeMap::new(),
            fresh: Vec::new(),
            now_ns: i64::MIN,
        }
    }

    /// Adds the next row of the trace.
    pub fn push(&mut self, row: &Event) {
        let row = Event { ts_ns: row.ts_ns.max(self.now_ns), ..*row };
        if row.ts_ns > self.now_ns {
            self.settle();
            self.now_ns = row.ts_ns;
        }
        match (row.kind, row.task, row.lock) {
            (EventKind::Wait, Some(task), Some(lock)) => self.wait(task, lock, &row),
            (EventKind::Acquire, Some(task), Some(lock)) => self.acquire(task, lock, &row),
            (EventKind::Abandon, Some(task), Some(lock)) => drop(self.end_wait(task, lock, &row)),
            (EventKind::Release, Some(task), Some(lock)) if row.mode == Some(Mode::Exclusive) => {
                self.tasks.entry(task).or_default().released = Some((lock, row.ts_ns));
            }
            (EventKind::Lost, ..) => {
                self.tasks.clear();
                self.idle.clear();
            }
            _ => {}
        }
        self.engine.push(&row, &mut self.held);
    }

    /// Ends the trace.
    pub fn finish(mut self) -> Collected {
        self.settle();
        let deadlocks = self.engine.open_locks().deadlocks();
        let Dependencies { all, dropped, .. } = self.dependencies;
        Collected { dependencies: all, dropped, deadlocks }
    }

    /// Ends the nanosecond of the clock.
    fn settle(&mut self) {
        self.held.settle();
        for (id, task) in self.fresh.drain(..) {
            let (held, now_ns) = (&self.held, self.now_ns);
            let idle = self.idle.iter().take(MAX_IDLE);
            let others = idle.filter(|((idle, _), since_ns)| *idle != task && **since_ns < now_ns);
            let locks = others.flat_map(|((idle, _), _)| {
                held.exclusive_before(*idle, now_ns).take(MAX_IDLE).map(|lock| (lock, *idle))
            });
            self.dependencies.all[id as usize].restrict_behind(&locks.take(MAX_IDLE).collect::<Vec<_>>());
        }
    }

    fn wait(&mut self, task: TaskId, lock: LockId, row: &Event) {
        let is_waiting = |state: &TaskState| state.waits.iter().any(|(wanted, _)| *wanted == lock);
        if !self.tasks.get(&task).is_some_and(is_waiting) {
            if !self.rules.measures_holds(lock) && self.held.of(task).is_some_and(|held| !held.is_empty()) {
                self.idle.insert((task, lock), row.ts_ns);
            }
            let dependency = self.want(task, lock, row);
            self.tasks.entry(task).or_default().waits.push((lock, dependency));
        }
    }

    fn acquire(&mut self, task: TaskId, lock: LockId, row: &Event) {
        if self.end_wait(task, lock, row) {
            return;
        }
        let is_free = row.wait_ns == Some(0);
        let released = self.tasks.get(&task).and_then(|state| state.released);
        let is_downgrade = is_free && row.mode == Some(Mode::Shared) && released == Some((lock, row.ts_ns));
        let is_try = match row.call {
            Some(call) => call == CallKind::Try,
            None => is_free && self.names.is_try(lock, row.stack),
        };
        if !is_downgrade && !is_try {
            self.want(task, lock, row);
        }
    }

    /// Ends the wait of a task for a lock. Returns whether there was one.
    fn end_wait(&mut self, task: TaskId, lock: LockId, row: &Event) -> bool {
        let Some(state) = self.tasks.get_mut(&task) else { return false };
        self.idle.remove(&(task, lock));
        let Some(at) = state.waits.iter().position(|(wanted, _)| *wanted == lock) else { return false };
        let (_, dependency) = state.waits.swap_remove(at);
        self.select(dependency, row);
        true
    }

    /// Adds a dependency, if the task holds other locks and not this one.
    fn want(&mut self, task: TaskId, lock: LockId, row: &Event) -> Option<DependencyId> {
        let held = self.held.of(task)?;
        if held.is_empty() || held.has(lock) || !self.rules.measures_holds(lock) {
            return None;
        }
        let wanted = (task, lock, row.mode.unwrap_or(Mode::Exclusive), row.stack);
        let dependency = self.dependencies.add(self.nodes, held, wanted);
        self.fresh.extend(dependency.map(|id| (id, task)));
        self.select(dependency, row);
        dependency
    }

    /// Selects a dependency if the filter selects the row: the one that makes it, or the end of its wait.
    fn select(&mut self, dependency: Option<DependencyId>, row: &Event) {
        if let Some(id) = dependency {
            let dependency = &mut self.dependencies.all[id as usize];
            dependency.is_selected = dependency.is_selected || (self.selects)(row);
        }
    }
}
