//! Waits and holds in a program that is being built: the steps of tasks at rows of waits, acquisitions and
//! releases.

use trace_format::{Event, LockId, LockKind, Mode};

use super::{Builder, OpenWait, TaskIndex, lock::Lock};
use crate::whatif::{links::IdleEnd, program::Action};

impl Builder<'_> {
    /// Opens a wait. A wait inside another one is part of it.
    pub(super) fn begin_wait(&mut self, task: TaskIndex, lock: LockId, row: &Event) {
        if self.tasks[task].wait.is_some() {
            return;
        }
        self.tasks[task].wait = Some(OpenWait { lock, since_ns: row.ts_ns, stack: row.stack });
        if let Some(index) = self.locks.find(lock.0) {
            self.locks[index].waiting.push_back(task);
        }
        if self.is_barrier(lock) {
            self.links.arrive(lock, task, row.ts_ns);
        }
    }

    pub(super) fn acquire(&mut self, task: TaskIndex, lock: LockId, row: &Event) {
        let open = self.tasks[task].wait.take();
        let at_ns = self.tasks[task].at_ns;
        let since_ns = match (open, row.wait_ns) {
            (Some(wait), _) => Some(wait.since_ns.max(at_ns)),
            (None, Some(ns)) if ns > 0 => Some(row.ts_ns.saturating_sub(ns).clamp(at_ns, row.ts_ns)),
            _ => None,
        };
        let stack = open.and_then(|wait| wait.stack).or(row.stack);
        let is_thread = (self.context.kind)(lock) == Some(LockKind::Thread);
        if is_thread || (self.context.idle)(lock, stack) {
            if let Some(since_ns) = since_ns.or(is_thread.then_some(row.ts_ns)) {
                let end = self.links.ended(lock, task, (since_ns, row.ts_ns), is_thread);
                self.idle_wait(task, end, since_ns, row.ts_ns);
            }
            return;
        }
        let mode = row.mode.unwrap_or(Mode::Exclusive);
        if !self.context.rules.measures(lock, mode) {
            // Nobody knows when it is free again. The time stays the task's own.
            let waited_ns = since_ns.map_or(0, |since_ns| row.ts_ns - since_ns);
            self.facts.unmeasured_ns = self.facts.unmeasured_ns.saturating_add(waited_ns);
            return;
        }
        if let (Some(since_ns), Some(blocked_ns)) = (since_ns, row.blocked_ns) {
            let waited_ns = row.ts_ns - since_ns;
            let spun_ns = (waited_ns - blocked_ns - row.runq_ns.unwrap_or(0)).max(0);
            self.facts.measured_wait_ns = self.facts.measured_wait_ns.saturating_add(waited_ns);
            self.facts.spun_ns = self.facts.spun_ns.saturating_add(spun_ns);
        }
        self.waits_no_more(task, lock);
        let index = self.locks.number(lock.0, Lock::default);
        let site = (self.context.site)(lock, row.stack);
        self.end_unseen(task, index, mode, lock);
        let of = &mut self.locks[index];
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
        if !self.tasks[task].held.has(index) {
            of.holders.add(task, mode);
        }
        of.was_held = true;
        self.tasks[task].held.push((index, mode));
        self.step(task, since_ns.unwrap_or(row.ts_ns), Action::Acquire { lock: index, site, mode });
        let task = &mut self.tasks[task];
        task.at_ns = task.at_ns.max(row.ts_ns);
        task.end.1 = task.end.1.max(row.ts_ns);
    }

    /// Ends the holds of other tasks that this acquisition excludes: their releases are not on record. They
    /// ended at the last row of their task.
    fn end_unseen(&mut self, task: TaskIndex, lock: u32, mode: Mode, id: LockId) {
        let rules = &self.context.rules;
        let is_over = |other| rules.excludes(id, mode) || rules.excludes(id, other);
        for holder in self.locks[lock].holders.others(task, is_over) {
            self.locks[lock].holders.remove(holder);
            while let Some(at) = self.tasks[holder].held.last_of(lock) {
                let Some((_, mode)) = self.tasks[holder].held.remove(at) else { break };
                let ns = self.tasks[holder].at_ns;
                self.step(holder, ns, Action::Release { lock, mode });
            }
        }
    }

    pub(super) fn waits_no_more(&mut self, task: TaskIndex, lock: LockId) {
        let Some(index) = self.locks.find(lock.0) else { return };
        let of = &mut self.locks[index];
        if let Some(at) = of.waiting.iter().position(|other| *other == task) {
            of.waiting.remove(at);
        }
        of.woken = of.woken.filter(|(woken, _)| *woken != task);
    }

    fn idle_wait(&mut self, task: TaskIndex, end: IdleEnd, since_ns: i64, ns: i64) {
        let action = match end {
            IdleEnd::Unknown => {
                self.facts.unknown_wakers += u64::from(since_ns < ns);
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

    pub(super) fn release(&mut self, task: TaskIndex, lock: LockId, row: &Event) {
        if !self.context.rules.measures_holds(lock) {
            return;
        }
        let index = self.locks.number(lock.0, Lock::default);
        let mode = row.mode.unwrap_or(Mode::Exclusive);
        let held = &mut self.tasks[task].held;
        let same = held.of(index).find(|at| held.get(*at).is_some_and(|(_, held)| *held == mode));
        let at = same.or_else(|| held.last_of(index));
        let of = &mut self.locks[index];
        let mode = match at.and_then(|at| held.remove(at)) {
            Some((_, mode)) => {
                if !held.has(index) {
                    of.holders.remove(task);
                }
                mode
            }
            // It was held at the start, unless another task held it since.
            None if !of.was_held => {
                let site = u32::MAX;
                let task = &mut self.tasks[task];
                task.actions
                    .insert(usize::from(task.birth.is_some()), Action::Acquire { lock: index, site, mode });
                mode
            }
            // The end of a hold that another task's has ended, or of one from before: it is the task's own
            // time.
            None => return self.lasts_until(task, row.ts_ns),
        };
        of.was_held = true;
        of.released_ns = Some(row.ts_ns);
        if of.woken.is_none() {
            of.woken = of.waiting.front().map(|first| (*first, row.ts_ns));
        }
        if self.context.rules.excludes(lock, mode) {
            of.released_exclusively_ns = Some(row.ts_ns);
        }
        self.step(task, row.ts_ns, Action::Release { lock: index, mode });
    }
}
