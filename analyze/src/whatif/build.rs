//! Builds the program of a recording: rows enter in their order, a [`Program`] leaves.
//!
//! A row of a lock becomes a step, and the time since the step before becomes work, less the time that the task waited or was off the CPU. What a
//! wait took is forgotten, but for what it says about locks: how long hand-offs take.

use rustc_hash::FxHashMap;
use trace_format::{Event, EventKind, LockId, LockKind, Mode, StackId, TaskId, TaskState, run_info::Covers};

use super::{
    links::{IdleEnd, IdleLinks},
    others::{self, Life, OffCpu},
    program::{Action, Facts, LockFacts, Program, QueueOrder, SLICE_NS, TaskProgram},
};
use crate::engine::Rules;

/// Facts about a trace that its rows do not have.
pub(crate) struct Context<'a> {
    pub(crate) rules: Rules,
    pub(crate) kind: Box<dyn Fn(LockId) -> Option<LockKind> + 'a>,
    /// Whether a wait for a lock at a stack is idle.
    pub(crate) idle: Box<dyn Fn(LockId, Option<StackId>) -> bool + 'a>,
    /// Returns the number of the acquisition site of a stack.
    pub(crate) site: Box<dyn Fn(LockId, Option<StackId>) -> u32 + 'a>,
    /// Returns the start of a task, if it is known.
    pub(crate) start_ns: Box<dyn Fn(TaskId) -> Option<i64> + 'a>,
    pub(crate) covers: Covers,
    pub(crate) cpus: u32,
    /// Whether a sleep without a known cause ends at its recorded time.
    pub(crate) idle_open: bool,
}

/// A wait that is open.
#[derive(Clone, Copy, Debug)]
struct OpenWait {
    lock: LockId,
    since_ns: i64,
    stack: Option<StackId>,
}

/// The steps of a task so far.
#[derive(Debug)]
struct Task {
    start_ns: i64,
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

/// The acquisitions of a lock so far.
#[derive(Debug)]
struct Lock {
    id: LockId,
    sites: Vec<u32>,
    handoffs_ns: Vec<i64>,
    /// The tasks that wait for it, the first one first; the one that was woken, and when; the times until such tasks ran.
    waiting: Vec<usize>,
    woken: Option<(usize, i64)>,
    wakeups_ns: Vec<i64>,
    waited_ns: i64,
    released_ns: Option<i64>,
    released_exclusively_ns: Option<i64>,
    /// The tasks that hold it, by index.
    holders: Vec<(usize, Mode)>,
    most_holders: u32,
    was_held: bool,
}

/// Builds a program.
pub(crate) struct Builder<'a> {
    context: &'a Context<'a>,
    from_ns: i64,
    tasks: Vec<Task>,
    task_ids: FxHashMap<TaskId, usize>,
    locks: Vec<Lock>,
    lock_ids: FxHashMap<LockId, u32>,
    links: IdleLinks,
    facts: Facts,
}

impl<'a> Builder<'a> {
    /// Returns a builder for a program that starts at a time of the trace.
    pub(crate) fn new(context: &'a Context<'a>, from_ns: i64) -> Self {
        Self {
            context,
            from_ns,
            tasks: Vec::new(),
            task_ids: FxHashMap::default(),
            locks: Vec::new(),
            lock_ids: FxHashMap::default(),
            links: IdleLinks::default(),
            facts: Facts::default(),
        }
    }

    /// Adds the next row.
    pub(crate) fn push(&mut self, row: &Event) {
        self.facts.rows += 1;
        let Some(id) = row.task.filter(|_| row.kind != EventKind::Lost) else { return };
        let task = self.task(id, row.ts_ns);
        match (row.kind, row.lock) {
            (EventKind::OffCpu, _) => self.off_cpu(task, row),
            (EventKind::Wait, Some(lock)) => self.begin_wait(task, lock, row),
            // Whatever a task does inside of a wait is part of that wait.
            (_, Some(lock)) if self.tasks[task].wait.is_some_and(|wait| wait.lock != lock) => {}
            (EventKind::Acquire, Some(lock)) => self.acquire(task, lock, row),
            (EventKind::Abandon, Some(lock)) => {
                let wait = self.tasks[task].wait.take();
                self.links.leaves(lock, task);
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
                let signal = self.links.wakes(lock, task, row.ts_ns);
                self.step(task, row.ts_ns, Action::Signal(signal));
            }
            _ => {}
        }
        self.tasks[task].last_row_ns = row.ts_ns;
    }

