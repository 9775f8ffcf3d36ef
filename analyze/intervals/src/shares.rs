//! The shares of waits, added up: how long each party was waited for, by whom.
//!
//! ```text
//! A holds the lock 10 to 50, B 52 to 60    stretches of its waits: 1. hold of A, 2. hold of B
//! C waits 20 to 61                         30 ns of stretch 1, all 8 ns of stretch 2, and 3 ns in which nobody held the lock
//! D waits 30 to 61                         20 ns of stretch 1, all 8 ns of stretch 2, and 3 ns in which nobody held the lock
//! ```
//!
//! A lock has one list of stretches while tasks wait for it. A wait covers the stretches from its begin to
//! its end: a part of the first one and of the last one, and all of those between. [`WaitShares`] counts for
//! each stretch the waits that cover all of it, and multiplies its length by that number once. So the work
//! grows with the number of stretches plus the number of waits, not with their product. Stretches between
//! which no open wait began are added up by payer, so the list stays as short as the open waits allow.

use std::{hash::Hash, mem, ops::Range};

use rustc_hash::FxHashMap;
use trace_format::{LockId, TaskId};

use crate::{
    engine::open_list::{Keyed, OpenList},
    items::{HoldId, Item, Payer, Share, Stretch, Wait},
    numbers::Numbers,
};

/// The shortest list of stretches that is worth a look for what can be added up.
const MIN_STRETCHES: usize = if cfg!(test) { 2 } else { 64 };

/// Receives the sums of shares.
pub trait Account {
    /// The key by which sums of waits are kept apart, such as the waiter's stack.
    type Waiter: Copy + Eq + Hash;
    /// The key by which sums of payers are kept apart, such as the holder's stack.
    type Payer: Copy + Eq + Hash;

    /// Returns the payer of waits for a lock: a hold, an owner, nobody as the lock is free, or no recorded
    /// hold.
    fn payer(&self, lock: LockId, payer: Payer) -> Self::Payer;

    fn add(&mut self, lock: LockId, waiter: Self::Waiter, payer: Self::Payer, shares: ShareSums);
}

/// Shares of the same payer. The time of a wait in which no hold was open is one share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareSums {
    pub ns: i64,
    pub shares: i64,
    pub longest_ns: i64,
}

impl ShareSums {
    /// Returns one share.
    pub const fn one(ns: i64) -> Self {
        Self { ns, shares: 1, longest_ns: ns }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.ns = self.ns.saturating_add(other.ns);
        self.shares += other.shares;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }

    /// Returns the sums of this many waits that have these shares each.
    fn of_waits(self, waits: i64) -> Self {
        Self { ns: self.ns.saturating_mul(waits), shares: self.shares.saturating_mul(waits), ..self }
    }
}

/// Adds up the shares of waits in an [`Account`].
#[derive(Debug)]
pub struct WaitShares<A: Account> {
    pub account: A,
    /// The index in `locks` of each lock with open waits.
    by_lock: Numbers,
    locks: Vec<LockShares<A::Waiter, A::Payer>>,
    free: Vec<u32>,
}

impl<A: Account> WaitShares<A> {
    pub fn new(account: A) -> Self {
        Self { account, by_lock: Numbers::default(), locks: Vec::new(), free: Vec::new() }
    }

    /// Receives the next item, unless it is the end of a wait: those come to [`end`](Self::end).
    pub fn push(&mut self, item: Item<'_>) {
        match item {
            Item::WaitBegins(wait) => self.begin(wait),
            Item::Stretch(stretch) => {
                if let Some(at) = self.by_lock.get(stretch.lock.0) {
                    self.locks[at as usize].stretch(stretch, &mut self.account);
                }
            }
            Item::Share(wait, share) => {
                if let Some(at) = self.by_lock.get(wait.lock.0) {
                    self.locks[at as usize].share(wait, share, &self.account);
                }
            }
            _ => {}
        }
    }

