//! Adds up the causes of waits: by the site of the holder and the state of its task, and for chains of waits
//! by the hold at the end of the chain, by the number of locks in it, or by what holders keep, pass on and
//! receive.

use rustc_hash::FxHashMap;
use trace_format::{LockId, StackId};

use super::{
    row::{By, Charged},
    totals::Totals,
};
use crate::{
    frame::{Sums as _, sums},
    key::{self, RowKey},
};
use intervals::{
    input::Input,
    input::names::Names,
    items::{Caused, Detail, HoldId, Item, Needs, Passed, Payer, Sink, State},
};

sums! {
    /// The measures of causes.
    pub struct CauseSums {
        wait_caused_ns: Sum,
        /// Of chains that end at the holder, and the part of it in chains of one lock.
        root_wait_ns: Sum,
        direct_ns: Sum,
        deepest: Max,
        max_waiters: Max,
        /// The parts of `wait_caused_ns` and `root_wait_ns` of holders.
        kept_ns: Sum,
        passed_ns: Sum,
        received_ns: Sum,
    }
}

/// The key of a cause by the ids of its trace: the parts that the key of the rows selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct CauseKey {
    pub(super) charged: Option<Charged>,
    pub(super) state: Option<State>,
    pub(super) detail: Detail,
    pub(super) lock_class: Option<u32>,
    pub(super) kernel: bool,
    pub(super) stack: Option<StackId>,
    pub(super) depth: Option<u32>,
    /// A holder that keeps, passes on and receives, and the lock that it passes time on to.
    pub(super) holder: Option<RowKey>,
    pub(super) to: Option<LockId>,
}

/// Adds up the causes of waits; with `CHAINS`, the causes at the ends of chains.
pub struct Causes<'a, const CHAINS: bool> {
    by: By,
    names: &'a Names,
    /// Whether states were recorded.
    has_states: bool,
    pub(super) sums: FxHashMap<CauseKey, CauseSums>,
    pub(super) totals: Totals,
}

impl<'a, const CHAINS: bool> Causes<'a, CHAINS> {
    pub fn new(by: By, input: &'a Input<'_>, has_states: bool) -> Self {
        let mut totals = Totals::default();
        if CHAINS {
            totals.chains.get_or_insert_default().has_states = has_states;
        }
        Self { by, names: &input.names, has_states, sums: FxHashMap::default(), totals }
    }

    fn charged(payer: Payer) -> Charged {
        match payer {
            Payer::Hold(_) => Charged::Hold,
            Payer::Owner(_) => Charged::Owner,
            Payer::Handoff => Charged::Handoff,
            Payer::Oneself if CHAINS => Charged::Oneself,
            Payer::Gap | Payer::Oneself => Charged::Gap,
            Payer::Cycle if CHAINS => Charged::Cycle,
            Payer::Cycle | Payer::Unknown => Charged::Unknown,
        }
    }

    fn holder(&self, lock: LockId, hold: HoldId, to: Option<LockId>) -> CauseKey {
        let by = self.by.holder().unwrap_or(key::By::Lock);
        let holder = Some(RowKey::of((lock, hold.task, hold.stack), by, self.names));
        CauseKey { holder, to, ..CauseKey::default() }
    }

    /// Returns the key of a cause; `None` for causes without a hold in a table of holders.
    fn key(&self, caused: &Caused) -> Option<CauseKey> {
        let Caused { lock, payer, depth, state, detail, .. } = *caused;
        if self.by == By::Depth {
            return Some(CauseKey { depth: Some(depth), ..CauseKey::default() });
        }
        let hold = if let Payer::Hold(hold) = payer { Some(hold) } else { None };
        if CHAINS && self.by.holder().is_some() {
            return hold.map(|hold| self.holder(lock, hold, None));
        }
        let state = state.filter(|state| !CHAINS || self.has_states || *state != State::Unknown);
        let charged = Self::charged(payer);
        let key = CauseKey { charged: Some(charged), state, detail, ..CauseKey::default() };
        if charged == Charged::Cycle {
            return Some(key);
        }
        let (lock_class, kernel) = (self.names.class_number(lock), self.names.is_kernel(lock));
        Some(CauseKey { lock_class, kernel, stack: hold.and_then(|hold| hold.stack), ..key })
    }
}

impl<const CHAINS: bool> Sink for Causes<'_, CHAINS> {
    fn needs(&self) -> Needs {
        Needs { chains: CHAINS, ..Needs::default() }
    }

    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Caused(caused) => self.caused(caused),
            Item::Passed(passed) => self.passed(passed),
            Item::Nested(ns) => self.nested(ns),
            _ => {}
        }
    }
}

impl<const CHAINS: bool> Causes<'_, CHAINS> {
    fn caused(&mut self, caused: &Caused) {
        let Caused { depth, is_received, waiters, ns, .. } = *caused;
        self.totals.add(Self::charged(caused.payer), ns);
        if depth > 1
            && let Some(chains) = &mut self.totals.chains
        {
            chains.through_others_ns = chains.through_others_ns.saturating_add(ns);
        }
        let Some(key) = self.key(caused) else { return };
        let (kept_ns, received_ns) = if is_received { (0, ns) } else { (ns, 0) };
        let sums = CauseSums {
            wait_caused_ns: kept_ns,
            root_wait_ns: ns,
            direct_ns: if depth == 1 { ns } else { 0 },
            deepest: depth.into(),
            max_waiters: if self.by == By::Depth { waiters.of_depth } else { waiters.all },
            kept_ns,
            passed_ns: 0,
            received_ns,
        };
        self.sums.entry(key).or_default().merge(&sums);
    }

    fn passed(&mut self, passed: &Passed) {
        let Passed { lock, payer: Payer::Hold(hold), to, ns } = *passed else { return };
        if self.by.holder().is_some() {
            let sums = CauseSums { wait_caused_ns: ns, passed_ns: ns, ..CauseSums::default() };
            self.sums.entry(self.holder(lock, hold, Some(to))).or_default().merge(&sums);
        }
    }

    fn nested(&mut self, ns: i64) {
        if let Some(chains) = &mut self.totals.chains {
            chains.nested_wait_ns = chains.nested_wait_ns.saturating_add(ns);
        }
    }
}
