//! What is added up while the trace is read: shares of waits, by the stacks of holder and waiter.

use rustc_hash::FxHashMap;
use trace_format::{LockId, StackId, TaskId};

use super::{By, Charged, Totals};
use crate::{
    intervals::{Hold, Outcome, Share, Sink, Wait},
    names::Names,
    report::trust,
    scope::Chosen,
};

/// Who is charged, and who waited: stacks, not the places that they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Spot {
    pub(super) charged: Charged,
    /// Of the lock; not if rows are tasks.
    pub(super) class: Option<u32>,
    /// Whether stacks are read as those of a kernel lock.
    pub(super) kernel: bool,
    pub(super) task: Option<TaskId>,
    pub(super) holder: Option<StackId>,
    pub(super) waiter: Option<StackId>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) ns: i64,
    pub(super) shares: i64,
    pub(super) longest_ns: i64,
    /// Shares of waits that lasted while events were lost.
    pub(super) cut: i64,
}

impl Sums {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            ns: self.ns.saturating_add(other.ns),
            shares: self.shares.saturating_add(other.shares),
            longest_ns: self.longest_ns.max(other.longest_ns),
            cut: self.cut.saturating_add(other.cut),
        }
    }
}

/// Takes shares of waits, and the waits that have none. Whether a wait is wanted shows at its end, so until then its shares are
/// added up apart: as many sums as there are holders' stacks, for each task that waits right now.
pub(super) struct Shares<'a> {
    by: By,
    names: &'a Names,
    chosen: &'a Chosen,
    pub(super) sums: FxHashMap<Spot, Sums>,
    open: FxHashMap<(LockId, TaskId), Vec<(Spot, Sums)>>,
    pub(super) trust: trust::Watch,
}

impl<'a> Shares<'a> {
    pub(super) fn new(by: By, names: &'a Names, chosen: &'a Chosen) -> Self {
        let (sums, open) = (FxHashMap::default(), FxHashMap::default());
        Self { by, names, chosen, sums, open, trust: trust::Watch::default() }
    }

    fn spot(&self, charged: Charged, wait: &Wait, task: Option<TaskId>, holder: Option<StackId>) -> Spot {
        let lock: LockId = wait.lock;
        let kernel = self.names.lock(lock).is_some_and(|lock| lock.kind.is_kernel());
        let class = self.names.class_number(lock);
        match self.by {
            By::Host => Spot { charged, class: None, kernel: false, task: None, holder: None, waiter: None },
            By::Task => Spot { charged, class: None, kernel: false, task, holder: None, waiter: None },
            By::Site => Spot { charged, class, kernel, task: None, holder, waiter: None },
            By::Pair => Spot { charged, class, kernel, task: None, holder, waiter: wait.stack },
        }
    }

    fn add(&mut self, spot: Spot, more: Sums) {
        let sums = self.sums.entry(spot).or_default();
        *sums = sums.plus(more);
    }
}

fn one(ns: i64) -> Sums {
    Sums { ns, shares: 1, longest_ns: ns, cut: 0 }
}

impl Sink for Shares<'_> {
    const SHARES: bool = true;

    fn hold(&mut self, hold: &Hold) {
        self.trust.hold(hold);
    }

    fn wait(&mut self, wait: &Wait) {
        let shares = self.open.get_mut(&(wait.lock, wait.task)).map(std::mem::take);
        if !self.chosen.wants_wait(wait) {
            return;
        }
        self.trust.wait(wait);
        let cut = wait.outcome == Outcome::CutByLoss;
        for (spot, sums) in shares.into_iter().flatten() {
            self.add(spot, Sums { cut: if cut { sums.shares } else { 0 }, ..sums });
        }
        if wait.gap_ns.is_none() {
            let charged = if wait.owner.is_some() { Charged::Owner } else { Charged::Unknown };
            let spot = self.spot(charged, wait, wait.owner, None);
            self.add(spot, Sums { cut: i64::from(cut), ..one(wait.wait_ns) });
        }
    }

    fn share(&mut self, wait: &Wait, share: &Share) {
        let spot = match share.payer {
            Some(payer) => self.spot(Charged::Hold, wait, Some(payer.task), payer.stack),
            // Who had the lock then was not seen to take it, or not yet.
            None if wait.owner.is_some() && share.start_ns == wait.start_ns => {
                self.spot(Charged::Owner, wait, wait.owner, None)
            }
            None => self.spot(Charged::Gap, wait, None, None),
        };
        let open = self.open.entry((wait.lock, wait.task)).or_default();
        match open.iter_mut().find(|(other, _)| *other == spot) {
            Some((_, sums)) => *sums = sums.plus(one(share.ns)),
            None => open.push((spot, one(share.ns))),
        }
    }
}

pub(super) fn totals(sums: &FxHashMap<Spot, Sums>) -> Totals {
    let mut totals = Totals::default();
    for (spot, sums) in sums {
        let part = match spot.charged {
            Charged::Hold => &mut totals.hold_ns,
            Charged::Gap => &mut totals.gap_ns,
            Charged::Owner => &mut totals.owner_ns,
            Charged::Unknown => &mut totals.unknown_ns,
        };
        *part = part.saturating_add(sums.ns);
        totals.waited_ns = totals.waited_ns.saturating_add(sums.ns);
    }
    totals
}
