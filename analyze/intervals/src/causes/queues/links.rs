//! Links between queues, as waits and payers change, and the time that chains pass to their roots.
//!
//! Changes are linked at the end of their nanosecond, when all its rows are known. Until then the chains are
//! as in the nanosecond before, and no time passes.

use super::Queues;
use crate::{
    causes::{
        chains::{ChainEnd, Changes, Due, Share},
        tasks::{Link, Step, Task, TaskIndex},
    },
    items::{Caused, Detail, Item, Passed, Payer, Sink},
};

impl<R: Sink> Queues<'_, R> {
    pub(super) fn changed_task(&mut self, task: TaskIndex) {
        if self.receiver.needs().chains {
            self.changes.tasks.push(task);
        }
    }

    pub(super) fn changed_queue(&mut self, queue: u32) {
        if self.receiver.needs().chains {
            self.changes.queues.push(queue);
        }
    }

    /// Links the queues as they are after all rows of the nanosecond.
    pub(in crate::causes) fn settle_chains(&mut self) {
        while let Some(task) = self.changes.tasks.pop() {
            self.link_task(task);
        }
        while let Some(queue) = self.changes.queues.pop() {
            let payer = self.all[queue as usize].task;
            let link = payer.map_or(Link::default(), |payer| self.tasks.get(payer).link);
            self.chains.set_next(queue, link.queue.filter(|_| !link.is_idle), self.now_ns);
        }
        self.take_due();
        self.free.append(&mut self.changes.closed);
    }

    /// Finds the wait of a task that chains go through.
    fn link_task(&mut self, index: TaskIndex) {
        let task = self.tasks.get(index);
        let (link, nested) = task.new_link();
        let before = std::mem::replace(&mut task.link, link);
        let nested_before = std::mem::replace(&mut task.nested, nested);
        if link != before {
            self.changes.queues.extend(&task.pays);
            for (Link { queue, counts, .. }, waits) in [(before, -1), (link, 1)] {
                if let Some(queue) = queue.filter(|_| counts) {
                    self.chains.add_waits(queue, waits, self.now_ns);
                }
            }
        }
        if nested != nested_before {
            self.flush_nested();
            self.changes.nested += nested - nested_before;
        }
    }

    /// Sends the time of nested waits since the last change.
    pub(super) fn flush_nested(&mut self) {
        let Changes { nested, nested_since_ns, .. } = &mut self.changes;
        let since_ns = std::mem::replace(nested_since_ns, self.now_ns);
        if *nested > 0 {
            let ns = self.now_ns.saturating_sub(since_ns).saturating_mul(*nested);
            self.receiver.push(Item::Nested(ns));
        }
    }

    /// Sends the time of chains to the payers at their ends.
    pub(super) fn take_due(&mut self) {
        let Self { chains, all, tasks, receiver, unseen, uncovered, .. } = self;
        for Due { queue, share, from_ns, until_ns, waits } in chains.due.drain(..) {
            let (lock, payer, task) = {
                let queue = &all[queue as usize];
                (queue.lock, queue.payer, queue.task)
            };
            let ns = until_ns.saturating_sub(from_ns).saturating_mul(waits);
            let (state, detail) = (None, Detail::None);
            match share {
                Share::Passed { to } => {
                    let to = all[to as usize].lock;
                    receiver.push(Item::Passed(&Passed { lock, payer, to, ns }));
                }
                Share::End(ChainEnd { depth, is_received, mut waiters, is_cycle }) => {
                    let payer = if is_cycle { Payer::Cycle } else { payer };
                    if let Some(task) = task.filter(|_| !is_cycle) {
                        let step = Step {
                            is_covered: !uncovered.contains(&lock),
                            lock,
                            payer,
                            depth,
                            is_received,
                            from_ns,
                            until_ns,
                            waits,
                            waiters,
                        };
                        tasks.pay(task, step, false, receiver);
                        continue;
                    }
                    if payer == Payer::Unknown {
                        waiters = unseen.add(lock, depth, (from_ns, until_ns), waits);
                    }
                    let caused = Caused { lock, payer, depth, is_received, waiters, state, detail, ns };
                    receiver.push(Item::Caused(&caused));
                }
            }
        }
    }
}

impl Task {
    /// Returns the wait that chains go through, and the number of other waits whose time would count.
    fn new_link(&self) -> (Link, i64) {
        let counted = self.waits.iter().filter(|wait| wait.is_selected).count() as i64;
        match self.state_wait() {
            Some(wait) => {
                let (queue, counts, is_idle) = (wait.queue, wait.is_selected, wait.is_idle);
                (Link { queue, counts, is_idle }, counted - i64::from(counts))
            }
            None => (Link::default(), 0),
        }
    }
}
