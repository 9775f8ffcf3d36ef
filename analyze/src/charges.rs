//! The shares of waits: who is charged for how much of each.
//!
//! The engine sends the shares of a wait before the wait ends. [`Charges`] adds them up by payee until then; together they are as long as
//! the wait, to the nanosecond. Memory is used for open waits only.

use rustc_hash::FxHashMap;
use trace_format::{LockId, StackId, TaskId};

use intervals::items::{Item, Share, Wait};

/// The party that is charged for a part of a wait, see [`blame::Charged`](tables::blame::Charged). `C` says which code, `T` which task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Payee<C, T> {
    /// A recorded hold, with the code that acquired the lock.
    Hold(C, T),
    /// The owner that the lock word named.
    Owner(T),
    /// No task: the lock was free, and the next waiter was not running yet.
    Handoff,
    /// No task: no recorded hold was open.
    Gap,
    /// An unknown holder: holds of this lock are not recorded.
    Unknown,
}

impl<C, T> Payee<C, T> {
    /// Returns the same party with another form of its code and its task.
    pub(crate) fn map<D, U>(self, code: impl FnOnce(C) -> D, task: impl FnOnce(T) -> U) -> Payee<D, U> {
        match self {
            Self::Hold(of, by) => Payee::Hold(code(of), task(by)),
            Self::Owner(by) => Payee::Owner(task(by)),
            Self::Handoff => Payee::Handoff,
            Self::Gap => Payee::Gap,
            Self::Unknown => Payee::Unknown,
        }
    }

    /// Returns the words for a party whose code is not known.
    pub(crate) const fn words(&self) -> &'static str {
        match self {
            Self::Hold(..) => "hold",
            Self::Owner(_) => "the owner by the lock word",
            Self::Handoff => "hand-off",
            Self::Gap => "no recorded hold",
            Self::Unknown => "holder not recorded",
        }
    }
}

/// Parties by the ids of a trace, each with its part of a wait in ns, in the order in which the parts began.
type Parts = Vec<(Payee<Option<StackId>, TaskId>, i64)>;

/// Number of parts of a wait up to which they are not added up yet.
const MIN_PARTS: usize = 16;

/// Adds up the shares of open waits, each with the number of parts from which on they are added up.
#[derive(Debug, Default)]
pub(crate) struct Charges(FxHashMap<(LockId, TaskId), (Parts, usize)>);

impl Charges {
    /// Receives an item. Returns the parts of the wait that it ends; none for other items, and for a wait that ends where it began.
    pub(crate) fn push(&mut self, item: Item<'_>) -> Parts {
        match item {
            Item::Share(wait, share) => self.share(wait, share),
            Item::Wait(wait) => {
                let mut parts = self.0.remove(&(wait.lock, wait.task)).unwrap_or_default().0;
                add_up(&mut parts);
                let payee = wait.owner.map_or(Payee::Unknown, Payee::Owner);
                return if wait.gap_ns.is_none() { vec![(payee, wait.wait_ns)] } else { parts };
            }
            _ => {}
        }
        Vec::new()
    }

    fn share(&mut self, wait: &Wait, share: &Share) {
        let payee = payee(wait, share);
        let (parts, most) = self.0.entry((wait.lock, wait.task)).or_default();
        parts.push((payee, share.ns));
        if parts.len() > MIN_PARTS.max(*most) {
            add_up(parts);
            *most = 2 * parts.len();
        }
    }
}

/// Returns the party that is charged for a share of a wait.
pub(crate) fn payee(wait: &Wait, share: &Share) -> Payee<Option<StackId>, TaskId> {
    match (share.payer, wait.owner) {
        (Some(payer), _) => Payee::Hold(payer.stack, payer.task),
        // The acquisition of that owner was not recorded, or not yet.
        (None, Some(task)) if share.is_owners(wait) => Payee::Owner(task),
        (None, _) if share.free => Payee::Handoff,
        (None, _) => Payee::Gap,
    }
}

/// Adds up the parts of each payee, at the place of its first one.
fn add_up(parts: &mut Parts) {
    let (mut places, mut sums) = (FxHashMap::default(), Parts::new());
    for (payee, ns) in parts.drain(..) {
        let next = sums.len();
        match sums.get_mut(*places.entry(payee).or_insert(next)) {
            Some((_, sum)) => add(sum, ns),
            None => sums.push((payee, ns)),
        }
    }
    *parts = sums;
}

/// Adds to a sum, which stays at the greatest number instead of overflowing.
pub(crate) fn add(sum: &mut i64, more: i64) {
    *sum = sum.saturating_add(more);
}
