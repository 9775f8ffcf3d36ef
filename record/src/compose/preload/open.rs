//! A wait that has begun, and what the kernel side adds to it. Nothing of it is a row yet.

use trace_format::{Event, LockId, LockKind, StackId, TaskId};

use super::super::{Sums, pthread::Part};
use crate::locks::has_word;

/// A wait that has not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    /// Of what is waited for; with a condition, of its mutex.
    pub(super) address: u64,
    /// What is waited for.
    pub(super) kind: LockKind,
    /// The lock at the address.
    pub(super) lock: LockId,
    /// Since when.
    pub(super) ts_ns: i64,
    /// From where.
    pub(super) stack: Option<StackId>,
    /// The futex waits for the lock at the address.
    pub(super) share: Share,
    /// The condition that is waited for.
    pub(super) condition: Option<Condition>,
}

/// The condition of a wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Condition {
    pub(super) address: u64,
    /// The futex waits for it.
    pub(super) share: Share,
    /// Since when the wait is for the mutex, as its futex shows.
    pub(super) mutex_waits_since: Option<i64>,
}

/// What futex waits add up to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    sums: Option<Sums>,
    waker: Option<(TaskId, Option<StackId>)>,
}

impl Share {
    /// There was none.
    pub(super) const NOTHING: Self = Self { sums: Some(Sums { blocked_ns: 0, runq_ns: 0 }), waker: None };
    /// They are not recorded.
    pub(super) const UNKNOWN: Self = Self { sums: None, waker: None };

    pub(super) fn add(&mut self, sums: Option<Sums>, waker: Option<(TaskId, Option<StackId>)>) {
        self.sums = match (self.sums, sums) {
            (Some(a), Some(b)) => {
                Some(Sums { blocked_ns: a.blocked_ns + b.blocked_ns, runq_ns: a.runq_ns + b.runq_ns })
            }
            _ => None,
        };
        self.waker = waker.or(self.waker);
    }

    /// `row`, which ends a wait of this length, with these shares of it.
    pub(super) fn row(&self, wait_ns: i64, row: Event) -> Event {
        Event {
            wait_ns: Some(wait_ns.max(0)),
            blocked_ns: self.sums.map(|sums| sums.blocked_ns),
            runq_ns: self.sums.map(|sums| sums.runq_ns),
            peer_task: self.waker.map(|(task, _)| task),
            peer_stack: self.waker.and_then(|(_, stack)| stack),
            ..row
        }
    }
}

impl Open {
    /// Which part of the wait uses the futex word.
    pub(super) fn part_of(&self, word: u64) -> Option<Part> {
        let condition = self.condition.as_ref();
        if condition.is_some_and(|c| has_word(LockKind::CondVar, c.address, word)) {
            return Some(Part::Condition);
        }
        let kind = if condition.is_some() { LockKind::PthreadMutex } else { self.kind };
        has_word(kind, self.address, word).then_some(Part::Lock)
    }
}
