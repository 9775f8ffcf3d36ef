//! Queues: the waits of one lock that have the same payer.
//!
//! All waits of a lock are in one queue, whose payer changes, except the wait of the payer's own task and
//! waits for an owner that only the lock word named. So a release moves no waits, however many there are. If
//! chains are followed, a queue has the time of the chains that end in it.

use rustc_hash::FxHashSet;
use trace_format::{EventRow, LockId, TaskId};

use super::{
    chains::{Chains, Changes},
    counted::CountedWaits,
    overlaps::UnseenWaits,
    tasks::{OpenWait, Step, TaskIndex, Tasks},
};
use crate::{
    engine::LockPayers,
    items::{Caused, Detail, Item, Needs, Payer, Sink, Wait, Waiters},
    numbers::Numbers,
};

mod links;

/// Waits of one lock with the same payer.
#[derive(Debug)]
struct Queue {
    lock: LockId,
    payer: Payer,
    /// The payer's task.
    task: Option<TaskIndex>,
    since_ns: i64,
    /// All waits.
    members: usize,
    /// Waits whose time counts.
    waits: i64,
}

#[derive(Debug, Default)]
struct LockQueues {
    /// All waits.
    members: usize,
    /// The queue of all waits that are in no other one.
    main: Option<u32>,
    /// The task whose wait is in a queue of its own, because it has the hold that pays for the others.
    own: Option<TaskIndex>,
    /// The tasks that wait for the owner that the lock word named, until the first hold.
    named: Vec<TaskIndex>,
    /// The queues other than the main one.
    others: Vec<u32>,
}

/// The queues of all locks. It is the sink of the engine.
pub(super) struct Queues<'a, R> {
    pub(super) tasks: Tasks,
    pub(super) receiver: R,
    /// Whether the time of a wait that begins counts.
    pub(super) counted: CountedWaits<'a>,
    /// Whether the lock is idle.
    is_idle: Vec<bool>,
    uncovered: FxHashSet<LockId>,
    pub(super) now_ns: i64,
    all: Vec<Queue>,
    free: Vec<u32>,
    /// The index of each lock with waits in `locks`.
    by_lock: Numbers,
    locks: Vec<LockQueues>,
    /// Indexes in `locks` of no lock.
    free_locks: Vec<u32>,
    /// Waits without a queue.
    unplaced: Vec<(LockId, TaskIndex)>,
    /// The queues as parts of chains, if those are followed.
    chains: Chains,
    changes: Changes,
    /// The waits whose holder was not seen.
    unseen: UnseenWaits,
}

impl<'a, R: Sink> Queues<'a, R> {
    /// `uncovered` are locks of whose holders no off-CPU times are recorded, though others have them.
    pub(super) fn new(
        receiver: R,
        counted: CountedWaits<'a>,
        (is_idle, uncovered): (Vec<bool>, FxHashSet<LockId>),
        is_covered: bool,
    ) -> Self {
        Self {
            tasks: Tasks::new(is_covered),
            receiver,
            counted,
            is_idle,
            uncovered,
            now_ns: i64::MIN,
            all: Vec::new(),
            free: Vec::new(),
            by_lock: Numbers::default(),
            locks: Vec::new(),
            free_locks: Vec::new(),
            unplaced: Vec::new(),
            chains: Chains::default(),
            changes: Changes::default(),
            unseen: UnseenWaits::default(),
        }
    }

    /// Whether a lock has waits.
    #[inline]
    pub(super) fn has_waits(&self, lock: LockId) -> bool {
        self.by_lock.get(lock.0).is_some()
    }

    /// Adds a row of a task, before its effect on locks.
    #[inline]
    pub(super) fn row(&mut self, task: TaskId, row: &impl EventRow) {
        let index = self.tasks.index(task);
        for at in 0..self.tasks.get(index).pays.len() {
            let queue = self.tasks.get(index).pays[at];
            self.flush(queue);
        }
        self.tasks.row(index, row, &mut self.receiver);
    }

    /// Settles everything at the end or at a loss. The engine has yet to end the open waits.
    pub(super) fn end(&mut self) {
        for queue in 0..self.all.len() {
            self.flush(queue as u32);
        }
        self.flush_nested();
        self.tasks.end(self.now_ns, &mut self.receiver);
    }

