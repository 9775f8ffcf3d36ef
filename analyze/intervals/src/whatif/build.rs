//! Builds the [`Program`] of a recording from its rows in their order.
//!
//! A row of a lock becomes a step, and the time since the step before becomes work, less the time that the task waited or was off the CPU. What a
//! wait took is forgotten, but for what it says about locks: how long hand-offs take.

use rustc_hash::FxHashMap;
use trace_format::{Event, EventKind, LockId, LockKind, Mode, StackId, TaskId, run_info::Covers};

use super::{
    links::IdleLinks,
    others::{self, Life, OffCpu},
    program::{Action, Facts, Program, SLICE_NS, TaskProgram},
};
use crate::context::{Context, TaskStart};

mod holds;
mod lock;
mod time;

use lock::Lock;

/// The signal by which a thread is started, and the object that it waits for until then: a thread starts when its creator has come to the time at
/// which it created it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Birth {
    signal: u32,
    object: u32,
}

/// A wait that is open.
#[derive(Clone, Copy, Debug)]
struct OpenWait {
    lock: LockId,
    since_ns: i64,
    stack: Option<StackId>,
}

/// The steps of a task so far.
#[derive(Debug, Default)]
struct Task {
    start_ns: i64,
    /// The signal by which its creator starts it.
    birth: Option<Birth>,
    /// The number of threads that it has created.
    created: usize,
    actions: Vec<Action>,
    /// The end of the last step.
    at_ns: i64,
    last_row_ns: i64,
    wait: Option<OpenWait>,
    /// The number of steps up to the last one that is not time, and its end.
    end: (usize, i64),
    held: Vec<(u32, Mode)>,
    /// Sleep that is not followed by such a step yet.
    sleep_ns: i64,
    /// Its times off the CPU, if those of all tasks are recorded.
    off_cpu: Vec<OffCpu>,
}

/// Builds a program.
pub(crate) struct Builder<'a> {
    context: &'a Context<'a>,
    /// Whether a sleep without a known cause ends at its recorded time.
    idle_open: bool,
    from_ns: i64,
    tasks: Vec<Task>,
    task_ids: FxHashMap<TaskId, usize>,
    locks: Vec<Lock>,
    lock_ids: FxHashMap<LockId, u32>,
    links: IdleLinks,
    /// The threads that each task created, in the order of their starts, with the times.
    created: FxHashMap<TaskId, Vec<(i64, TaskId)>>,
    /// The signals by which threads start.
    births: FxHashMap<TaskId, Birth>,
    facts: Facts,
}

impl<'a> Builder<'a> {
    /// Returns a builder for a program that starts at a time of the trace.
    pub(crate) fn new(context: &'a Context<'a>, idle_open: bool, from_ns: i64) -> Self {
        let mut created: FxHashMap<TaskId, Vec<(i64, TaskId)>> = FxHashMap::default();
        for task in &context.tasks {
            if let Some(TaskStart { ns, creator: Some(creator) }) = (context.start)(*task) {
                created.entry(creator).or_default().push((ns, *task));
            }
        }
        created.values_mut().for_each(|tasks| tasks.sort_unstable());
        let (tasks, task_ids, locks, lock_ids, links, births, facts) = Default::default();
        Self { context, idle_open, from_ns, tasks, task_ids, locks, lock_ids, links, created, births, facts }
    }

    /// Adds the next row.
    pub(crate) fn push(&mut self, row: &Event) {
        self.facts.rows += 1;
        let Some(id) = row.task.filter(|_| row.kind != EventKind::Lost) else { return };
        let task = self.task(id, row.ts_ns);
        self.create_until(task, id, row.ts_ns);
        match (row.kind, row.lock) {
            (EventKind::OffCpu, _) => self.off_cpu(task, row),
            (EventKind::Wait, Some(lock)) => self.begin_wait(task, lock, row),
            // Whatever a task does inside of a wait is part of that wait.
            (_, Some(lock)) if self.tasks[task].wait.is_some_and(|wait| wait.lock != lock) => {}
            (EventKind::Acquire, Some(lock)) => self.acquire(task, lock, row),
            (EventKind::Abandon, Some(lock)) => {
                let wait = self.tasks[task].wait.take();
                self.links.give_up(lock, task);
                self.waits_no_more(task, lock);
                self.facts.given_up += 1;
                // The time stays the task's own. An idle wait is a sleep.
                if let Some(wait) = wait.filter(|wait| (self.context.idle)(lock, wait.stack.or(row.stack))) {
                    self.sleep(task, wait.since_ns, row.ts_ns);
                }
            }
            (EventKind::TryFail, Some(_)) => self.facts.given_up += 1,
            (EventKind::Release, Some(lock)) => self.release(task, lock, row),
            (EventKind::Wake, Some(lock)) => {
                let signal = self.links.wake(lock, task, row.ts_ns);
                self.step(task, row.ts_ns, Action::Signal(signal));
            }
            _ => {}
        }
        self.tasks[task].last_row_ns = row.ts_ns;
    }

