//! Builds the [`Program`] of a recording from its rows in their order.
//!
//! A row of a lock becomes a step, and the time since the step before becomes work, less the time that the
//! task waited or was off the CPU. What a wait took is forgotten, but for what it says about locks: how long
//! hand-offs take.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use trace_format::{Event, EventKind, LockId, LockKind, Mode, StackId, TaskId, run_info::Covers};

use super::{
    links::IdleLinks,
    others::{self, Life, OffCpu},
    program::{Action, Facts, MAX_SLICES, Program, SLICE_NS, TaskProgram},
};
use crate::{
    context::{Context, TaskStart},
    engine::open_list::{Keyed, OpenList},
    numbers::Numbered,
};

mod holds;
mod lock;
mod time;

use lock::Lock;

/// The signal by which a thread is started, and the object that it waits for until then: a thread starts when
/// its creator has come to the time at which it created it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Birth {
    signal: u32,
    object: u32,
}

#[derive(Clone, Copy, Debug)]
struct OpenWait {
    lock: LockId,
    since_ns: i64,
    stack: Option<StackId>,
}

/// The off-CPU times for each processor that a program is known to have, and one more, from which on it had
/// no others.
const OFF_CPU_TIMES: u64 = 8;

/// The number of a task in the builder.
type TaskIndex = u32;

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
    held: OpenList<(u32, Mode)>,
    /// Sleep that is not followed by such a step yet.
    sleep_ns: i64,
    /// Its times off the CPU, if the recording has them for all tasks.
    off_cpu: Vec<OffCpu>,
}

/// A lock that a task holds.
impl Keyed for (u32, Mode) {
    type Key = u32;

    fn key(&self) -> u32 {
        self.0
    }
}