    /// Settles the events of a lock in the last nanosecond: each wait goes to the queue of its payer.
    pub(super) fn place(&mut self, lock: LockId, payers: &LockPayers) {
        let Some(at) = self.by_lock.get(lock.0) else { return };
        let mut queues = std::mem::take(&mut self.locks[at as usize]);
        if payers.measured {
            let payer = match payers.first {
                Some(first) => Payer::Hold(first),
                None if payers.free => Payer::Handoff,
                None => Payer::Gap,
            };
            match queues.main {
                Some(main) => self.set_payer(main, payer),
                None => queues.main = Some(self.open(lock, payer)),
            }
            let own = match payers.first {
                Some(first) if payers.has_own_waits => {
                    self.tasks.find(first.task).filter(|own| self.wait_of(lock, *own).is_some())
                }
                _ => None,
            };
            if payers.first.is_some() && !queues.named.is_empty() {
                let stays = |task: &TaskIndex| Some(*task) == own && payers.second.is_none();
                let leaving: Vec<TaskIndex> = queues.named.extract_if(.., |task| !stays(task)).collect();
                for task in leaving {
                    self.move_to(lock, task, queues.main);
                }
            }
            if own.is_some() || queues.own.is_some() {
                if let Some(before) = queues.own.filter(|before| Some(*before) != own)
                    && !queues.named.contains(&before)
                {
                    self.move_to(lock, before, queues.main);
                }
                if let Some(task) = own {
                    self.place_own(lock, &mut queues, task, payers);
                }
                queues.own = own;
            }
        }
        if !self.unplaced.is_empty() {
            let unplaced = self.unplaced.extract_if(.., |(of, _)| *of == lock);
            for (_, task) in unplaced.collect::<Vec<_>>() {
                self.place_new(lock, &mut queues, task, payers);
            }
        }
        self.close_empty(&mut queues);
        self.locks[at as usize] = queues;
    }

    /// Places the wait of a task whose own hold pays for all other waits.
    fn place_own(&mut self, lock: LockId, queues: &mut LockQueues, task: TaskIndex, payers: &LockPayers) {
        let wait = self.wait_of(lock, task);
        let payer = match (payers.second, wait) {
            (Some(second), _) => Payer::Hold(second),
            // As long as no other hold was seen, the owner that the lock word named pays.
            (None, _) if queues.named.contains(&task) => return,
            (None, Some(OpenWait { queue: None, owner: Some(owner), .. })) => {
                queues.named.push(task);
                Payer::Owner(owner)
            }
            (None, _) if payers.first_excludes => Payer::Oneself,
            (None, _) => Payer::Gap,
        };
        self.move_to_payer(lock, queues, task, payer);
    }

    /// Places a wait that began in the last nanosecond, unless it has ended.
    fn place_new(&mut self, lock: LockId, queues: &mut LockQueues, task: TaskIndex, payers: &LockPayers) {
        let Some(OpenWait { queue: None, owner, .. }) = self.wait_of(lock, task) else { return };
        match (owner, payers.first) {
            (Some(owner), None) => {
                self.move_to_payer(lock, queues, task, Payer::Owner(owner));
                if payers.measured {
                    queues.named.push(task);
                }
            }
            (None, _) if !payers.measured => self.move_to_payer(lock, queues, task, Payer::Unknown),
            _ => self.move_to(lock, task, queues.main),
        }
    }

    fn wait_of(&mut self, lock: LockId, task: TaskIndex) -> Option<OpenWait> {
        self.tasks.get(task).waits.iter().find(|wait| wait.lock == lock).copied()
    }

    fn move_to_payer(&mut self, lock: LockId, queues: &mut LockQueues, task: TaskIndex, payer: Payer) {
        let found = queues.others.iter().find(|queue| self.all[**queue as usize].payer == payer).copied();
        let queue = found.unwrap_or_else(|| {
            let queue = self.open(lock, payer);
            queues.others.push(queue);
            queue
        });
        self.move_to(lock, task, Some(queue));
    }

