//! Chains of queues, and waiting time by the root of its chain: the queue of a payer's own wait follows the
//! queue that it pays for.
//!
//! Each queue has at most one successor, so queues are trees whose roots are the ends of chains, and cycles.
//! A queue keeps its load: the waits whose chains lead through it, by the number of locks on the way. A link
//! or a wait that changes moves a load along one path, so it costs the depth of the chain, however many tasks
//! wait. In a cycle every queue is an end: no load goes around. A chain that would have more queues than
//! `LONGEST_CHAIN` ends where it reached that length.

use std::collections::BTreeSet;

use trace_format::LockId;

use super::tasks::TaskIndex;
use crate::items::Waiters;

/// The most queues of a chain: without a limit, a chain would take time and memory by the square of its
/// length.
const LONGEST_CHAIN: usize = 100;

/// The changes in the nanosecond of the clock, and the nested waits.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Tasks with a wait that began, ended or changed its queue.
    pub(super) tasks: Vec<TaskIndex>,
    /// Queues with another payer, or whose payer has another wait.
    pub(super) queues: Vec<u32>,
    /// Queues that are free once all others are linked.
    pub(super) closed: Vec<u32>,
    /// The number of waits inside other waits of the same task whose time would otherwise count.
    pub(super) nested: i64,
    pub(super) nested_since_ns: i64,
}

impl Changes {
    /// Whether nothing changed.
    pub(super) const fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.queues.is_empty() && self.closed.is_empty()
    }
}

/// Waiting time that was collected for one end of chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) queue: u32,
    pub(super) share: Share,
    pub(super) from_ns: i64,
    pub(super) until_ns: i64,
    /// The waits, whose number did not change meanwhile.
    pub(super) waits: i64,
}

/// The part that a queue has in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// Chains end at the queue.
    End(ChainEnd),
    /// Its own waits are passed to the next queue.
    Passed { to: u32 },
}

/// The end of the chains of some waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChainEnd {
    /// The number of locks in the chains.
    pub(super) depth: u32,
    /// Whether the waits are in another queue, so that the payer of the end is not theirs.
    pub(super) is_received: bool,
    /// The most waits at one time whose chains end there: at any depth, and at this depth.
    pub(super) waiters: Waiters,
    pub(super) is_cycle: bool,
}

/// The links and loads of all queues.
#[derive(Debug, Default)]
pub(super) struct Chains {
    nodes: Vec<Node>,
    /// Time that was collected since the owner last took it.
    pub(super) due: Vec<Due>,
}

/// A queue.
#[derive(Debug)]
struct Node {
    lock: LockId,
    next: Option<u32>,
    /// The number of locks of the cycle that it is part of; 0 if it is in none.
    cycle: u32,
    /// The waits in it.
    own: i64,
    /// Waits by the number of further locks on the way: its own come first. No zeros at the end.
    load: Vec<i64>,
    since_ns: i64,
}

impl Node {
    /// Whether chains end here.
    const fn is_end(&self) -> bool {
        self.next.is_none() || self.cycle > 0
    }

    /// Adds waits that are this much farther away than in `load`, or removes them.
    fn shift(&mut self, load: &[i64], farther: usize, sign: i64) {
        shift(&mut self.load, load, farther, sign);
    }

    /// Collects the time since the last change. `of_cycle`: the waits whose chains end anywhere in its cycle,
    /// by distance.
    fn collect(&mut self, queue: u32, of_cycle: Option<&[i64]>, now_ns: i64, due: &mut Vec<Due>) {
        let from_ns = std::mem::replace(&mut self.since_ns, now_ns);
        if self.load.is_empty() || from_ns >= now_ns {
            return;
        }
        let mut add = |share, waits| {
            if waits > 0 {
                due.push(Due { queue, share, from_ns, until_ns: now_ns, waits });
            }
        };
        if let Some(to) = self.next {
            add(Share::Passed { to }, self.own);
        }
        if self.is_end() {
            let ends = of_cycle.unwrap_or(&self.load);
            let (all, is_cycle) = (ends.iter().sum(), self.cycle > 0);
            for ((depth, waits), of_depth) in (self.cycle.max(1)..).zip(&self.load).zip(ends) {
                let waiters = Waiters { all, of_depth: *of_depth };
                let end = |is_received| Share::End(ChainEnd { depth, is_received, waiters, is_cycle });
                let own = if depth == self.cycle.max(1) { self.own } else { 0 };
                add(end(false), own);
                add(end(true), waits - own);
            }
        }
    }
}

