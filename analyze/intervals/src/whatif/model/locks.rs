//! Locks in the model: an acquisition looks through the holds of all tasks, and waits in a list.

use trace_format::Mode;

use super::{Does, Hold, Model};
use crate::whatif::program::QueueOrder;

impl Model<'_> {
    fn order(&self, lock: usize) -> QueueOrder {
        if self.variant.fifo || self.changes.locks[lock].fifo {
            QueueOrder::Fifo
        } else {
            self.program.locks[lock].order
        }
    }

    /// Whether the holds of a lock let another one begin.
    fn is_free(&self, wanted: &Hold) -> bool {
        let holds = || {
            let holds = self.tasks.iter().flat_map(|task| &task.holds);
            holds.filter(|hold| hold.target == wanted.target && !self.changes.locks[hold.lock].removed)
        };
        let writers = holds().filter(|hold| hold.mode == Mode::Exclusive).count();
        let readers = holds().count() - writers;
        match wanted.mode {
            Mode::Exclusive => readers == 0 && writers < self.program.locks[wanted.lock].capacity as usize,
            Mode::Shared => writers == 0,
        }
    }

    pub(super) fn acquire(&mut self, at: usize, lock: usize, site: u32, mode: Mode) {
        if let Some(hold) = self.tasks[at].holds.iter_mut().find(|hold| hold.lock == lock) {
            hold.times += 1;
            return;
        }
        let change = &self.changes.locks[lock];
        let number = self.numbers[lock];
        self.numbers[lock] += 1;
        let mode = change.mode(mode, site, number, self.variant.seed);
        let target = change.target(lock, at, number, self.variant.seed);
        let wanted = Hold { lock, target, mode, site, times: 1 };
        let queue = &self.queues[target];
        let must_wait = match self.order(lock) {
            QueueOrder::Fifo => !queue.is_empty(),
            QueueOrder::WritersFirst => {
                mode == Mode::Shared && queue.iter().any(|(_, wanted)| wanted.mode == Mode::Exclusive)
            }
            _ => false,
        };
        if change.removed || !must_wait && self.is_free(&wanted) {
            self.taken_ns[wanted.lock].push(self.now_ns);
            self.tasks[at].holds.push(wanted);
        } else {
            self.queues[target].push((at, wanted));
            self.tasks[at].does = Does::Waits;
            self.blocks(at);
        }
    }

    pub(super) fn tries(&mut self, at: usize) {
        let is_it = |(task, _): &(usize, Hold)| *task == at;
        let target = self.queues.iter().position(|queue| queue.iter().any(is_it)).unwrap();
        let place = self.queues[target].iter().position(is_it).unwrap();
        let wanted = self.queues[target][place].1.clone();
        let lock = wanted.lock;
        if self.is_free(&wanted) {
            self.queues[target].remove(place);
            self.taken_ns[wanted.lock].push(self.now_ns);
            self.tasks[at].holds.push(wanted);
            self.tasks[at].does = Does::Pauses(0);
        } else {
            self.tasks[at].does = Does::Waits;
            if self.order(lock) == QueueOrder::Overtaking {
                let waiter = self.queues[target].remove(place);
                self.queues[target].push(waiter);
            }
        }
        self.wake(target, lock);
    }

    pub(super) fn freed(&mut self, hold: &Hold) {
        if !self.changes.locks[hold.lock].removed {
            self.wake(hold.target, hold.lock);
        }
    }

    /// Wakes those at the front of the queue that could have the lock.
    fn wake(&mut self, target: usize, lock: usize) {
        let facts = &self.program.locks[lock];
        let change = &self.changes.locks[lock];
        let handoff_ns = change.handoff_ns.unwrap_or(facts.handoff_ns[self.variant.handoff]);
        let in_line = matches!(self.order(lock), QueueOrder::Fifo | QueueOrder::WritersFirst);
        let queue = self.queues[target].clone();
        let Some((_, first)) = queue.first() else { return };
        if !self.is_free(first) {
            return;
        }
        let is_on_its_way = |task: usize| matches!(self.tasks[task].does, Does::Wakes(_));
        let on_their_way = queue.iter().filter(|(task, _)| is_on_its_way(*task)).count();
        if first.mode == Mode::Shared {
            if on_their_way > 0 {
                return;
            }
            let readers: Vec<usize> = if in_line {
                let front = queue.iter().take_while(|(_, wanted)| wanted.mode == Mode::Shared);
                front.map(|(task, _)| *task).collect()
            } else {
                let readers = queue.iter().filter(|(_, wanted)| wanted.mode == Mode::Shared);
                readers.map(|(task, _)| *task).collect()
            };
            for task in readers {
                self.tasks[task].does = Does::Wakes(handoff_ns);
            }
            return;
        }
        let holds = self.tasks.iter().flat_map(|task| &task.holds);
        let writers = holds.filter(|hold| hold.target == target).count();
        let mut free = (facts.capacity as usize - writers).saturating_sub(on_their_way);
        for (task, wanted) in &queue {
            if wanted.mode == Mode::Shared || free == 0 {
                break;
            }
            if self.tasks[*task].does == Does::Waits {
                self.tasks[*task].does = Does::Wakes(handoff_ns);
                free -= 1;
            }
        }
    }
}