    /// Moves the wait of a task for a lock to another queue of the lock.
    fn move_to(&mut self, lock: LockId, task: TaskIndex, to: Option<u32>) {
        let Some(to) = to else { return };
        let waits = &mut self.tasks.get(task).waits;
        let Some(wait) = waits.iter_mut().find(|wait| wait.lock == lock) else { return };
        let from = wait.queue.replace(to);
        let wait = *wait;
        if from == Some(to) {
            return;
        }
        self.changed_task(task);
        if let Some(from) = from {
            self.leave(from, wait.is_selected);
        }
        self.flush(to);
        let queue = &mut self.all[to as usize];
        queue.members += 1;
        queue.waits += i64::from(wait.is_selected);
    }

    /// Returns the queues of a lock that has waits from now on.
    fn queues_of(&mut self, lock: LockId) -> &mut LockQueues {
        let at = self.by_lock.get(lock.0).unwrap_or_else(|| {
            let at = self.free_locks.pop().unwrap_or_else(|| {
                self.locks.push(LockQueues::default());
                (self.locks.len() - 1) as u32
            });
            self.by_lock.set(lock.0, at);
            at
        });
        &mut self.locks[at as usize]
    }

    fn leave(&mut self, queue: u32, is_selected: bool) {
        self.flush(queue);
        let queue = &mut self.all[queue as usize];
        queue.members -= 1;
        queue.waits -= i64::from(is_selected);
    }

    fn open(&mut self, lock: LockId, payer: Payer) -> u32 {
        let queue =
            Queue { lock, payer: Payer::Gap, task: None, since_ns: self.now_ns, members: 0, waits: 0 };
        let index = match self.free.pop() {
            Some(index) => {
                self.all[index as usize] = queue;
                index
            }
            None => {
                self.all.push(queue);
                (self.all.len() - 1) as u32
            }
        };
        if self.receiver.needs().chains {
            self.chains.set_queue(index, lock);
        }
        self.set_payer(index, payer);
        index
    }

    /// Whether anything changed in the nanosecond of the clock.
    #[inline]
    pub(super) fn has_changes(&self) -> bool {
        !self.unplaced.is_empty() || self.receiver.needs().chains && !self.changes.is_empty()
    }

    /// Forgets waits that ended in the nanosecond in which they began.
    pub(super) fn forget_unplaced(&mut self) {
        self.unplaced.clear();
    }

    /// Closes the queues of a lock that have no waits, except the main one.
    fn close_empty(&mut self, queues: &mut LockQueues) {
        let empty = queues.others.extract_if(.., |queue| self.all[*queue as usize].members == 0);
        for queue in empty.collect::<Vec<_>>() {
            self.close(queue);
        }
    }

    fn close(&mut self, queue: u32) {
        self.set_payer(queue, Payer::Gap);
        // Chains may lead to its lock until they are linked again.
        if self.receiver.needs().chains { self.changes.closed.push(queue) } else { self.free.push(queue) }
    }

    fn set_payer(&mut self, queue: u32, payer: Payer) {
        if self.all[queue as usize].payer == payer {
            return;
        }
        self.flush(queue);
        self.changed_queue(queue);
        let before = self.all[queue as usize].task;
        let task = payer.task().map(|task| self.tasks.index(task));
        if before != task {
            if let Some(before) = before {
                self.tasks.get(before).pays.retain(|paid| *paid != queue);
            }
            if let Some(task) = task {
                self.tasks.get(task).pays.push(queue);
            }
        }
        let entry = &mut self.all[queue as usize];
        (entry.payer, entry.task) = (payer, task);
    }

    /// Adds the time of a queue since its last change.
    fn flush(&mut self, queue: u32) {
        if self.receiver.needs().chains {
            self.chains.flush(queue, self.now_ns);
            self.take_due();
            if !self.receiver.needs().direct {
                return;
            }
        }
        let Queue { lock, payer, task, since_ns, waits, .. } = self.all[queue as usize];
        self.all[queue as usize].since_ns = self.now_ns;
        let ns = self.now_ns.saturating_sub(since_ns);
        if waits == 0 || ns == 0 {
            return;
        }
        match task {
            Some(task) => {
                let (from_ns, until_ns) = (since_ns, self.now_ns);
                let waiters = Waiters { all: waits, of_depth: waits };
                let step = Step {
                    is_covered: !self.uncovered.contains(&lock),
                    lock,
                    payer,
                    depth: 1,
                    is_received: false,
                    from_ns,
                    until_ns,
                    waits,
                    waiters,
                };
                self.tasks.pay(task, step, self.receiver.needs().direct, &mut self.receiver);
            }
            None => {
                let caused = Caused {
                    lock,
                    payer,
                    depth: 1,
                    is_received: false,
                    waiters: Waiters { all: waits, of_depth: waits },
                    state: None,
                    detail: Detail::None,
                    ns: ns.saturating_mul(waits),
                };
                let is_direct = self.receiver.needs().direct;
                self.receiver.push(if is_direct { Item::Direct(&caused) } else { Item::Caused(&caused) });
            }
        }
    }
}