    /// Returns the program.
    pub(crate) fn finish(self) -> Program {
        let Self { context, from_ns, tasks, task_ids, locks, links, mut facts, .. } = self;
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
            let Task { start_ns, mut actions, end: (steps, ns), sleep_ns, .. } = task;
            actions.truncate(steps);
            end_ns = end_ns.max(ns);
            facts.lives_ns = facts.lives_ns.saturating_add(ns - start_ns);
            facts.sleep_ns = facts.sleep_ns.saturating_add(sleep_ns);
            facts.later_tasks += u64::from(start_ns > begin_ns);
            for action in &mut actions {
                if let Action::SleepUntil(ns) = action {
                    *ns -= begin_ns;
                }
            }
            programs.push(TaskProgram { task: id, start_ns: start_ns - begin_ns, actions });
        }
        others.iter_mut().for_each(|(ns, _)| *ns -= begin_ns);
        facts.others_ns = others::sum_ns(&others, end_ns - begin_ns);
        let (signals, rounds, latency_ns) = links.finish();
        Program {
            tasks: programs,
            locks: locks.into_iter().map(|lock| lock.facts(context)).collect(),
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
        let is_known = |start_ns: &i64| (self.from_ns..=ns).contains(start_ns);
        let start_ns = (self.context.start_ns)(id).filter(is_known).unwrap_or(self.from_ns.min(ns));
        let at = self.tasks.len();
        self.tasks.push(Task {
            start_ns,
            actions: Vec::new(),
            at_ns: start_ns,
            last_row_ns: start_ns,
            wait: None,
            end: (0, start_ns),
            held: Vec::new(),
            sleep_ns: 0,
            off_cpu: Vec::new(),
        });
        self.task_ids.insert(id, at);
        at
    }

    /// Returns the index of a lock.
    fn lock(&mut self, id: LockId) -> u32 {
        *self.lock_ids.entry(id).or_insert_with(|| {
            self.locks.push(Lock {
                id,
                sites: Vec::new(),
                handoffs_ns: Vec::new(),
                waiting: Vec::new(),
                woken: None,
                wakeups_ns: Vec::new(),
                waited_ns: 0,
                released_ns: None,
                released_exclusively_ns: None,
                holders: Vec::new(),
                most_holders: 1,
                was_held: false,
            });
            u32::try_from(self.locks.len() - 1).unwrap_or(u32::MAX)
        })
    }

    /// Adds work up to this time.
    fn work(&mut self, task: usize, to_ns: i64) {
        let task = &mut self.tasks[task];
        let ns = to_ns - task.at_ns;
        if ns > 0 {
            match task.actions.last_mut() {
                Some(Action::Work(last)) => *last += ns,
                _ => task.actions.push(Action::Work(ns)),
            }
            task.at_ns = to_ns;
        }
    }

    /// Adds a sleep, and work before it.
    fn sleep(&mut self, task: usize, from_ns: i64, to_ns: i64) {
        self.work(task, from_ns);
        let task = &mut self.tasks[task];
        let ns = to_ns - task.at_ns.max(from_ns);
        if ns > 0 {
            if task.held.is_empty() {
                task.sleep_ns += ns;
            }
            let is_open = self.context.idle_open && task.held.is_empty();
            task.actions.push(if is_open { Action::SleepUntil(to_ns) } else { Action::Sleep(ns) });
            task.at_ns = to_ns;
        }
    }

    /// Adds a step that is not time, and work before it.
    fn step(&mut self, task: usize, ns: i64, action: Action) {
        self.work(task, ns);
        let task = &mut self.tasks[task];
        task.actions.push(action);
        task.end = (task.actions.len(), task.at_ns.max(ns));
    }

    fn off_cpu(&mut self, task: usize, row: &Event) {
        let off_ns = row.wait_ns.unwrap_or(0).max(0);
        let left_ns = row.ts_ns.saturating_sub(off_ns).max(self.tasks[task].last_row_ns);
        if let Some(wait) = self.tasks[task].wait {
            self.is_off(task, left_ns, row.ts_ns, row.ts_ns);
            let of = self.lock_ids.get(&wait.lock).map(|index| &mut self.locks[*index as usize]);
            // It runs again, and tries to take the lock.
            if let Some(of) = of
                && let Some((_, woken_ns)) = of.woken.take_if(|(woken, _)| *woken == task)
            {
                of.wakeups_ns.push(row.ts_ns - woken_ns);
            }
            return;
        }
        if row.state == Some(TaskState::Mixed) {
            // When it slept is not known.
            let slept_ns = row.blocked_ns.unwrap_or(0).clamp(0, row.ts_ns - left_ns);
            self.sleep(task, row.ts_ns - slept_ns, row.ts_ns);
            return;
        }
        let woken_ns = match (row.state, row.blocked_ns) {
            (Some(TaskState::Runnable), _) => left_ns,
            (_, Some(ns)) => left_ns.saturating_add(ns.max(0)).min(row.ts_ns),
            (_, None) => row.ts_ns,
        };
        self.is_off(task, left_ns, woken_ns, row.ts_ns);
        self.work(task, left_ns);
        self.sleep(task, left_ns, woken_ns);
        let task = &mut self.tasks[task];
        let ready_ns = row.ts_ns - task.at_ns;
        if ready_ns > 0 {
            self.facts.ready_ns = self.facts.ready_ns.saturating_add(ready_ns);
            if self.context.covers != Covers::All {
                task.actions.push(Action::Ready(ready_ns));
            }
            task.at_ns = row.ts_ns;
        }
    }

