//! Charges the waits on a lock to its holds, instant by instant.
//!
//! Time passes between two events of a lock with different times, and is charged then, to the oldest owner.
//! Events of equal time arrive in any order, from several CPUs; their effects on each other are settled when
//! the first event with another time arrives. The order of rows therefore matters only among the events of
//! one task.
//!
//! All waits are charged to the same hold, unless a waiting task has a hold itself. So a step is one
//! addition, however many tasks wait: time charged to no hold adds up in one sum, and each wait remembers
//! that sum at its begin.

use trace_format::{Mode, TaskId};

use super::{
    counts::Counts,
    lock_state::{LockState, OpenHold, OpenWait},
};
use crate::items::{Charge, HoldId, Item, Share, Sink, Stretch, Wait};

/// The payers of the waits of one lock.
#[derive(Clone, Copy, Debug)]
pub struct LockPayers {
    /// The hold that pays for all waits but the wait of its own task.
    pub first: Option<HoldId>,
    /// The hold that pays for the wait of the first hold's task.
    pub second: Option<HoldId>,
    /// Whether the first hold excludes all others.
    pub first_excludes: bool,
    /// Whether no task has the lock.
    pub free: bool,
    /// Whether the source records the holds of this lock.
    pub measured: bool,
    /// Whether a waiting task has a hold of the lock.
    pub has_own_waits: bool,
}

impl LockState {
    /// Advances the clock of the lock to `ts_ns`.
    #[inline]
    pub(super) fn advance(&mut self, ts_ns: i64, counts: &mut Counts, sink: &mut impl Sink) {
        if ts_ns <= self.now_ns {
            return;
        }
        self.settle(counts, sink);
        if self.rule.measures_holds && !self.waits.is_empty() {
            self.charge(ts_ns.saturating_sub(self.now_ns), sink);
        }
        self.now_ns = ts_ns;
    }

    /// Settles `now_ns`, whose events are all known: holds that began then supersede those that they exclude,
    /// and waits that began then count for the oldest open hold.
    #[inline]
    pub(super) fn settle(&mut self, counts: &mut Counts, sink: &mut impl Sink) {
        if !std::mem::take(&mut self.fresh) {
            return;
        }
        match self.holds.only() {
            // The common case: nothing to put in order.
            Some(only) if self.waits.is_empty() && self.ended.is_empty() => {
                if only.since_ns >= self.now_ns {
                    let task = only.hold.task;
                    let before = self.last_owner.replace(task);
                    only.hold.owner_changed = before.is_some_and(|before| before != task);
                }
            }
            _ => self.settle_several(counts, sink),
        }
    }

    fn settle_several(&mut self, counts: &mut Counts, sink: &mut impl Sink) {
        // A stable sort keeps the order of a task's own holds.
        let first = self.holds.sort_last(|open| open.since_ns < self.now_ns, |open| open.hold.task);
        for at in first..self.holds.end() {
            let Some(newer) = self.holds.get_mut(at) else { continue };
            let (task, excludes) = (newer.hold.task, newer.excludes);
            let before = self.last_owner.replace(task);
            newer.hold.owner_changed = before.is_some_and(|before| before != task);
            self.supersede(at, task, excludes);
        }

        let payers = self.charged();
        let fresh = self.waits.iter_mut().map(|open| &mut open.wait).rev();
        let fresh = fresh.take_while(|wait| wait.charge == Charge::Unknown);
        for wait in self.ended.iter_mut().chain(fresh) {
            let payer = payers.of(wait.task).and_then(|at| self.holds.get_mut(at));
            wait.charge = match payer {
                Some(OpenHold { hold, .. }) => {
                    hold.waits_begun += 1;
                    Charge::Hold { task: hold.task, start_ns: hold.start_ns }
                }
                None => {
                    counts.gap_waits += 1;
                    Charge::Gap
                }
            };
        }
        for wait in self.ended.drain(..) {
            sink.push(Item::Wait(&wait));
        }
    }

    /// Marks the holds before a place that a hold there supersedes.
    fn supersede(&mut self, newer: usize, task: TaskId, excludes: bool) {
        let from = self.holds.skip(|open| open.superseded);
        let mut last = None;
        for at in (from..newer).rev() {
            let Some(open) = self.holds.get_mut(at) else { continue };
            let owner = open.hold.task;
            // A hold that excludes others is open only while no other task has a later one: so a reader
            // supersedes the last ones.
            if !excludes && (owner == task || last.replace(owner).is_some_and(|last| last != owner)) {
                break;
            }
            open.superseded |= owner != task && (excludes || open.excludes);
        }
    }

    /// Returns the holds that waits are charged to.
    fn charged(&mut self) -> Charged {
        self.holds.skip(|open| open.superseded);
        let open = self.holds.counting().filter(|(_, open)| !open.superseded);
        let mut open = open.map(|(at, open)| (at, open.hold.task));
        let first = open.next();
        let second = first.and_then(|(_, task)| {
            let may_pay = self.waits.has(task) || !self.ended.is_empty();
            if may_pay { open.find(|(_, other)| *other != task) } else { None }
        });
        Charged { first, second }
    }

