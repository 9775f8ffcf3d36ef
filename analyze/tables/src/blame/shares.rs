//! Adds up shares of waits by the stacks of holder and waiter, while the trace is read.

use std::{
    hash::{Hash, Hasher},
    mem,
};

use rustc_hash::FxHashMap;
use trace_format::{LockId, StackId, TaskId};

use super::{
    row::{By, Charged},
    wakers::{Passes, Waker},
};
use crate::{
    frame::{Sums as _, sums},
    spans::Periods,
};
use intervals::{
    engine::Rules,
    input::Input,
    input::names::Names,
    input::selection::Selection,
    input::trust::TrustCounter,
    items::{Columns, Item, Needs, Outcome, Share, Sink, Wait},
};

/// The holder and the waiter, by stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlameKey {
    /// The period in which the wait ended; 0 in a table without periods.
    pub period: i64,
    pub charged: Charged,
    /// The class of the lock; `None` if rows are tasks or machines.
    pub class: Option<u32>,
    /// Whether the stacks belong to a kernel lock.
    pub kernel: bool,
    pub task: Option<TaskId>,
    pub holder: Option<StackId>,
    pub waiter: Option<StackId>,
}

/// Hashes in few steps: the key of every share of a wait is looked up.
impl Hash for BlameKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { period, charged, class, kernel, task, holder, waiter } = *self;
        let number = |id: Option<i32>| id.map_or(0, |id| u64::from(id.cast_unsigned()) + 1);
        let [task, holder, waiter] = [task.map(|task| task.0), holder.map(|id| id.0), waiter.map(|id| id.0)];
        state.write_i64(period);
        state.write_u64(
            (class.map_or(0, |class| u64::from(class) + 1) << 8)
                | ((charged as u64) << 1)
                | u64::from(kernel),
        );
        state.write_u64(number(task));
        state.write_u64((number(holder) << 32) ^ number(waiter));
    }
}

sums! {
    /// The sums of shares.
    pub struct BlameSums {
        wait_caused_ns: Sum,
        shares: Sum,
        longest_ns: Max,
        /// Shares of waits that lasted while events were lost.
        cut_by_loss: Sum,
    }
}

/// Adds up the shares of waits. A wait is selected or not at its end, so until then its shares are kept apart: one sum per holder's
/// stack, for each task that waits.
pub struct Shares<'a> {
    by: By,
    /// `None` in a table without periods.
    periods: Option<Periods>,
    names: &'a Names,
    selection: &'a Selection,
    rules: Rules,
    pub sums: FxHashMap<BlameKey, BlameSums>,
    open: FxHashMap<WaitId, WaitShares>,
    /// The shares of one open wait, if its first share was the last first one. Most waits are alone on their lock: all their shares come
    /// one after the other, and are not looked up.
    latest: Option<WaitId>,
    of_latest: WaitShares,
    /// Of locks whose holds are not recorded.
    passes: Passes,
    pub trust: TrustCounter,
}

/// An open wait: no task waits for a lock twice.
type WaitId = (LockId, TaskId);
/// The shares of an open wait.
type WaitShares = Vec<(BlameKey, BlameSums)>;

impl<'a> Shares<'a> {
    pub fn new(by: By, input: &'a Input<'_>) -> Self {
        let (names, selection, rules) = (&input.names, &input.selection, input.rules());
        let (sums, open) = (FxHashMap::default(), FxHashMap::default());
        let (latest, of_latest, passes) = (None, Vec::new(), Passes::default());
        let trust = TrustCounter::default();
        Self { by, periods: None, names, selection, rules, sums, open, latest, of_latest, passes, trust }
    }

    /// Keeps the periods in which waits ended apart.
    pub fn by_period(self, periods: Periods) -> Self {
        Self { periods: Some(periods), ..self }
    }

    fn key(&self, charged: Charged, wait: &Wait, task: Option<TaskId>, holder: Option<StackId>) -> BlameKey {
        let kernel = self.names.lock(wait.lock).is_some_and(|lock| lock.kind.is_kernel());
        let class = self.names.class_number(wait.lock);
        let key = BlameKey { charged, ..BlameKey::default() };
        match self.by {
            By::Host => key,
            By::Task => BlameKey { task, ..key },
            By::Pair => BlameKey { class, kernel, holder, waiter: wait.stack, ..key },
            By::Site | By::State | By::Lock | By::Depth => BlameKey { class, kernel, holder, ..key },
        }
    }

    /// Returns the shares of an open wait so far.
    fn shares(&mut self, id: WaitId, is_first: bool) -> &mut WaitShares {
        if self.latest != Some(id) {
            if !is_first {
                return self.open.entry(id).or_default();
            }
            if let Some(last) = self.latest.replace(id) {
                // The lists are exchanged, and keep their memory.
                mem::swap(self.open.entry(last).or_default(), &mut self.of_latest);
            }
        }
        &mut self.of_latest
    }

    fn add(&mut self, key: BlameKey, more: &BlameSums) {
        self.sums.entry(key).or_default().merge(more);
    }
}

fn one(ns: i64) -> BlameSums {
    BlameSums { wait_caused_ns: ns, shares: 1, longest_ns: ns, cut_by_loss: 0 }
}

impl Sink for Shares<'_> {
    fn needs(&self) -> Needs {
        Needs { shares: true, ..Needs::columns(Columns::Peers) }
    }

    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Hold(hold) => self.trust.hold(hold),
            Item::WaitBegins(wait) if !self.rules.measures_holds(wait.lock) => self.passes.begin(wait),
            Item::Wait(wait) => self.wait(wait),
            Item::Share(wait, share) => self.share(wait, share),
            _ => {}
        }
    }
}

impl Shares<'_> {
    fn wait(&mut self, wait: &Wait) {
        // Waits that are not selected pass the lock on, too.
        let passed = if wait.gap_ns.is_none() { self.passes.end(wait) } else { Vec::new() };
        let Self { sums, open, latest, of_latest, .. } = self;
        let id = (wait.lock, wait.task);
        let shares = match latest.take_if(|latest| *latest == id) {
            Some(_) => Some(of_latest),
            None => open.get_mut(&id),
        };
        if !self.selection.selects_wait(wait) {
            shares.into_iter().for_each(Vec::clear);
            return;
        }
        self.trust.wait(wait);
        let cut = wait.outcome == Outcome::CutByLoss;
        let period = self.periods.map_or(0, |periods| periods.number(wait.end_ns));
        // The task waits again: its list keeps its memory.
        for (key, of_key) in shares.into_iter().flat_map(|shares| shares.drain(..)) {
            let key = BlameKey { period, ..key };
            let of_key = BlameSums { cut_by_loss: if cut { of_key.shares } else { 0 }, ..of_key };
            sums.entry(key).or_default().merge(&of_key);
        }
        if wait.gap_ns.is_none() {
            let parts = match wait.owner {
                Some(owner) => vec![(self.key(Charged::Owner, wait, Some(owner), None), wait.wait_ns)],
                None => passed.into_iter().map(|(waker, ns)| (self.passed(wait, waker), ns)).collect(),
            };
            for (key, ns) in parts {
                let key = BlameKey { period, ..key };
                self.add(key, &BlameSums { cut_by_loss: i64::from(cut), ..one(ns) });
            }
        }
    }

    fn passed(&self, wait: &Wait, waker: Option<Waker>) -> BlameKey {
        match waker {
            Some((task, stack)) => self.key(Charged::Waker, wait, Some(task), stack),
            None => self.key(Charged::Unknown, wait, None, None),
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
        let open = self.shares((wait.lock, wait.task), share.start_ns == wait.start_ns);
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