/// Adds waits that are this much farther away than in `load`, or removes them.
fn shift(to: &mut Vec<i64>, load: &[i64], farther: usize, sign: i64) {
    if to.len() < load.len() + farther {
        to.resize(load.len() + farther, 0);
    }
    to[farther..].iter_mut().zip(load).for_each(|(to, waits)| *to += sign * waits);
    while to.last() == Some(&0) {
        to.pop();
    }
}

impl Chains {
    /// Makes a queue of a lock: the next one, or one that is free.
    pub(super) fn set_queue(&mut self, queue: u32, lock: LockId) {
        if let Some(node) = self.nodes.get_mut(queue as usize) {
            node.lock = lock;
        } else {
            let (next, cycle, own, load, since_ns) = Default::default();
            self.nodes.push(Node { lock, next, cycle, own, load, since_ns });
        }
    }

    /// Collects the time of a queue since its last change, and the time of its cycle.
    pub(super) fn flush(&mut self, queue: u32, now_ns: i64) {
        let node = &mut self.nodes[queue as usize];
        if node.cycle == 0 {
            return node.collect(queue, None, now_ns, &mut self.due);
        }
        if node.since_ns >= now_ns {
            return;
        }
        let Some(next) = node.next else { return };
        let cycle = self.path(next, queue);
        let mut ends = Vec::new();
        cycle.iter().for_each(|at| shift(&mut ends, &self.nodes[*at as usize].load, 0, 1));
        for at in cycle {
            self.nodes[at as usize].collect(at, Some(&ends), now_ns, &mut self.due);
        }
    }

    /// Adds waits to a queue, or removes them.
    pub(super) fn add_waits(&mut self, queue: u32, waits: i64, now_ns: i64) {
        self.flush(queue, now_ns);
        let node = &mut self.nodes[queue as usize];
        node.own += waits;
        node.shift(&[waits], 0, 1);
        if !node.is_end() {
            self.spread(queue, &[waits], 1, now_ns);
        }
    }

    /// Sets the queue that follows another one.
    pub(super) fn set_next(&mut self, queue: u32, next: Option<u32>, now_ns: i64) {
        let before = self.nodes[queue as usize].next;
        if before == next {
            return;
        }
        self.flush(queue, now_ns);
        if let Some(before) = before {
            self.unlink(queue, before, now_ns);
        }
        if let Some(next) = next.filter(|next| self.has_room(queue, *next)) {
            self.link(queue, next, now_ns);
        }
    }

    /// Whether the chains that lead through a queue can go on with another one.
    fn has_room(&self, queue: u32, next: u32) -> bool {
        let after = |at: &u32| self.nodes[*at as usize].next.filter(|_| self.nodes[*at as usize].cycle == 0);
        let behind = self.nodes[queue as usize].load.len().max(1);
        behind + std::iter::successors(Some(next), after).take(LONGEST_CHAIN).count() <= LONGEST_CHAIN
    }

    /// Adds the load of a queue to all that follow it, up to the end, or removes it.
    fn spread(&mut self, queue: u32, load: &[i64], sign: i64, now_ns: i64) {
        if load.is_empty() {
            return;
        }
        let (mut at, mut farther) = (queue, 0);
        while let Some(next) = self.nodes[at as usize].next {
            (at, farther) = (next, farther + self.distance(at, next));
            let is_end = self.nodes[at as usize].is_end();
            if is_end {
                self.flush(at, now_ns);
            }
            self.nodes[at as usize].shift(load, farther, sign);
            if is_end {
                return;
            }
        }
    }