    /// Charges all waits for the next `ns`.
    fn charge(&mut self, ns: i64, sink: &mut impl Sink) {
        let payers = self.charged();
        // The wait of the first hold's own task, which the second hold pays for.
        let own = payers.first.filter(|_| self.own_waits > 0).and_then(|(_, task)| self.waits.last_of(task));
        if sink.needs().shares {
            self.send_shares(ns, payers, own, sink);
        }
        let first = payers.first.map(|(at, _)| (at, self.waits.len() - usize::from(own.is_some())));
        let Some(first) = first else { return self.gap_ns = self.gap_ns.saturating_add(ns) };
        for (at, waiters) in [first].into_iter().chain(own.and(payers.second).map(|(at, _)| (at, 1))) {
            if let Some(OpenHold { hold, .. }) = self.holds.get_mut(at) {
                let waiters = i64::try_from(waiters).unwrap_or(i64::MAX);
                hold.wait_caused_ns = hold.wait_caused_ns.saturating_add(ns.saturating_mul(waiters));
                hold.max_waiters = hold.max_waiters.max(waiters);
            }
        }
        if let Some(open) = own.filter(|_| payers.second.is_none()).and_then(|own| self.waits.get_mut(own)) {
            open.gap_from_ns = open.gap_from_ns.saturating_sub(ns);
        }
    }

    /// Sends what the next `ns` are charged to: once for the waits that the first hold pays for, and one by
    /// one for the waits of tasks that had the first hold themselves since they waited.
    fn send_shares(&mut self, ns: i64, payers: Charged, own: Option<usize>, sink: &mut impl Sink) {
        let (lock, free, start_ns) = (self.lock, self.is_free(), self.now_ns);
        if let Some(open) = own.and_then(|own| self.waits.get_mut(own)).filter(|open| open.run.is_none()) {
            let (task, mode) = (open.wait.task, open.wait.mode);
            open.begin_run(self.gap_ns, start_ns, sink);
            self.apart.push(task);
            self.shared_waits -= usize::from(mode == Mode::Shared);
        }
        let payer_of = |state: &Self, task| Some(state.holds.get(payers.of(task)?)?.hold.id());
        for index in 0..self.apart.len() {
            let task = self.apart[index];
            let payer = payer_of(self, task);
            let Some(open) = self.waits.last_of(task).and_then(|at| self.waits.get_mut(at)) else { continue };
            match &mut open.run {
                Some(share)
                    if share.payer == payer && (share.free == free || share.is_owners(&open.wait)) =>
                {
                    share.ns = share.ns.saturating_add(ns);
                }
                _ => {
                    open.share(sink);
                    open.run = Some(Share { payer, free, start_ns, ns });
                }
            }
        }
        let waits = self.waits.len() - self.apart.len();
        if let Some(lock) = lock.filter(|_| waits > 0) {
            let payer = payers.first.and_then(|(at, _)| self.holds.get(at)).map(|open| open.hold.id());
            let [waits, shared_waits] = [waits, self.shared_waits].map(|waits| waits as i64);
            sink.push(Item::Stretch(&Stretch { lock, payer, free, start_ns, ns, waits, shared_waits }));
        }
    }

    /// Ends a wait at `now_ns` and sets the part of it that is charged to no hold.
    pub(super) fn finished(&self, mut open: OpenWait, counts: &mut Counts, sink: &mut impl Sink) -> Wait {
        open.share(sink);
        let mut wait = open.wait;
        wait.end_ns = self.now_ns;
        wait.wait_ns = wait.end_ns.saturating_sub(wait.start_ns);
        if self.rule.measures_holds {
            let gap_ns = self.gap_ns.saturating_sub(open.gap_from_ns);
            wait.gap_ns = Some(gap_ns);
            counts.waited_ns = counts.waited_ns.saturating_add(wait.wait_ns);
            counts.gap_ns = counts.gap_ns.saturating_add(gap_ns);
        }
        wait
    }

    /// Returns the payers at `now_ns`, which must be settled.
    pub(super) fn payers(&self) -> LockPayers {
        let mut open = self.holds.counting().map(|(_, open)| open).filter(|open| !open.superseded);
        let first = open.next();
        let is_other = |open: &&OpenHold| first.is_some_and(|first| first.hold.task != open.hold.task);
        LockPayers {
            first: first.map(|open| open.hold.id()),
            second: if self.own_waits > 0 { open.find(is_other).map(|open| open.hold.id()) } else { None },
            first_excludes: first.is_some_and(|first| first.excludes),
            free: self.is_free(),
            measured: self.rule.measures_holds,
            has_own_waits: self.own_waits > 0,
        }
    }
}

impl OpenWait {
    /// From now on the shares of this wait are sent one by one. An empty share says so: what came before it
    /// is in the stretches.
    fn begin_run(&mut self, gap_ns: i64, now_ns: i64, sink: &mut impl Sink) {
        let (wait, unheld_ns) = (&self.wait, gap_ns.saturating_sub(self.gap_from_ns));
        // The owner that the lock word named goes on paying, if no hold has paid so far.
        let is_owners = wait.owner.is_some() && unheld_ns == now_ns.saturating_sub(wait.start_ns);
        let (start_ns, ns) = if is_owners { (wait.start_ns, unheld_ns) } else { (now_ns, 0) };
        let share = Share { payer: None, free: false, start_ns, ns };
        sink.push(Item::Share(wait, &Share { ns: 0, ..share }));
        self.run = Some(share);
    }

    /// Emits the current share.
    fn share(&mut self, sink: &mut impl Sink) {
        if let Some(share) = self.run.take().filter(|share| share.ns > 0) {
            sink.push(Item::Share(&self.wait, &share));
        }
    }
}

/// The places of the holds that waits are charged to now, with their tasks.
#[derive(Clone, Copy, Debug)]
struct Charged {
    /// The hold that pays for all waits but the waits of its own task.
    first: Option<(usize, TaskId)>,
    /// The hold that pays for the waits of the first one's task.
    second: Option<(usize, TaskId)>,
}

impl Charged {
    /// Returns the place of the hold that pays for the wait of a task.
    fn of(self, task: TaskId) -> Option<usize> {
        let is_other = |hold: &(usize, TaskId)| hold.1 != task;
        self.first.filter(is_other).or(self.second.filter(is_other)).map(|(at, _)| at)
    }
}
