//! The steps of tasks in a replay: what each does to locks, signals and barriers, and the time of the next
//! step.

use trace_format::Mode;

use super::{Held, Phase, Replay, Task, WOKEN};
use crate::whatif::{
    change::{HeldSleep, LockChange},
    program::{Action, QueueOrder},
};

impl Replay<'_> {
    /// Takes the next step of a task. Returns whether the one after it is due at once.
    pub(super) fn step(&mut self, task: usize) -> bool {
        let Some(action) = self.tasks[task].actions.get(self.tasks[task].next).copied() else {
            self.end(task);
            return false;
        };
        self.tasks[task].next += 1;
        match action {
            Action::Work(ns) => self.work(task, ns),
            Action::Sleep(ns) => self.sleep(task, ns),
            Action::SleepUntil(ns) => self.sleep(task, ns - self.now_ns),
            Action::Ready(ns) => {
                let is_dropped = self.changes_held(task, |change| change.no_preempt);
                self.pause(task, if is_dropped { 0 } else { ns })
            }
            Action::Acquire { lock, site, mode } => self.acquire(task, lock, site, mode),
            Action::Release { lock, .. } => self.release(task, lock),
            Action::Await { signal, .. } => self.awaits(task, signal),
            Action::Signal(signal) => {
                self.signal(signal);
                true
            }
            Action::Meet { round, .. } => self.meet(task, round),
        }
    }

    /// Whether a change of a lock that the task holds is like this.
    fn changes_held(&self, task: usize, is_it: impl Fn(&LockChange) -> bool) -> bool {
        let Task { held, pausing, .. } = &self.tasks[task];
        *pausing > 0 && held.iter().any(|held| is_it(&self.changes.locks[held.lock as usize]))
    }

    fn takes(&mut self, task: usize, held: Held) {
        self.tasks[task].pausing += usize::from(self.changes.locks[held.lock as usize].is_pausing());
        self.tasks[task].held.push(held);
        self.result.taken[held.lock as usize].add(self.now_ns);
    }

    /// Takes the lock at a place from a task.
    fn gives(&mut self, task: usize, at: usize) {
        if let Some(held) = self.tasks[task].held.remove(at) {
            self.tasks[task].pausing -= usize::from(self.changes.locks[held.lock as usize].is_pausing());
            self.free(held);
        }
    }

    fn work(&mut self, task: usize, ns: i64) -> bool {
        let ns = match self.tasks[task].held.iter().next_back() {
            Some(held) => self.changes.locks[held.lock as usize].scale(held.site, ns),
            None => ns,
        };
        if ns <= 0 {
            return true;
        }
        if self.processors.is_none() || self.changes_held(task, |change| change.no_preempt) {
            self.step_at(task, self.now_ns + ns);
        } else {
            self.needs_processor(task, ns);
        }
        false
    }

    fn sleep(&mut self, task: usize, ns: i64) -> bool {
        if ns <= 0 || self.changes_held(task, |change| change.sleep == HeldSleep::LeftOut) {
            return true;
        }
        if self.changes_held(task, |change| change.sleep == HeldSleep::Later) {
            self.tasks[task].later_ns += ns;
            return true;
        }
        self.blocks(task);
        self.pause(task, ns)
    }

    fn pause(&mut self, task: usize, ns: i64) -> bool {
        if ns > 0 {
            self.step_at(task, self.now_ns + ns);
        }
        ns <= 0
    }

    fn acquire(&mut self, task: usize, lock: u32, site: u32, mode: Mode) -> bool {
        let at = lock as usize;
        if self.progress_sites.binary_search(&site).is_ok() {
            self.result.progress = (self.result.progress.0 + 1, self.now_ns);
        }
        let own = &mut self.tasks[task].held;
        if let Some(held) = own.last_of(lock).and_then(|at| own.get_mut(at)) {
            held.depth += 1;
            return true;
        }
        let change = &self.changes.locks[at];
        let number = self.acquired[at];
        self.acquired[at] += 1;
        let mode = change.mode(mode, site, number, self.variant.seed);
        let target = change.target(at, task, number, self.variant.seed);
        let held = Held { lock, target, mode, site, depth: 1 };
        let (capacity, order) = (self.program.locks[at].capacity, self.order(at));
        if change.removed || self.locks[target].takes(mode, capacity, order) {
            self.takes(task, held);
            return true;
        }
        self.locks[target].queue(task, mode);
        self.tasks[task].wanted = Some((held, self.now_ns));
        self.blocks(task);
        false
    }

    /// Returns the rules of the queue of a lock.
    fn order(&self, lock: usize) -> QueueOrder {
        let is_fifo = self.variant.fifo || self.changes.locks[lock].fifo;
        if is_fifo { QueueOrder::Fifo } else { self.program.locks[lock].order }
    }

    /// Lets a woken waiter try to take its lock.
    pub(super) fn tries(&mut self, task: usize, target: usize) {
        let Some((held, since_ns)) = self.tasks[task].wanted else { return };
        let lock = held.lock as usize;
        let (capacity, order) = (self.program.locks[lock].capacity, self.order(lock));
        let takes = self.locks[target].tries(task, held.mode, capacity, order);
        if takes {
            self.result.waited_ns[lock] += self.now_ns - since_ns;
            self.tasks[task].wanted = None;
            self.takes(task, held);
        }
        self.wake(target, lock);
        if takes {
            self.step_at(task, self.now_ns);
        }
    }

    fn release(&mut self, task: usize, lock: u32) -> bool {
        let own = &mut self.tasks[task].held;
        let Some(at) = own.last_of(lock) else { return true };
        if let Some(held) = own.get_mut(at).filter(|held| held.depth > 1) {
            held.depth -= 1;
            return true;
        }
        self.gives(task, at);
        // Sleep that still has to come later is put off again.
        let later_ns = std::mem::take(&mut self.tasks[task].later_ns);
        self.sleep(task, later_ns)
    }

    fn free(&mut self, held: Held) {
        let lock = held.lock as usize;
        if !self.changes.locks[lock].removed {
            self.locks[held.target].frees(held.mode);
            self.wake(held.target, lock);
        }
    }

    /// Wakes the waiters of a lock that could take it.
    fn wake(&mut self, target: usize, lock: usize) {
        let facts = &self.program.locks[lock];
        let order = self.order(lock);
        let handoff_ns =
            self.changes.locks[lock].handoff_ns.unwrap_or(facts.handoff_ns[self.variant.handoff]);
        for task in self.locks[target].wakes(facts.capacity, order) {
            self.tasks[task].phase = Phase::Trying(target);
            self.push(task, self.now_ns + handoff_ns, WOKEN);
        }
    }

    fn awaits(&mut self, task: usize, signal: u32) -> bool {
        if self.signalled[signal as usize] {
            return true;
        }
        self.awaiting.entry(signal).or_default().push(task as u32);
        self.blocks(task);
        false
    }

    fn signal(&mut self, signal: u32) {
        self.signalled[signal as usize] = true;
        for task in self.awaiting.remove(&signal).unwrap_or_default() {
            self.resume(task as usize);
        }
    }

    fn meet(&mut self, task: usize, round: u32) -> bool {
        let waiting = self.meeting.entry(round).or_default();
        if waiting.len() + 1 < self.program.rounds[round as usize] as usize {
            waiting.push(task as u32);
            self.blocks(task);
            return false;
        }
        for other in self.meeting.remove(&round).unwrap_or_default() {
            self.resume(other as usize);
        }
        true
    }

    /// Lets a task go on that waited idly, after the time that this takes.
    fn resume(&mut self, task: usize) {
        let of = &self.tasks[task];
        let object = match of.actions.get(of.next - 1) {
            Some(Action::Await { object, .. } | Action::Meet { object, .. }) => *object as usize,
            _ => return,
        };
        self.step_at(task, self.now_ns + self.program.latency_ns[object]);
    }

    /// Ends a task, and what it still holds.
    fn end(&mut self, task: usize) {
        self.tasks[task].phase = Phase::Done;
        self.result.ns = self.result.ns.max(self.now_ns);
        while let Some(last) = self.tasks[task].held.end().checked_sub(1) {
            self.gives(task, last);
        }
        self.blocks(task);
    }
}
