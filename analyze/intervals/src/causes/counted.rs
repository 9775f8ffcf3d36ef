//! The waits whose time counts. Filters choose waits, and never change who pays: the waits of all locks are
//! followed.

use trace_format::LockId;

use crate::{
    input::selection::Selection,
    input::trust::TrustCounter,
    items::{Hold, Wait},
};

/// Decides for each wait whether its time counts.
#[derive(Debug)]
pub(super) struct CountedWaits<'a> {
    /// `None`: every wait counts.
    selection: Option<&'a Selection>,
    by: By,
    /// Of a choice at the begin of waits: the counts of the trust block.
    pub(super) trust: TrustCounter,
    /// Of a choice at the begin of waits: whether the selection of a wait differs between its begin and its
    /// end.
    pub(super) has_changed: bool,
}

/// The rule by which waits for a selected lock are chosen.
#[derive(Debug)]
enum By {
    /// All waits.
    Lock,
    /// By the facts that are known when the wait begins.
    Begin,
    /// By an earlier reading; with the index of the next wait.
    Reading(Chosen, usize),
}

/// The chosen ones of the waits for the selected locks, in the order of their begin: one bit each.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    bits: Vec<u64>,
    waits: usize,
}

impl Chosen {
    /// Adds a wait, and returns its index.
    pub(super) fn push(&mut self) -> usize {
        if self.waits.is_multiple_of(64) {
            self.bits.push(0);
        }
        self.waits += 1;
        self.waits - 1
    }

    /// Chooses the wait with this index.
    pub(super) fn choose(&mut self, wait: usize) {
        self.bits[wait / 64] |= 1 << (wait % 64);
    }

    fn has(&self, wait: usize) -> bool {
        self.bits.get(wait / 64).is_some_and(|bits| bits >> (wait % 64) & 1 == 1)
    }
}

impl<'a> CountedWaits<'a> {
    fn new(selection: Option<&'a Selection>, by: By) -> Self {
        Self { selection, by, trust: TrustCounter::default(), has_changed: false }
    }

    /// All waits for all locks.
    #[cfg(test)]
    pub(super) fn all() -> Self {
        Self::new(None, By::Lock)
    }

    /// All waits for the selected locks.
    pub(super) fn of_locks(selection: &'a Selection) -> Self {
        Self::new(Some(selection), By::Lock)
    }

    /// The waits that are selected by what is known at their begin.
    pub(super) fn at_begin(selection: &'a Selection) -> Self {
        Self::new(Some(selection), By::Begin)
    }

    /// The waits that an earlier reading chose.
    pub(super) fn chosen(selection: &'a Selection, chosen: Chosen) -> Self {
        Self::new(Some(selection), By::Reading(chosen, 0))
    }

    /// Returns whether a lock is selected. Selected locks are counted apart from the others.
    #[inline]
    pub(super) fn is_of(&self, lock: LockId) -> bool {
        self.selection.is_none_or(|selection| selection.selects_lock(lock.0))
    }

    fn selects(&self, wait: &Wait) -> bool {
        self.is_of(wait.lock) && self.selection.is_none_or(|selection| selection.selects_wait(wait))
    }

    /// Returns whether the time of a wait that begins counts. Called once for each, in the order of the
    /// trace.
    pub(super) fn begins(&mut self, wait: &Wait) -> bool {
        let is_of = self.is_of(wait.lock);
        match &mut self.by {
            By::Lock => is_of,
            By::Reading(chosen, next) if is_of => {
                *next += 1;
                chosen.has(*next - 1)
            }
            By::Reading(..) => false,
            By::Begin => self.selects(wait),
        }
    }

    /// Counts a wait that ended, whose time counted or not; `None` if its begin was not seen. Returns whether
    /// the time of such a wait counts.
    pub(super) fn ended(&mut self, wait: &Wait, counted: Option<bool>) -> bool {
        let is_selected = match self.by {
            By::Lock => self.is_of(wait.lock),
            By::Begin | By::Reading(..) => self.selects(wait),
        };
        if matches!(self.by, By::Begin) {
            if is_selected {
                self.trust.wait(wait);
            }
            self.has_changed |= counted.is_some_and(|counted| counted != is_selected) && wait.wait_ns > 0;
        }
        is_selected
    }

    /// Counts a hold that ended.
    #[inline]
    pub(super) fn hold(&mut self, hold: &Hold) {
        if matches!(self.by, By::Begin) && self.is_of(hold.lock) {
            self.trust.hold(hold);
        }
    }
}