impl<R: Sink> Sink for Queues<'_, R> {
    #[inline]
    fn needs(&self) -> Needs {
        let needs = self.receiver.needs();
        Needs { acquired: needs.acquired || needs.held, ..needs }
    }

    #[inline]
    fn push(&mut self, item: Item<'_>) {
        match item {
            // Each of the two engines sends it, and the row of the loss was sent.
            Item::Lost { .. } => return,
            Item::Hold(hold) => self.counted.hold(hold),
            _ => {}
        }
        self.receiver.push(item);
        match item {
            Item::WaitBegins(wait) => self.wait_begins(wait),
            Item::Wait(wait) => self.wait(wait),
            Item::Acquired(hold) if self.receiver.needs().held => {
                let task = self.tasks.index(hold.task);
                self.tasks.held.acquired(task, hold);
            }
            Item::Hold(hold) if self.receiver.needs().held => {
                let task = self.tasks.index(hold.task);
                self.tasks.held.ended(task, hold, &mut self.receiver);
            }
            _ => {}
        }
    }
}

impl<R: Sink> Queues<'_, R> {
    fn wait_begins(&mut self, wait: &Wait) {
        let is_selected = self.counted.begins(wait);
        let is_idle = usize::try_from(wait.lock.0).ok().and_then(|at| self.is_idle.get(at)).copied();
        let task = self.tasks.index(wait.task);
        let open = OpenWait {
            lock: wait.lock,
            start_ns: wait.start_ns,
            stack: wait.stack,
            owner: wait.owner,
            is_idle: is_idle.unwrap_or(false),
            is_selected,
            queue: None,
        };
        // Waits that begin in the same nanosecond are in the order of their locks.
        let waits = &mut self.tasks.get(task).waits;
        let at = waits.partition_point(|other| (other.start_ns, other.lock) <= (open.start_ns, open.lock));
        waits.insert(at, open);
        self.queues_of(wait.lock).members += 1;
        self.unplaced.push((wait.lock, task));
        self.changed_task(task);
    }

    fn wait(&mut self, wait: &Wait) {
        let index = self.tasks.index(wait.task);
        let waits = &mut self.tasks.get(index).waits;
        let is_it =
            |open: &OpenWait| wait.start_seen && open.lock == wait.lock && open.start_ns == wait.start_ns;
        let Some(at) = waits.iter().position(is_it) else {
            if self.counted.ended(wait, None) && wait.wait_ns > 0 {
                let Wait { lock, wait_ns: ns, .. } = *wait;
                let (payer, state, detail, is_received) = (Payer::Unknown, None, Detail::None, false);
                let waiters = self.unseen.add(lock, 1, (wait.start_ns, wait.end_ns), 1);
                let caused = Caused { lock, payer, depth: 1, is_received, waiters, state, detail, ns };
                self.receiver.push(Item::Caused(&caused));
                if self.receiver.needs().direct {
                    self.receiver.push(Item::Direct(&caused));
                }
            }
            return;
        };
        let open = waits.remove(at);
        self.counted.ended(wait, Some(open.is_selected));
        self.changed_task(index);
        if let Some(queue) = open.queue {
            self.leave(queue, open.is_selected);
        }
        let Some(of_lock) = self.by_lock.get(wait.lock.0) else { return };
        let queues = &mut self.locks[of_lock as usize];
        queues.members -= 1;
        if queues.own == Some(index) {
            queues.own = None;
        }
        queues.named.retain(|task| *task != index);
        if queues.members == 0 {
            let mut queues = std::mem::take(queues);
            queues.main.take().into_iter().chain(queues.others.drain(..)).for_each(|queue| self.close(queue));
            // The next lock takes over the memory of its lists.
            self.locks[of_lock as usize] = queues;
            self.by_lock.remove(wait.lock.0);
            self.free_locks.push(of_lock);
        }
    }
}
