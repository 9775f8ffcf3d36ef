//! The parties that are charged for waits.

use trace_format::{StackId, TaskId};

use intervals::items::Payer;

/// The party that is charged for a part of a wait, see [`blame::Charged`](tables::blame::Charged). `C` says
/// which code, `T` which task.
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

impl From<Payer> for Payee<Option<StackId>, TaskId> {
    fn from(payer: Payer) -> Self {
        match payer {
            Payer::Hold(hold) => Self::Hold(hold.stack, hold.task),
            Payer::Owner(task) => Self::Owner(task),
            Payer::Handoff => Self::Handoff,
            Payer::Gap | Payer::Oneself => Self::Gap,
            Payer::Cycle | Payer::Unknown => Self::Unknown,
        }
    }
}

/// Adds to a sum, which stays at the greatest number instead of overflowing.
pub(crate) fn add(sum: &mut i64, more: i64) {
    *sum = sum.saturating_add(more);
}