    fn begin(&mut self, wait: &Wait) {
        let at = self.by_lock.get(wait.lock.0).unwrap_or_else(|| {
            let at = self.free.pop().unwrap_or_else(|| {
                self.locks.push(LockShares::default());
                (self.locks.len() - 1) as u32
            });
            self.by_lock.set(wait.lock.0, at);
            at
        });
        self.locks[at as usize].begin(wait);
    }

    /// A wait ended. `None`: it does not count. Returns the payer of its first share, if it has shares.
    pub fn end(&mut self, wait: &Wait, waiter: Option<A::Waiter>) -> Option<A::Payer> {
        let at = self.by_lock.get(wait.lock.0)?;
        let of_lock = &mut self.locks[at as usize];
        let first = of_lock.end(wait, waiter, &mut self.account);
        if of_lock.open.is_empty() {
            of_lock.settle(wait.lock, &mut self.account);
            self.by_lock.remove(wait.lock.0);
            self.free.push(at);
        }
        first
    }
}

/// The stretches of one lock, and its open waits.
#[derive(Debug)]
struct LockShares<W, P> {
    /// Stretches of holds. Only the last one may get longer.
    stretches: Vec<Paid<P>>,
    /// The hold of the last stretch.
    last: Option<HoldId>,
    /// The time in which no hold was open, and the part of it in which the lock was free.
    unheld_ns: i64,
    free_ns: i64,
    open: OpenList<Open<P>>,
    /// Of waits that ended, by waiter: the stretches from which on there is another number of them.
    ended: FxHashMap<W, Vec<(usize, i64)>>,
    /// The number of stretches from which on they are worth another look.
    next_settle: usize,
}

impl<W, P> Default for LockShares<W, P> {
    fn default() -> Self {
        let (stretches, last, open, ended) = Default::default();
        Self { stretches, last, unheld_ns: 0, free_ns: 0, open, ended, next_settle: MIN_STRETCHES }
    }
}

/// One stretch, or several of the same payer.
#[derive(Clone, Copy, Debug)]
struct Paid<P> {
    payer: P,
    /// The begin of the first one, and the end of the only one.
    start_ns: i64,
    end_ns: i64,
    shares: ShareSums,
    /// The sums of the lock at the begin.
    unheld_ns: i64,
    free_ns: i64,
}

/// An open wait.
#[derive(Debug)]
struct Open<P> {
    task: TaskId,
    /// Waits that began here: one that ends where it began may leave after the next one has come.
    waits: u32,
    start_ns: i64,
    /// The first stretch that began with the wait or later.
    from: usize,
    /// The sums of the lock at the begin.
    unheld_ns: i64,
    free_ns: i64,
    /// The shares of a wait that has its own.
    apart: Option<Vec<(P, ShareSums)>>,
}

impl<P> Keyed for Open<P> {
    type Key = TaskId;

    fn key(&self) -> TaskId {
        self.task
    }
}

/// The shares of a wait.
struct Parts<P> {
    /// The payer of the first one.
    first: Option<P>,
    /// Those that are the wait's alone.
    own: [Option<(P, ShareSums)>; 5],
    /// Stretches that it saw from begin to end.
    whole: Range<usize>,
}

impl<W: Copy + Eq + Hash, P: Copy + Eq + Hash> LockShares<W, P> {
    fn begin(&mut self, wait: &Wait) {
        let (unheld_ns, free_ns, from) = (self.unheld_ns, self.free_ns, self.stretches.len());
        if let Some(open) = self.open.last_of(wait.task).and_then(|at| self.open.get_mut(at)) {
            return open.waits += 1;
        }
        let (task, start_ns) = (wait.task, wait.start_ns);
        self.open.push(Open { task, waits: 1, start_ns, from, unheld_ns, free_ns, apart: None });
    }