    /// Notes a time off the CPU, if those of all tasks are recorded.
    fn is_off(&mut self, task: usize, left_ns: i64, ready_ns: i64, back_ns: i64) {
        if self.context.covers == Covers::All {
            self.tasks[task].off_cpu.push(OffCpu { left_ns, ready_ns, back_ns });
        }
    }

    /// Opens a wait. A wait inside another one is part of it.
    fn begin_wait(&mut self, task: usize, lock: LockId, row: &Event) {
        if self.tasks[task].wait.is_some() {
            return;
        }
        self.tasks[task].wait = Some(OpenWait { lock, since_ns: row.ts_ns, stack: row.stack });
        if let Some(index) = self.lock_ids.get(&lock) {
            self.locks[*index as usize].waiting.push(task);
        }
        if self.is_barrier(lock) {
            self.links.arrives(lock, task, row.ts_ns);
        }
    }

    fn acquire(&mut self, task: usize, lock: LockId, row: &Event) {
        let open = self.tasks[task].wait.take();
        let at_ns = self.tasks[task].at_ns;
        let since_ns = match (open, row.wait_ns) {
            (Some(wait), _) => Some(wait.since_ns.max(at_ns)),
            (None, Some(ns)) if ns > 0 => Some(row.ts_ns.saturating_sub(ns).clamp(at_ns, row.ts_ns)),
            _ => None,
        };
        let stack = open.and_then(|wait| wait.stack).or(row.stack);
        if (self.context.idle)(lock, stack) {
            if let Some(since_ns) = since_ns {
                self.idle_wait(task, lock, since_ns, row.ts_ns);
            }
            return;
        }
        let mode = row.mode.unwrap_or(Mode::Exclusive);
        if !self.context.rules.measures(lock, mode) {
            // Nobody knows when it is free again. The time stays the task's own.
            self.facts.unmeasured_ns += since_ns.map_or(0, |since_ns| row.ts_ns - since_ns);
            return;
        }
        if let (Some(since_ns), Some(blocked_ns)) = (since_ns, row.blocked_ns) {
            let waited_ns = row.ts_ns - since_ns;
            self.facts.measured_wait_ns += waited_ns;
            self.facts.spun_ns += (waited_ns - blocked_ns - row.runq_ns.unwrap_or(0)).max(0);
        }
        self.waits_no_more(task, lock);
        let index = self.lock(lock);
        let site = (self.context.site)(lock, row.stack);
        self.end_unseen(task, index, mode, lock);
        let of = &mut self.locks[index as usize];
        if let Err(at) = of.sites.binary_search(&site) {
            of.sites.insert(at, site);
        }
        if let Some(since_ns) = since_ns {
            of.waited_ns = of.waited_ns.saturating_add(row.ts_ns - since_ns);
            let released_ns = match mode {
                Mode::Shared => of.released_exclusively_ns.or(of.released_ns),
                Mode::Exclusive => of.released_ns,
            };
            if let Some(released_ns) = released_ns {
                of.handoffs_ns.push(row.ts_ns - released_ns.max(since_ns));
            }
        }
        if self.tasks[task].held.iter().all(|(held, _)| *held != index) {
            of.holders.push((task, mode));
            let exclusive = of.holders.iter().filter(|(_, mode)| *mode == Mode::Exclusive).count();
            of.most_holders = of.most_holders.max(u32::try_from(exclusive).unwrap_or(u32::MAX));
        }
        of.was_held = true;
        self.tasks[task].held.push((index, mode));
        self.step(task, since_ns.unwrap_or(row.ts_ns), Action::Acquire { lock: index, site, mode });
        let task = &mut self.tasks[task];
        task.at_ns = task.at_ns.max(row.ts_ns);
        task.end.1 = task.end.1.max(row.ts_ns);
    }