    /// Adds the load of a queue to the queues behind it, or removes it.
    fn spread_own(&mut self, queue: u32, sign: i64, now_ns: i64) {
        let load = std::mem::take(&mut self.nodes[queue as usize].load);
        self.spread(queue, &load, sign, now_ns);
        self.nodes[queue as usize].load = load;
    }

    fn link(&mut self, queue: u32, next: u32, now_ns: i64) {
        if self.leads_to(next, queue) {
            let path = self.path(next, queue);
            path.iter().for_each(|at| self.flush(*at, now_ns));
            // The load that went along the path no longer does. The last queue had all of it.
            path.windows(2).rev().for_each(|pair| self.shift_one(pair[0], pair[1], -1));
            let locks: BTreeSet<LockId> = path.iter().map(|at| self.nodes[*at as usize].lock).collect();
            // The ids of locks are 31 bits wide.
            let cycle = locks.len() as u32;
            path.iter().for_each(|at| self.nodes[*at as usize].cycle = cycle);
            self.nodes[queue as usize].next = Some(next);
        } else {
            self.nodes[queue as usize].next = Some(next);
            self.spread_own(queue, 1, now_ns);
        }
    }

    fn unlink(&mut self, queue: u32, next: u32, now_ns: i64) {
        if self.nodes[queue as usize].cycle == 0 {
            self.spread_own(queue, -1, now_ns);
            self.nodes[queue as usize].next = None;
            return;
        }
        let path = self.path(next, queue);
        path.iter().for_each(|at| self.flush(*at, now_ns));
        path.iter().for_each(|at| self.nodes[*at as usize].cycle = 0);
        self.nodes[queue as usize].next = None;
        path.windows(2).for_each(|pair| self.shift_one(pair[0], pair[1], 1));
    }

    /// Adds the load of a queue to the next one alone, or removes it.
    fn shift_one(&mut self, from: u32, to: u32, sign: i64) {
        let (load, farther) = (std::mem::take(&mut self.nodes[from as usize].load), self.distance(from, to));
        self.nodes[to as usize].shift(&load, farther, sign);
        self.nodes[from as usize].load = load;
    }

    /// Returns the number of locks that a chain has more behind the next queue: 0 for the same lock, whose
    /// holder waits for it itself.
    fn distance(&self, from: u32, next: u32) -> usize {
        usize::from(self.nodes[from as usize].lock != self.nodes[next as usize].lock)
    }

    /// Whether the queues that follow `from` lead to `to`.
    fn leads_to(&self, from: u32, to: u32) -> bool {
        let mut at = from;
        loop {
            if at == to {
                return true;
            }
            let node = &self.nodes[at as usize];
            match node.next {
                Some(next) if node.cycle == 0 => at = next,
                _ => return false,
            }
        }
    }

