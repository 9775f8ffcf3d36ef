//! Adds up shares of waits by the stacks of holder and waiter, while the trace is read.

use std::hash::{Hash, Hasher};

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
    items::{Columns, Item, Needs, Outcome, Payer, Sink, Wait},
    shares::{Account, ShareSums, WaitShares},
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

/// Adds up the shares of the selected waits.
pub struct Shares<'a> {
    /// `None` in a table without periods.
    periods: Option<Periods>,
    selection: &'a Selection,
    rules: Rules,
    waits: WaitShares<Book<'a>>,
    /// Of locks whose holds are not recorded.
    passes: Passes,
    pub trust: TrustCounter,
}

impl<'a> Shares<'a> {
    pub fn new(by: By, input: &'a Input<'_>) -> Self {
        let (names, selection, rules) = (&input.names, &input.selection, input.rules());
        let waits = WaitShares::new(Book { by, names, sums: FxHashMap::default() });
        let (passes, trust) = (Passes::default(), TrustCounter::default());
        Self { periods: None, selection, rules, waits, passes, trust }
    }

    /// Keeps the periods in which waits ended apart.
    pub fn by_period(self, periods: Periods) -> Self {
        Self { periods: Some(periods), ..self }
    }

    /// Returns the sums and the counts of the trust block.
    pub fn finish(self) -> (FxHashMap<BlameKey, BlameSums>, TrustCounter) {
        (self.waits.account.sums, self.trust)
    }
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
            _ => self.waits.push(item),
        }
    }
}

impl Shares<'_> {
    fn wait(&mut self, wait: &Wait) {
        // Waits that are not selected pass the lock on, too.
        let passed = if wait.gap_ns.is_none() { self.passes.end(wait) } else { Vec::new() };
        let waiter = self.selection.selects_wait(wait).then(|| Waiter {
            period: self.periods.map_or(0, |periods| periods.number(wait.end_ns)),
            stack: wait.stack.filter(|_| self.waits.account.by == By::Pair),
            is_cut: wait.outcome == Outcome::CutByLoss,
        });
        self.waits.end(wait, waiter);
        let Some(waiter) = waiter else { return };
        self.trust.wait(wait);
        if wait.gap_ns.is_none() {
            let book = &mut self.waits.account;
            let parts = match wait.owner {
                Some(_) => vec![(Charged::Owner, wait.owner, None, wait.wait_ns)],
                None => passed.into_iter().map(|(waker, ns)| charged_to(waker, ns)).collect(),
            };
            for (charged, task, holder, ns) in parts {
                book.add(wait.lock, waiter, book.key(wait.lock, charged, task, holder), ShareSums::one(ns));
            }
        }
    }
}

/// Returns the party that passed a lock on, with its time.
fn charged_to(waker: Option<Waker>, ns: i64) -> (Charged, Option<TaskId>, Option<StackId>, i64) {
    match waker {
        Some((task, stack)) => (Charged::Waker, Some(task), stack, ns),
        None => (Charged::Unknown, None, None, ns),
    }
}

/// The key by which sums of waits are kept apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Waiter {
    period: i64,
    stack: Option<StackId>,
    is_cut: bool,
}

/// The sums by holder and waiter.
struct Book<'a> {
    by: By,
    names: &'a Names,
    sums: FxHashMap<BlameKey, BlameSums>,
}

impl Book<'_> {
    /// Returns the key of a holder.
    fn key(&self, lock: LockId, charged: Charged, task: Option<TaskId>, holder: Option<StackId>) -> BlameKey {
        let key = BlameKey { charged, ..BlameKey::default() };
        match self.by {
            By::Host => key,
            By::Task => BlameKey { task, ..key },
            By::Pair | By::Site | By::State | By::Lock | By::Depth => {
                let (class, kernel) = (self.names.class_number(lock), self.names.is_kernel(lock));
                BlameKey { class, kernel, holder, ..key }
            }
        }
    }
}

impl Account for Book<'_> {
    type Waiter = Waiter;
    type Payer = BlameKey;

    fn payer(&self, lock: LockId, payer: Payer) -> BlameKey {
        match payer {
            Payer::Hold(hold) => self.key(lock, Charged::Hold, Some(hold.task), hold.stack),
            // The acquisition of the owner was not recorded, or not yet.
            Payer::Owner(owner) => self.key(lock, Charged::Owner, Some(owner), None),
            Payer::Handoff => self.key(lock, Charged::Handoff, None, None),
            _ => self.key(lock, Charged::Gap, None, None),
        }
    }

    fn add(&mut self, _: LockId, waiter: Waiter, payer: BlameKey, shares: ShareSums) {
        let ShareSums { ns: wait_caused_ns, shares, longest_ns } = shares;
        let key = BlameKey { period: waiter.period, waiter: waiter.stack, ..payer };
        let cut_by_loss = if waiter.is_cut { shares } else { 0 };
        let more = BlameSums { wait_caused_ns, shares, longest_ns, cut_by_loss };
        self.sums.entry(key).or_default().merge(&more);
    }
}