    /// Ends the holds of other tasks that this acquisition excludes: their releases are not on record. They ended at the last row of their task.
    fn end_unseen(&mut self, task: usize, lock: u32, mode: Mode, id: LockId) {
        let rules = &self.context.rules;
        let is_over = |other: &(usize, Mode)| {
            other.0 != task && (rules.excludes(id, mode) || rules.excludes(id, other.1))
        };
        while let Some(at) = self.locks[lock as usize].holders.iter().position(is_over) {
            let (holder, _) = self.locks[lock as usize].holders.remove(at);
            while let Some(at) = self.tasks[holder].held.iter().rposition(|(held, _)| *held == lock) {
                let (_, mode) = self.tasks[holder].held.remove(at);
                let ns = self.tasks[holder].at_ns;
                self.step(holder, ns, Action::Release { lock, mode });
            }
        }
    }

    fn waits_no_more(&mut self, task: usize, lock: LockId) {
        let Some(index) = self.lock_ids.get(&lock) else { return };
        let of = &mut self.locks[*index as usize];
        of.waiting.retain(|other| *other != task);
        of.woken = of.woken.filter(|(woken, _)| *woken != task);
    }

    fn idle_wait(&mut self, task: usize, lock: LockId, since_ns: i64, ns: i64) {
        let action = match self.links.ended(lock, task, since_ns, ns) {
            IdleEnd::Unknown => {
                self.facts.unknown_wakers += 1;
                return self.sleep(task, since_ns, ns);
            }
            IdleEnd::Signal { signal, object } => Action::Await { signal, object },
            IdleEnd::Round { round, object } => Action::Meet { round, object },
        };
        self.step(task, since_ns, action);
        let task = &mut self.tasks[task];
        task.at_ns = task.at_ns.max(ns);
        task.end.1 = task.end.1.max(ns);
    }

    fn release(&mut self, task: usize, lock: LockId, row: &Event) {
        if !self.context.rules.measures_holds(lock) {
            return;
        }
        let index = self.lock(lock);
        let mode = row.mode.unwrap_or(Mode::Exclusive);
        let held = &mut self.tasks[task].held;
        let same = held.iter().rposition(|hold| *hold == (index, mode));
        let at = same.or_else(|| held.iter().rposition(|(held, _)| *held == index));
        let of = &mut self.locks[index as usize];
        let mode = match at {
            Some(at) => {
                let (_, mode) = held.remove(at);
                if held.iter().all(|(held, _)| *held != index) {
                    of.holders.retain(|(holder, _)| *holder != task);
                }
                mode
            }
            // It was held at the start, unless another task held it since.
            None if !of.was_held => {
                let site = u32::MAX;
                self.tasks[task].actions.insert(0, Action::Acquire { lock: index, site, mode });
                mode
            }
            None => return,
        };
        of.was_held = true;
        of.released_ns = Some(row.ts_ns);
        if of.woken.is_none() {
            of.woken = of.waiting.first().map(|first| (*first, row.ts_ns));
        }
        if self.context.rules.excludes(lock, mode) {
            of.released_exclusively_ns = Some(row.ts_ns);
        }
        self.step(task, row.ts_ns, Action::Release { lock: index, mode });
    }
}

impl Lock {
    fn facts(mut self, context: &Context<'_>) -> LockFacts {
        let kind = (context.kind)(self.id);
        // The release before an acquisition need not be the one that woke the waiter, if others overtake.
        let handoffs_ns =
            if self.wakeups_ns.is_empty() { &mut self.handoffs_ns } else { &mut self.wakeups_ns };
        handoffs_ns.sort_unstable();
        let quantile = |quarter: usize| {
            let last = handoffs_ns.len().saturating_sub(1);
            handoffs_ns.get(last * quarter / 4).copied().unwrap_or(0)
        };
        let order = match kind {
            Some(LockKind::SpinLock) => QueueOrder::Fifo,
            Some(LockKind::RwSem | LockKind::PercpuRwSem) => QueueOrder::WritersFirst,
            Some(kind) if kind.is_kernel() => QueueOrder::KeepsPlace,
            _ => QueueOrder::Overtaking,
        };
        let counts = !context.rules.excludes(self.id, Mode::Exclusive);
        LockFacts {
            lock: self.id,
            handoff_ns: [1, 2, 3].map(quantile),
            capacity: if counts { self.most_holders } else { 1 },
            order,
            waited_ns: self.waited_ns,
            sites: self.sites,
        }
    }
}