    /// Returns the queues from one to another that it leads to, both included.
    fn path(&self, from: u32, to: u32) -> Vec<u32> {
        let next = |at: &u32| self.nodes[*at as usize].next.filter(|_| *at != to);
        std::iter::successors(Some(from), next).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the load of each queue.
    fn loads(chains: &Chains) -> Vec<&[i64]> {
        chains.nodes.iter().map(|node| node.load.as_slice()).collect()
    }

    fn of(queues: u32) -> Chains {
        let mut chains = Chains::default();
        (0..queues).for_each(|queue| chains.set_queue(queue, LockId(queue as i32)));
        chains
    }

    #[test]
    fn a_load_goes_to_the_end_of_its_chain_and_back() {
        let mut chains = of(3);
        chains.add_waits(0, 2, 0);
        chains.set_next(1, Some(2), 0);
        chains.set_next(0, Some(1), 0);
        chains.add_waits(1, 1, 0);
        assert_eq!(loads(&chains), [&[2][..], &[1, 2], &[0, 1, 2]]);
        chains.flush(2, 10);
        let due = |depth, waits| {
            let waiters = Waiters { all: 3, of_depth: waits };
            let share = Share::End(ChainEnd { depth, is_received: true, waiters, is_cycle: false });
            Due { queue: 2, share, from_ns: 0, until_ns: 10, waits }
        };
        assert_eq!(chains.due, [due(2, 1), due(3, 2)]);
        chains.set_next(1, None, 10);
        assert_eq!(loads(&chains), [&[2][..], &[1, 2], &[]]);
        chains.add_waits(0, -2, 10);
        assert_eq!(loads(&chains), [&[][..], &[1], &[]]);
    }

    #[test]
    fn no_load_goes_around_a_cycle_and_it_goes_on_when_the_cycle_ends() {
        let mut chains = of(4);
        (0..4).for_each(|queue| chains.add_waits(queue, 1, 0));
        for (queue, next) in [(3, 0), (0, 1), (1, 2), (2, 0)] {
            chains.set_next(queue, Some(next), 0);
        }
        assert_eq!(loads(&chains), [&[1, 1][..], &[1], &[1], &[1]]);
        chains.due.clear();
        chains.flush(0, 5);
        let ends: Vec<_> = chains.due.iter().map(|due| (due.queue, due.share, due.waits)).collect();
        let end = |depth, of_depth| {
            let waiters = Waiters { all: 4, of_depth };
            Share::End(ChainEnd { depth, is_received: depth == 4, waiters, is_cycle: true })
        };
        let passed = |to| Share::Passed { to };
        let expected = [
            (1, passed(2), 1),
            (1, end(3, 3), 1),
            (2, passed(0), 1),
            (2, end(3, 3), 1),
            (0, passed(1), 1),
            (0, end(3, 3), 1),
            (0, end(4, 1), 1),
        ];
        assert_eq!(ends, expected, "the whole cycle is settled, and has one number of waiters");
        chains.set_next(1, None, 5);
        assert_eq!(loads(&chains), [&[1, 2][..], &[1, 1, 2], &[1], &[1]]);
    }

    #[test]
    fn a_chain_ends_at_its_greatest_length_whichever_end_comes_first() {
        const QUEUES: u32 = 2 * LONGEST_CHAIN as u32 + 1;
        for first_comes_first in [true, false] {
            let mut chains = of(QUEUES);
            (0..QUEUES).for_each(|queue| chains.add_waits(queue, 1, 0));
            let links =
                (0..QUEUES - 1).map(|queue| if first_comes_first { queue } else { QUEUES - 2 - queue });
            links.for_each(|queue| chains.set_next(queue, Some(queue + 1), 0));
            (0..QUEUES).for_each(|queue| chains.flush(queue, 10));
            let waits =
                chains.due.iter().filter(|due| matches!(due.share, Share::End(_))).map(|due| due.waits);
            assert_eq!(waits.sum::<i64>(), i64::from(QUEUES), "each wait has one end");
            let ends = (0..QUEUES).filter(|queue| chains.nodes[*queue as usize].is_end()).count();
            assert_eq!(ends, 3, "two whole chains, and the queue that is left");
            let deepest = chains.nodes.iter().map(|node| node.load.len()).max();
            assert_eq!(deepest, Some(LONGEST_CHAIN));
        }
    }

    #[test]
    fn a_lock_counts_once_if_its_holder_waits_for_it_itself_and_once_in_a_cycle() {
        let mut chains = of(3);
        chains.set_queue(1, LockId(0));
        (0..3).for_each(|queue| chains.add_waits(queue, 1, 0));
        chains.set_next(0, Some(1), 0);
        assert_eq!(loads(&chains), [&[1][..], &[2], &[1]]);
        chains.set_next(1, Some(2), 0);
        chains.set_next(2, Some(1), 0);
        chains.flush(1, 5);
        let depth = |due: &Due| if let Share::End(end) = due.share { Some(end.depth) } else { None };
        assert_eq!(chains.due.iter().filter_map(depth).collect::<Vec<_>>(), [2, 2, 2]);
        chains.set_next(2, None, 5);
        chains.set_next(1, None, 5);
        assert_eq!(loads(&chains), [&[1][..], &[2], &[1]]);
    }
}
