//! The shares of waits: who is charged for how much of each.
//!
//! The engine hands out the shares of a wait before it ends. They are kept here and added up by holder until then; together they
//! are as long as the wait, to the nanosecond. Memory is used for open waits only.

use rustc_hash::FxHashMap;
use trace_format::{LockId, StackId, TaskId};

use intervals::items::{Item, Share, Wait};

/// The party that is charged for a part of a wait, see [`blame::Charged`](tables::blame::Charged).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Payee {
    /// A recorded hold.
    Hold {
        /// Its owner.
        task: TaskId,
        /// The stack of its acquisition.
        stack: Option<StackId>,
    },
    /// The owner that the lock word named.
    Owner {
        /// The task.
        task: TaskId,
    },
    /// No task: the lock was free, and the next waiter was not running yet.
    Handoff,
    /// No task: no recorded hold was open.
    Gap,
    /// An unknown holder: holds of this lock are not recorded.
    Unknown,
}

/// Adds up the shares of open waits.
#[derive(Debug, Default)]
pub(super) struct Charges {
    open: FxHashMap<(LockId, TaskId), Vec<(Payee, i64)>>,
    /// The shares of the wait that ended last, in the order in which they began.
    pub(super) ended: Vec<(Payee, i64)>,
}

impl Charges {
    /// Receives the shares of waits and their ends.
    pub(super) fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Share(wait, share) => self.share(wait, share),
            Item::Wait(wait) => self.end(wait),
            _ => {}
        }
    }

    /// Adds a share of a wait that has not ended.
    fn share(&mut self, wait: &Wait, share: &Share) {
        let payee = match (share.payer, wait.owner) {
            (Some(payer), _) => Payee::Hold { task: payer.task, stack: payer.stack },
            // The acquisition of that owner was not recorded, or not yet.
            (None, Some(task)) if share.is_owners(wait) => Payee::Owner { task },
            (None, _) if share.free => Payee::Handoff,
            (None, _) => Payee::Gap,
        };
        let open = self.open.entry((wait.lock, wait.task)).or_default();
        match open.iter_mut().find(|(other, _)| *other == payee) {
            Some((_, ns)) => *ns = ns.saturating_add(share.ns),
            None => open.push((payee, share.ns)),
        }
    }

    /// Moves the shares of this wait to [`ended`](Self::ended).
    fn end(&mut self, wait: &Wait) {
        self.ended = self.open.remove(&(wait.lock, wait.task)).unwrap_or_default();
        if wait.gap_ns.is_none() {
            let payee = wait.owner.map_or(Payee::Unknown, |task| Payee::Owner { task });
            self.ended = vec![(payee, wait.wait_ns)];
        }
    }
}
