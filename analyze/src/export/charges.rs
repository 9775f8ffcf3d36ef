//! Whole waits with who is charged for them: the engine hands out the shares of a wait before it ends.
//!
//! Holds, waits and shares enter, waits leave with their shares added up by holder; they add up to the wait, to the nanosecond. What is kept
//! is of open waits only.

use rustc_hash::FxHashMap;
use trace_format::{LockId, StackId, TaskId};

use crate::intervals::{Hold, Share, Sink, Wait};

/// Who is charged for a part of a wait. What each means is told at [`blame::Charged`](crate::blame::Charged).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Payee {
    /// A recorded hold.
    Hold {
        /// Whose.
        task: TaskId,
        /// Where it was acquired.
        stack: Option<StackId>,
    },
    /// Whom the lock word named.
    Owner {
        /// Who.
        task: TaskId,
    },
    /// Nobody.
    Gap,
    /// Nobody knows.
    Unknown,
}

/// Takes holds, and waits with their shares in the order in which they began.
pub(super) trait Charged {
    /// A hold ended.
    fn hold(&mut self, hold: &Hold);
    /// A wait ended.
    fn wait(&mut self, wait: &Wait, shares: &[(Payee, i64)]);
}

/// Keeps the shares of a wait until it ends.
#[derive(Debug)]
pub(super) struct Charges<T> {
    pub(super) inner: T,
    open: FxHashMap<(LockId, TaskId), Vec<(Payee, i64)>>,
}

impl<T> Charges<T> {
    pub(super) fn new(inner: T) -> Self {
        Self { inner, open: FxHashMap::default() }
    }
}

impl<T: Charged> Sink for Charges<T> {
    const SHARES: bool = true;

    fn hold(&mut self, hold: &Hold) {
        self.inner.hold(hold);
    }

    fn wait(&mut self, wait: &Wait) {
        let mut shares = self.open.remove(&(wait.lock, wait.task)).unwrap_or_default();
        if wait.gap_ns.is_none() {
            let payee = wait.owner.map_or(Payee::Unknown, |task| Payee::Owner { task });
            shares = vec![(payee, wait.wait_ns)];
        }
        self.inner.wait(wait, &shares);
    }

    fn share(&mut self, wait: &Wait, share: &Share) {
        let payee = match (share.payer, wait.owner) {
            (Some(payer), _) => Payee::Hold { task: payer.task, stack: payer.stack },
            // Who had the lock then was not seen to take it, or not yet.
            (None, Some(task)) if share.start_ns == wait.start_ns => Payee::Owner { task },
            (None, _) => Payee::Gap,
        };
        let open = self.open.entry((wait.lock, wait.task)).or_default();
        match open.iter_mut().find(|(other, _)| *other == payee) {
            Some((_, ns)) => *ns = ns.saturating_add(share.ns),
            None => open.push((payee, share.ns)),
        }
    }
}
