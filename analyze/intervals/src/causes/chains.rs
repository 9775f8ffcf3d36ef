//! Chains of queues, and waiting time by the root of its chain: the queue of a payer's own wait follows the queue that it pays for.
//!
//! Each queue has at most one successor, so queues are trees whose roots are the ends of chains, and cycles. A queue keeps its load:
//! the waits whose chains lead through it, by their distance. A link or a wait that changes moves a load along one path, so it costs
//! the depth of the chain, however many tasks wait. In a cycle every queue is an end: no load goes around.

use super::tasks::TaskIndex;

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
    /// Chains of this depth end at the queue; `all` waits do, of any depth.
    End { depth: u32, all: i64, is_cycle: bool },
    /// Its own waits are passed to the next queue.
    Passed { to: u32 },
}

/// The links and loads of all queues.
#[derive(Debug, Default)]
pub(super) struct Chains {
    nodes: Vec<Node>,
    /// Time that was collected since the owner last took it.
    pub(super) due: Vec<Due>,
}

/// A queue.
#[derive(Debug, Default)]
struct Node {
    next: Option<u32>,
    /// The number of queues of the cycle that it is part of; 0 if it is in none.
    cycle: u32,
    /// The waits in it.
    own: i64,
    /// Waits by distance: its own come first. No zeros at the end.
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
        if self.load.len() < load.len() + farther {
            self.load.resize(load.len() + farther, 0);
        }
        self.load[farther..].iter_mut().zip(load).for_each(|(to, waits)| *to += sign * waits);
        while self.load.last() == Some(&0) {
            self.load.pop();
        }
    }
}

impl Chains {
    /// Adds a queue, with the next index.
    pub(super) fn add_queue(&mut self) {
        self.nodes.push(Node::default());
    }

    /// Collects the time of a queue since its last change.
    pub(super) fn flush(&mut self, queue: u32, now_ns: i64) {
        let Self { nodes, due } = self;
        let node = &mut nodes[queue as usize];
        let from_ns = std::mem::replace(&mut node.since_ns, now_ns);
        if node.load.is_empty() || from_ns >= now_ns {
            return;
        }
        let mut add = |share, waits| {
            if waits > 0 {
                due.push(Due { queue, share, from_ns, until_ns: now_ns, waits });
            }
        };
        if let Some(to) = node.next {
            add(Share::Passed { to }, node.own);
        }
        if node.is_end() {
            let (all, is_cycle) = (node.load.iter().sum(), node.cycle > 0);
            for (depth, waits) in (node.cycle.max(1)..).zip(&node.load) {
                add(Share::End { depth, all, is_cycle }, *waits);
            }
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
        if let Some(next) = next {
            self.link(queue, next, now_ns);
        }
    }

    /// Adds the load of a queue to all that follow it, up to the end, or removes it.
    fn spread(&mut self, queue: u32, load: &[i64], sign: i64, now_ns: i64) {
        if load.is_empty() {
            return;
        }
        let (mut at, mut farther) = (queue, 0);
        while let Some(next) = self.nodes[at as usize].next {
            (at, farther) = (next, farther + 1);
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
            // There are no more queues than tasks and locks, whose ids are 31 bits wide.
            let cycle = path.len() as u32;
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
        let load = std::mem::take(&mut self.nodes[from as usize].load);
        self.nodes[to as usize].shift(&load, 1, sign);
        self.nodes[from as usize].load = load;
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

    fn of(queues: usize) -> Chains {
        let mut chains = Chains::default();
        (0..queues).for_each(|_| chains.add_queue());
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
        let share = |depth| Share::End { depth, all: 3, is_cycle: false };
        let due = |depth, waits| Due { queue: 2, share: share(depth), from_ns: 0, until_ns: 10, waits };
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
        let depths: Vec<_> = chains.due.iter().map(|due| due.share).collect();
        let end = |depth| Share::End { depth, all: 2, is_cycle: true };
        assert_eq!(depths, [Share::Passed { to: 1 }, end(3), end(4)]);
        chains.set_next(1, None, 5);
        assert_eq!(loads(&chains), [&[1, 2][..], &[1, 1, 2], &[1], &[1]]);
    }
}