    fn stretch(&mut self, stretch: &Stretch, account: &mut impl Account<Waiter = W, Payer = P>) {
        let Stretch { lock, payer, free, start_ns, ns, .. } = *stretch;
        let end_ns = start_ns.saturating_add(ns);
        let Some(hold) = payer else {
            self.last = None;
            self.unheld_ns = self.unheld_ns.saturating_add(ns);
            self.free_ns = self.free_ns.saturating_add(if free { ns } else { 0 });
            return;
        };
        if let Some(paid) = self.stretches.last_mut().filter(|_| self.last == payer) {
            paid.end_ns = end_ns;
            let ns = paid.shares.ns.saturating_add(ns);
            paid.shares = ShareSums::one(ns);
            return;
        }
        if self.stretches.len() >= self.next_settle {
            self.settle(lock, account);
        }
        self.last = payer;
        let (payer, shares) = (account.payer(lock, Payer::Hold(hold)), ShareSums::one(ns));
        let (unheld_ns, free_ns) = (self.unheld_ns, self.free_ns);
        self.stretches.push(Paid { payer, start_ns, end_ns, shares, unheld_ns, free_ns });
    }

    /// Adds a share of a wait that has its own.
    fn share(&mut self, wait: &Wait, share: &Share, account: &impl Account<Payer = P>) {
        let Some(at) = self.open.last_of(wait.task) else { return };
        let is_new = self.open.get(at).is_some_and(|open| open.apart.is_none());
        let mut before = Vec::new();
        if is_new
            && share.start_ns > wait.start_ns
            && let Some(open) = self.open.get(at)
        {
            let parts = self.parts(open, &Wait { end_ns: share.start_ns, ..*wait }, account);
            let whole = self.stretches[parts.whole].iter().map(|paid| (paid.payer, paid.shares));
            parts.own.into_iter().flatten().chain(whole).for_each(|(payer, shares)| {
                add(&mut before, payer, shares, false);
            });
        }
        let Some(open) = self.open.get_mut(at) else { return };
        let apart = open.apart.get_or_insert(before);
        if share.ns > 0 {
            let payer = match (share.payer, wait.owner) {
                (Some(hold), _) => Payer::Hold(hold),
                (None, Some(owner)) if share.is_owners(wait) => Payer::Owner(owner),
                (None, _) if share.free => Payer::Handoff,
                (None, _) => Payer::Gap,
            };
            let is_one = matches!(payer, Payer::Handoff | Payer::Gap);
            add(apart, account.payer(wait.lock, payer), ShareSums::one(share.ns), is_one);
        }
    }

    /// Returns the shares of a wait that ends.
    fn parts(&self, open: &Open<P>, wait: &Wait, account: &impl Account<Payer = P>) -> Parts<P> {
        let (stretches, &Open { start_ns, from, .. }) = (&self.stretches, open);
        let of = |payer| account.payer(wait.lock, payer);
        let one = |payer, ns| (ns > 0).then(|| (payer, ShareSums::one(ns)));
        let begun = from.checked_sub(1).and_then(|at| stretches.get(at));
        let begun = begun.and_then(|paid| one(paid.payer, paid.end_ns.saturating_sub(start_ns)));
        let next = stretches.get(from);
        let unpaid_ns = next.map_or(wait.end_ns, |paid| paid.start_ns).saturating_sub(start_ns);
        let owner = wait.owner.filter(|_| begun.is_none());
        let owner = owner.and_then(|owner| one(of(Payer::Owner(owner)), unpaid_ns));
        let end = (self.unheld_ns, self.free_ns);
        let since = match owner {
            Some(_) => next.map_or(end, |paid| (paid.unheld_ns, paid.free_ns)),
            None => (open.unheld_ns, open.free_ns),
        };
        let free_ns = end.1.saturating_sub(since.1);
        let gap_ns = end.0.saturating_sub(since.0).saturating_sub(free_ns);
        let unheld = [(Payer::Gap, gap_ns), (Payer::Handoff, free_ns)].map(|(payer, ns)| one(of(payer), ns));
        let last = stretches.len().saturating_sub(1).max(from);
        let is_paid = next.filter(|_| begun.is_none() && unpaid_ns <= 0).map(|paid| paid.payer);
        let first = [begun, owner].into_iter().flatten().map(|(payer, _)| payer).next().or(is_paid);
        let first = first.or_else(|| unheld.iter().flatten().map(|(payer, _)| *payer).next());
        let last_of_all = stretches.get(last).map(|paid| (paid.payer, paid.shares));
        let [gap, free] = unheld;
        Parts { first, own: [begun, owner, gap, free, last_of_all], whole: from.min(last)..last }
    }

