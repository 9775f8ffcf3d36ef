//! The state of a lock in a replay: the tasks that have it, and the tasks that wait for it.

use std::collections::VecDeque;

use trace_format::Mode;

use super::program::QueueOrder;

#[derive(Debug, Default)]
pub(super) struct LockState {
    writers: u32,
    readers: u32,
    queue: VecDeque<Waiter>,
    /// The waiters in the queue that were woken, and those that want it exclusively.
    awake: u32,
    waiting_writers: u32,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    task: usize,
    mode: Mode,
    is_awake: bool,
}

impl LockState {
    fn is_free(&self, mode: Mode, capacity: u32) -> bool {
        match mode {
            Mode::Exclusive => self.readers == 0 && self.writers < capacity,
            Mode::Shared => self.writers == 0,
        }
    }

    fn count(&mut self, mode: Mode) -> &mut u32 {
        match mode {
            Mode::Exclusive => &mut self.writers,
            Mode::Shared => &mut self.readers,
        }
    }

    /// Gives the lock to a task that comes, if it is free and nobody comes first. Returns whether the task
    /// has it.
    pub(super) fn takes(&mut self, mode: Mode, capacity: u32, order: QueueOrder) -> bool {
        let must_wait = match order {
            QueueOrder::Fifo => !self.queue.is_empty(),
            QueueOrder::WritersFirst => mode == Mode::Shared && self.waiting_writers > 0,
            QueueOrder::Overtaking | QueueOrder::KeepsPlace => false,
        };
        let takes = !must_wait && self.is_free(mode, capacity);
        if takes {
            *self.count(mode) += 1;
        }
        takes
    }

    /// Adds a task behind all others.
    pub(super) fn queue(&mut self, task: usize, mode: Mode) {
        self.waiting_writers += u32::from(mode == Mode::Exclusive);
        self.queue.push_back(Waiter { task, mode, is_awake: false });
    }

    /// Gives the lock to a waiter that was woken, if it is free. Otherwise the waiter waits again.
    pub(super) fn tries(&mut self, task: usize, mode: Mode, capacity: u32, order: QueueOrder) -> bool {
        let Some(at) = self.queue.iter().position(|waiter| waiter.task == task) else { return false };
        self.awake -= 1;
        if self.is_free(mode, capacity) {
            self.queue.remove(at);
            self.waiting_writers -= u32::from(mode == Mode::Exclusive);
            *self.count(mode) += 1;
            return true;
        }
        self.queue[at].is_awake = false;
        if order == QueueOrder::Overtaking {
            let waiter = self.queue.remove(at);
            self.queue.extend(waiter);
        }
        false
    }

    /// Ends a hold.
    pub(super) fn frees(&mut self, mode: Mode) {
        let count = self.count(mode);
        *count = count.saturating_sub(1);
    }

    /// Wakes the first waiter if it could take the lock and no other one is on its way; if it is a reader,
    /// all readers, but where nobody overtakes only those in front of the first writer. Returns the tasks.
    pub(super) fn wakes(&mut self, capacity: u32, order: QueueOrder) -> Vec<usize> {
        let mut woken = Vec::new();
        let Some(first) = self.queue.front().copied() else { return woken };
        if !self.is_free(first.mode, capacity) {
            return woken;
        }
        let overtakes = matches!(order, QueueOrder::Overtaking | QueueOrder::KeepsPlace);
        let most = match first.mode {
            Mode::Exclusive => capacity - self.writers,
            Mode::Shared if self.awake == 0 => u32::MAX,
            Mode::Shared => 0,
        };
        for waiter in &mut self.queue {
            if waiter.mode == Mode::Exclusive && first.mode == Mode::Shared {
                if overtakes { continue } else { break }
            }
            if self.awake >= most || waiter.mode != first.mode {
                break;
            }
            if !waiter.is_awake {
                waiter.is_awake = true;
                self.awake += 1;
                woken.push(waiter.task);
            }
        }
        woken
    }
}
