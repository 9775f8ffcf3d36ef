//! Adds up shares of waits by the stacks of holder and waiter, while the trace is read.

use rustc_hash::FxHashMap;
use trace_format::{LockId, StackId, TaskId};

use super::{By, Charged};
use crate::{
    engine::{Hold, Outcome, Share, Sink, Wait},
    input::{names::Names, selection::Selection, trust::TrustCounter},
    tables::{
        frame::{Sums as _, sums},
        spans::Periods,
    },
};

/// The holder and the waiter, by stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct BlameKey {
    /// The period in which the wait ended; 0 in a table without periods.
    pub(crate) period: i64,
    pub(crate) charged: Charged,
    /// The class of the lock; `None` if rows are tasks or machines.
    pub(crate) class: Option<u32>,
    /// Whether the stacks belong to a kernel lock.
    pub(crate) kernel: bool,
    pub(crate) task: Option<TaskId>,
    pub(crate) holder: Option<StackId>,
    pub(crate) waiter: Option<StackId>,
}

sums! {
    /// The sums of shares.
    pub(crate) struct BlameSums {
        wait_caused_ns: Sum,
        shares: Sum,
        longest_ns: Max,
        /// Shares of waits that lasted while events were lost.
        cut_by_loss: Sum,
    }
}

/// Adds up the shares of waits. A wait is selected or not at its end, so until then its shares are kept apart: one sum per holder's
/// stack, for each task that waits.
pub(crate) struct Shares<'a> {
    by: By,
    /// `None` in a table without periods.
    periods: Option<Periods>,
    names: &'a Names,
    selection: &'a Selection,
    pub(crate) sums: FxHashMap<BlameKey, BlameSums>,
    open: FxHashMap<(LockId, TaskId), Vec<(BlameKey, BlameSums)>>,
    pub(crate) trust: TrustCounter,
}

impl<'a> Shares<'a> {
    pub(crate) fn new(by: By, names: &'a Names, selection: &'a Selection) -> Self {
        let (sums, open) = (FxHashMap::default(), FxHashMap::default());
        Self { by, periods: None, names, selection, sums, open, trust: TrustCounter::default() }
    }

    /// Keeps the periods in which waits ended apart.
    pub(crate) fn by_period(self, periods: Periods) -> Self {
        Self { periods: Some(periods), ..self }
    }

    fn key(&self, charged: Charged, wait: &Wait, task: Option<TaskId>, holder: Option<StackId>) -> BlameKey {
        let kernel = self.names.lock(wait.lock).is_some_and(|lock| lock.kind.is_kernel());
        let class = self.names.class_number(wait.lock);
        let key = BlameKey { charged, ..BlameKey::default() };
        match self.by {
            By::Host => key,
            By::Task => BlameKey { task, ..key },
            By::Site | By::State => BlameKey { class, kernel, holder, ..key },
            By::Pair => BlameKey { class, kernel, holder, waiter: wait.stack, ..key },
        }
    }

    fn add(&mut self, key: BlameKey, more: &BlameSums) {
        self.sums.entry(key).or_default().merge(more);
    }
}

fn one(ns: i64) -> BlameSums {
    BlameSums { wait_caused_ns: ns, shares: 1, longest_ns: ns, cut_by_loss: 0 }
}

impl Sink for Shares<'_> {
    const SHARES: bool = true;

    fn hold(&mut self, hold: &Hold) {
        self.trust.hold(hold);
    }

    fn wait(&mut self, wait: &Wait) {
        let shares = self.open.get_mut(&(wait.lock, wait.task));
        if !self.selection.selects_wait(wait) {
            shares.into_iter().for_each(Vec::clear);
            return;
        }
        self.trust.wait(wait);
        let cut = wait.outcome == Outcome::CutByLoss;
        let period = self.periods.map_or(0, |periods| periods.number(wait.end_ns));
        // The task waits again: its list keeps its memory.
        for (key, sums) in shares.into_iter().flat_map(|shares| shares.drain(..)) {
            let key = BlameKey { period, ..key };
            let sums = BlameSums { cut_by_loss: if cut { sums.shares } else { 0 }, ..sums };
            self.sums.entry(key).or_default().merge(&sums);
        }
        if wait.gap_ns.is_none() {
            let key = match (wait.owner, wait.waker) {
                (Some(owner), _) => self.key(Charged::Owner, wait, Some(owner), None),
                (None, Some(waker)) => self.key(Charged::Waker, wait, Some(waker), wait.waker_stack),
                (None, None) => self.key(Charged::Unknown, wait, None, None),
            };
            let key = BlameKey { period, ..key };
            self.add(key, &BlameSums { cut_by_loss: i64::from(cut), ..one(wait.wait_ns) });
        }
    }

    fn share(&mut self, wait: &Wait, share: &Share) {
        let key = match share.payer {
            Some(payer) => self.key(Charged::Hold, wait, Some(payer.task), payer.stack),
            // The acquisition of the owner was not recorded, or not yet.
            None if share.is_owners(wait) => self.key(Charged::Owner, wait, wait.owner, None),
            None if share.free => self.key(Charged::Handoff, wait, None, None),
            None => self.key(Charged::Gap, wait, None, None),
        };
        let open = self.open.entry((wait.lock, wait.task)).or_default();
        match open.iter_mut().find(|(other, _)| *other == key) {
            // The time of a wait in no hold is one share, also if it is several stretches.
            Some((key, sums)) if matches!(key.charged, Charged::Handoff | Charged::Gap) => {
                sums.wait_caused_ns = sums.wait_caused_ns.saturating_add(share.ns);
                sums.longest_ns = sums.wait_caused_ns;
            }
            Some((_, sums)) => sums.merge(&one(share.ns)),
            None => open.push((key, one(share.ns))),
        }
    }
}