    /// Returns the program.
    pub(crate) fn finish(mut self) -> Program {
        self.create_all();
        let Self { context, from_ns, tasks, task_ids, locks, lock_ids, links, mut facts, .. } = self;
        let mut ids: Vec<(TaskId, usize)> = task_ids.into_iter().collect();
        ids.sort_unstable();
        let used = |at: &usize| tasks[*at].end.0 > 0;
        let first_ns = ids.iter().map(|(_, at)| *at).filter(used).map(|at| tasks[at].start_ns).min();
        let begin_ns = first_ns.unwrap_or(from_ns);
        let mut end_ns = begin_ns;
        let cpus = (context.covers == Covers::All && context.cpus > 0).then_some(context.cpus);
        let lives = tasks.iter().filter(|task| task.end.0 > 0).map(|task| Life {
            start_ns: task.start_ns,
            end_ns: task.last_row_ns,
            off_cpu: &task.off_cpu,
        });
        let mut others = cpus.map_or_else(Vec::new, |cpus| others::of_others(lives, cpus));
        let mut programs = Vec::with_capacity(ids.len());
        let mut by_index: Vec<Option<Task>> = tasks.into_iter().map(Some).collect();
        for (id, at) in ids {
            let Some(task) = by_index[at].take().filter(|task| task.end.0 > 0) else { continue };
            let Task { start_ns, birth, mut actions, end: (steps, ns), sleep_ns, .. } = task;
            actions.truncate(steps);
            end_ns = end_ns.max(ns);
            facts.lives_ns = facts.lives_ns.saturating_add(ns - start_ns);
            facts.sleep_ns = facts.sleep_ns.saturating_add(sleep_ns);
            let is_later = birth.is_none() && start_ns > begin_ns;
            facts.later_tasks += u64::from(is_later);
            for action in &mut actions {
                if let Action::SleepUntil(ns) = action {
                    *ns -= begin_ns;
                }
            }
            let start_ns = if is_later { start_ns - begin_ns } else { 0 };
            programs.push(TaskProgram { task: id, start_ns, actions });
        }
        others.iter_mut().for_each(|(ns, _)| *ns -= begin_ns);
        facts.others_ns = others::sum_ns(&others, end_ns - begin_ns);
        let (signals, rounds, latency_ns) = links.finish();
        let mut lock_ids: Vec<(u32, LockId)> = lock_ids.into_iter().map(|(id, at)| (at, id)).collect();
        lock_ids.sort_unstable();
        let facts_of = |((_, id), lock): ((u32, LockId), Lock)| lock.facts(id, context);
        Program {
            tasks: programs,
            locks: lock_ids.into_iter().zip(locks).map(facts_of).collect(),
            signals,
            rounds,
            latency_ns,
            cpus,
            others,
            slice_ns: SLICE_NS,
            recorded_ns: end_ns - begin_ns,
            facts,
        }
    }

    fn is_barrier(&self, lock: LockId) -> bool {
        (self.context.kind)(lock) == Some(LockKind::Barrier)
    }

    /// Returns the index of a task, whose first row may be this one.
    fn task(&mut self, id: TaskId, ns: i64) -> usize {
        if let Some(at) = self.task_ids.get(&id) {
            return *at;
        }
        let is_known = |start: &TaskStart| (self.from_ns..=ns).contains(&start.ns);
        let start = (self.context.start)(id).filter(is_known);
        let start_ns = start.map_or(self.from_ns.min(ns), |start| start.ns);
        let birth = start.and_then(|start| start.creator).map(|_| self.birth(id));
        let wait = |Birth { signal, object }: Birth| Action::Await { signal, object };
        let at = self.tasks.len();
        let (actions, end) = (birth.map(wait).into_iter().collect(), (0, start_ns));
        let (at_ns, last_row_ns) = (start_ns, start_ns);
        self.tasks.push(Task { start_ns, birth, actions, at_ns, last_row_ns, end, ..Task::default() });
        self.task_ids.insert(id, at);
        at
    }

    /// Returns the index of a lock.
    fn lock(&mut self, id: LockId) -> u32 {
        *self.lock_ids.entry(id).or_insert_with(|| {
            self.locks.push(Lock::default());
            u32::try_from(self.locks.len() - 1).unwrap_or(u32::MAX)
        })
    }

    /// Returns the signal by which a thread starts.
    fn birth(&mut self, id: TaskId) -> Birth {
        let Self { births, links, .. } = self;
        *births.entry(id).or_insert_with(|| {
            let (signal, object) = links.start();
            Birth { signal, object }
        })
    }

    /// Adds the threads that a task created until a time.
    fn create_until(&mut self, task: usize, id: TaskId, to_ns: i64) {
        let next = |builder: &Self| builder.created.get(&id)?.get(builder.tasks[task].created).copied();
        while let Some((ns, child)) = next(self).filter(|(ns, _)| *ns <= to_ns) {
            self.tasks[task].created += 1;
            if ns >= self.from_ns {
                let birth = self.birth(child);
                self.step(task, ns, Action::Signal(birth.signal));
            }
        }
    }

    /// Adds the threads that tasks created after their last rows. A thread whose creator has no rows starts when it did.
    fn create_all(&mut self) {
        let mut ids: Vec<(TaskId, usize)> = self.task_ids.iter().map(|(id, at)| (*id, *at)).collect();
        ids.sort_unstable();
        for &(id, _) in &ids {
            let Some(creator) = (self.context.start)(id).and_then(|start| start.creator) else { continue };
            let (child, creator) = (self.task_ids[&id], self.task_ids.get(&creator).map(|at| (*at, creator)));
            match creator {
                Some((at, creator)) => {
                    let start_ns = self.tasks[child].start_ns;
                    self.create_until(at, creator, start_ns);
                }
                None if self.tasks[child].birth.take().is_some() => {
                    self.tasks[child].actions.remove(0);
                    self.tasks[child].end.0 = self.tasks[child].end.0.saturating_sub(1);
                }
                None => {}
            }
        }
    }
}