    fn end<A>(&mut self, wait: &Wait, waiter: Option<W>, account: &mut A) -> Option<P>
    where
        A: Account<Waiter = W, Payer = P>,
    {
        let at = self.open.last_of(wait.task).filter(|_| wait.start_seen)?;
        let open = self.open.get_mut(at).filter(|open| open.start_ns == wait.start_ns)?;
        open.waits -= 1;
        if open.waits > 0 {
            return None;
        }
        let open = self.open.remove(at)?;
        let waiter = waiter.filter(|_| wait.gap_ns.is_some() && wait.wait_ns > 0)?;
        if let Some(apart) = open.apart {
            apart.iter().for_each(|(payer, shares)| account.add(wait.lock, waiter, *payer, *shares));
            return apart.first().map(|(payer, _)| *payer);
        }
        let Parts { first, own, whole } = self.parts(&open, wait, account);
        own.into_iter().flatten().for_each(|(payer, shares)| account.add(wait.lock, waiter, payer, shares));
        if !whole.is_empty() {
            self.ended.entry(waiter).or_default().extend([(whole.start, 1), (whole.end, -1)]);
        }
        first
    }

    /// Adds up the stretches of the waits that ended, and shortens the list: stretches that no open wait
    /// tells apart are added up.
    fn settle(&mut self, lock: LockId, account: &mut impl Account<Waiter = W, Payer = P>) {
        for (waiter, mut changes) in self.ended.drain() {
            changes.sort_unstable();
            let mut waits = 0;
            for pair in changes.windows(2) {
                waits += pair[0].1;
                if waits > 0 {
                    for paid in &self.stretches[pair[0].0..pair[1].0] {
                        account.add(lock, waiter, paid.payer, paid.shares.of_waits(waits));
                    }
                }
            }
        }
        // An open wait tells apart the stretch in which it began and the next one; the last stretch may get
        // longer.
        let open = self.open.iter().filter(|open| open.apart.is_none());
        let mut kept: Vec<usize> = open.flat_map(|open| [open.from.saturating_sub(1), open.from]).collect();
        if !kept.is_empty() {
            kept.push(self.stretches.len().saturating_sub(1));
        }
        kept.sort_unstable();
        kept.dedup();
        let mut places = vec![0; kept.len()];
        let (mut next, mut at_of) = (0, FxHashMap::default());
        for (at, paid) in mem::take(&mut self.stretches).into_iter().enumerate() {
            if kept.get(next) == Some(&at) {
                places[next] = self.stretches.len();
                next += 1;
                at_of.clear();
            }
            if next > 0 {
                let len = self.stretches.len();
                match self.stretches.get_mut(*at_of.entry(paid.payer).or_insert(len)) {
                    Some(same) => same.shares.merge(paid.shares),
                    None => self.stretches.push(paid),
                }
            }
        }
        places[next..].fill(self.stretches.len());
        for open in self.open.iter_mut() {
            open.from = kept.binary_search(&open.from).map_or(0, |at| places[at]);
        }
        self.last = self.last.filter(|_| !self.stretches.is_empty());
        self.next_settle = MIN_STRETCHES.max(2 * self.stretches.len() + self.open.len());
    }
}

/// Adds shares to the payer's sums. With `is_one`, all shares of the payer count as one share.
fn add<P: PartialEq>(to: &mut Vec<(P, ShareSums)>, payer: P, more: ShareSums, is_one: bool) {
    match to.iter_mut().find(|(other, _)| *other == payer) {
        Some((_, sums)) if is_one => *sums = ShareSums::one(sums.ns.saturating_add(more.ns)),
        Some((_, sums)) => sums.merge(more),
        None => to.push((payer, more)),
    }
}