/// Builds a program.
pub(crate) struct Builder<'a> {
    context: &'a Context<'a>,
    /// Whether a sleep without a known cause ends at its recorded time.
    idle_open: bool,
    from_ns: i64,
    tasks: Numbered<Task>,
    locks: Numbered<Lock>,
    links: IdleLinks,
    /// The threads that each task created, in the order of their starts, with the times.
    created: FxHashMap<TaskId, Vec<(i64, TaskId)>>,
    /// The signals by which threads start.
    births: FxHashMap<TaskId, Birth>,
    /// The processors on which its tasks ran again, and the number of these times.
    seen: (BTreeSet<i32>, u64),
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
        let (tasks, locks, links, births, seen) = Default::default();
        let facts = Facts { has_all_states: context.covers == Covers::All, ..Facts::default() };
        Self { context, idle_open, from_ns, tasks, locks, links, created, births, seen, facts }
    }

    /// Adds the next row.
    pub(crate) fn push(&mut self, row: &Event) {
        self.facts.rows += 1;
        let Some(id) = row.task.filter(|_| row.kind != EventKind::Lost) else { return };
        let task = self.task(id, row.ts_ns);
        self.create_until(task, row.ts_ns);
        match (row.kind, row.lock) {
            (EventKind::OffCpu, _) => {
                self.seen.0.extend(row.cpu);
                self.seen.1 += 1;
                self.off_cpu(task, row);
            }
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
        let cpus = self.processors();
        let Self { context, from_ns, tasks, locks, links, mut facts, .. } = self;
        let mut tasks: Vec<(i32, Task)> = tasks.into_values().filter(|(_, task)| task.end.0 > 0).collect();
        tasks.sort_unstable_by_key(|(id, _)| *id);
        let begin_ns = tasks.iter().map(|(_, task)| task.start_ns).min().unwrap_or(from_ns);
        let mut end_ns = begin_ns;
        let lives = tasks.iter().map(|(_, task)| Life {
            start_ns: task.start_ns,
            end_ns: task.last_row_ns,
            off_cpu: &task.off_cpu,
        });
        let of_others = cpus.filter(|_| facts.has_all_states);
        let mut others = of_others.map_or_else(Vec::new, |cpus| others::of_others(lives, cpus));
        others.iter_mut().for_each(|(ns, _)| *ns = ns.saturating_sub(begin_ns));
        let mut programs = Vec::with_capacity(tasks.len());
        for (id, task) in tasks {
            let Task { start_ns, birth, mut actions, end: (steps, ns), sleep_ns, .. } = task;
            actions.truncate(steps);
            end_ns = end_ns.max(ns);
            facts.lives_ns = facts.lives_ns.saturating_add(ns.saturating_sub(start_ns));
            facts.sleep_ns = facts.sleep_ns.saturating_add(sleep_ns);
            let is_later = birth.is_none() && start_ns > begin_ns;
            facts.later_tasks += u64::from(is_later);
            for action in &mut actions {
                if let Action::SleepUntil(ns) = action {
                    *ns = ns.saturating_sub(begin_ns);
                }
            }
            let start_ns = if is_later { start_ns.saturating_sub(begin_ns) } else { 0 };
            programs.push(TaskProgram { task: TaskId(id), start_ns, actions });
        }
        facts.others_ns = others::sum_ns(&others, end_ns.saturating_sub(begin_ns));
        let (signals, rounds, latency_ns) = links.finish();
        Program {
            tasks: programs,
            locks: locks.into_values().map(|(id, lock)| lock.facts(LockId(id), context)).collect(),
            signals,
            rounds,
            latency_ns,
            cpus,
            others,
            slice_ns: SLICE_NS.max(facts.lives_ns / MAX_SLICES),
            recorded_ns: end_ns.saturating_sub(begin_ns),
            facts,
        }
    }

    /// Returns the number of processors that the program had: those of the machine, or, if its tasks were
    /// ready and had none, those on which they were seen. For example, `taskset` had bound it to some of
    /// them.
    fn processors(&self) -> Option<u32> {
        let all = Some(self.context.cpus).filter(|cpus| *cpus > 0)?;
        let (processors, times) = &self.seen;
        let seen = u32::try_from(processors.len()).unwrap_or(u32::MAX);
        let is_bound = seen > 0 && self.facts.ready_ns > 0 && *times >= OFF_CPU_TIMES * (u64::from(seen) + 1);
        Some(if is_bound { all.min(seen) } else { all })
    }

    fn is_barrier(&self, lock: LockId) -> bool {
        (self.context.kind)(lock) == Some(LockKind::Barrier)
    }

    /// Returns the number of a task, whose first row may be this one.
    fn task(&mut self, id: TaskId, ns: i64) -> TaskIndex {
        if let Some(task) = self.tasks.find(id.0) {
            return task;
        }
        let is_known = |start: &TaskStart| (self.from_ns..=ns).contains(&start.ns);
        let start = (self.context.start)(id).filter(is_known);
        let start_ns = start.map_or(self.from_ns.min(ns), |start| start.ns);
        let birth = start.and_then(|start| start.creator).map(|_| self.birth(id));
        let wait = |Birth { signal, object }: Birth| Action::Await { signal, object };
        let (actions, end) = (birth.map(wait).into_iter().collect(), (0, start_ns));
        let (at_ns, last_row_ns) = (start_ns, start_ns);
        self.tasks.number(id.0, || Task {
            start_ns,
            birth,
            actions,
            at_ns,
            last_row_ns,
            end,
            ..Task::default()
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
    fn create_until(&mut self, task: TaskIndex, to_ns: i64) {
        let id = TaskId(self.tasks.id(task));
        let next = |builder: &Self| builder.created.get(&id)?.get(builder.tasks[task].created).copied();
        while let Some((ns, child)) = next(self).filter(|(ns, _)| *ns <= to_ns) {
            self.tasks[task].created += 1;
            if ns >= self.from_ns {
                let birth = self.birth(child);
                self.step(task, ns, Action::Signal(birth.signal));
            }
        }
    }

    /// Adds the threads that tasks created after their last rows. A thread whose creator has no rows starts
    /// when it did.
    fn create_all(&mut self) {
        let mut children: Vec<(i32, TaskIndex)> = self.tasks.iter().map(|(id, _)| id).zip(0..).collect();
        children.sort_unstable();
        for (id, child) in children {
            let start = (self.context.start)(TaskId(id));
            let Some(creator) = start.and_then(|start| start.creator) else { continue };
            let creator = self.tasks.find(creator.0);
            let child = &mut self.tasks[child];
            let start_ns = child.start_ns;
            match creator {
                Some(creator) => self.create_until(creator, start_ns),
                None if child.birth.take().is_some() => {
                    child.actions.remove(0);
                    child.end.0 = child.end.0.saturating_sub(1);
                }
                None => {}
            }
        }
    }
}
