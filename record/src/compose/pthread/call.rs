//! One call that takes or awaits a lock, from its entry to its return, and the rows that tell of it.

use trace_format::{
    Event, EventKind, LockId, Mode, StackId, TaskId,
    wire::{WireEvent, api},
};

use super::object::{kind_of, mode_of};
use crate::{
    compose::{Moment, OpenWait, Sums},
    locks::has_word,
};

/// A call that is open.
#[derive(Debug)]
pub(super) struct Call {
    /// Which function it is of: `trace_format::wire::api`.
    pub(super) api: u8,
    /// Where its lock is; of a condition wait, the mutex.
    pub(super) address: u64,
    pub(super) lock: LockId,
    pub(super) ts_ns: i64,
    pub(super) stack: Option<StackId>,
    /// Events were lost since it began: it may be another call by now.
    pub(super) stale: bool,
    /// Since then the task waited on its lock or condition: if it is another call, it is one on the same lock.
    pub(super) same_lock: bool,
    /// The call will refuse its arguments.
    pub(super) is_refused: bool,
    /// The lock's owner died before.
    pub(super) takes_over: bool,
    /// Since when it waits for the lock, if it does.
    pub(super) waits_since: Option<i64>,
    /// Of that wait.
    pub(super) share: Share,
    pub(super) condition: Option<Condition>,
}

/// The condition variable of a call that waits for one.
#[derive(Debug)]
pub(super) struct Condition {
    pub(super) address: u64,
    pub(super) lock: LockId,
    pub(super) share: Share,
    /// How often the task held the mutex before.
    pub(super) depth: u32,
}

/// What the futex waits of a call add up to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) sums: Option<Sums>,
    pub(super) waker: Option<(TaskId, Option<StackId>)>,
    /// Why the last one failed, if it did.
    pub(super) errno: Option<i32>,
}

impl Share {
    /// Nothing yet.
    pub(super) const NOTHING: Self =
        Self { sums: Some(Sums { blocked_ns: 0, runq_ns: 0 }), waker: None, errno: None };
    /// Nothing is known of futex waits.
    pub(super) const UNKNOWN: Self = Self { sums: None, ..Self::NOTHING };

    /// One more.
    pub(super) fn add(&mut self, sums: Option<Sums>, moment: &Moment, errno: Option<i32>) {
        self.sums = match (self.sums, sums) {
            (Some(a), Some(b)) => {
                Some(Sums { blocked_ns: a.blocked_ns + b.blocked_ns, runq_ns: a.runq_ns + b.runq_ns })
            }
            _ => None,
        };
        self.waker = moment.waker.or(self.waker);
        self.errno = errno;
    }
}

impl Call {
    /// A call that begins with this record.
    pub(super) fn new(moment: &Moment, event: &WireEvent, lock: LockId, none_yet: Share) -> Self {
        Self {
            api: event.detail,
            address: event.address,
            lock,
            ts_ns: moment.ts_ns,
            stack: moment.stack,
            stale: false,
            same_lock: false,
            is_refused: false,
            takes_over: false,
            waits_since: None,
            share: none_yet,
            condition: None,
        }
    }

    /// How it wants the lock.
    pub(super) fn mode(&self) -> Option<Mode> {
        mode_of(api::object(self.api))
    }

    /// Whether it does not wait, whatever happens.
    pub(super) fn tries(&self) -> bool {
        api::way(self.api) == api::TRIES
    }

    /// Whether this word is a part of the condition variable.
    pub(super) fn condition_has(&self, word: u64) -> bool {
        let condition = self.condition.as_ref();
        condition.is_some_and(|condition| within(word, condition.address, api::CONDITION))
    }

    /// Whether this word is a part of the lock.
    pub(super) fn lock_has(&self, word: u64) -> bool {
        let object = if self.condition.is_some() { api::MUTEX } else { api::object(self.api) };
        within(word, self.address, object)
    }

    /// The row that begins its wait.
    pub(super) fn wait(&self, moment: &Moment, owner: Option<TaskId>) -> Event {
        let row = moment.row(EventKind::Wait, self.lock);
        Event { stack: self.stack, peer_task: owner, mode: self.mode_of_rows(), ..row }
    }

    /// The row of an attempt that failed without a wait.
    pub(super) fn failure(&self, moment: &Moment, errno: Option<i32>) -> Event {
        let row = moment.row(EventKind::TryFail, self.lock);
        Event { stack: self.stack, errno, mode: self.mode_of_rows(), ..row }
    }

    /// The row of the acquisition; of a condition wait, that of the mutex.
    pub(super) fn acquisition(&self, moment: &Moment, errno: Option<i32>) -> Event {
        let waited = self.waits_since.map(|since| (moment.ts_ns - since).max(0));
        let share = if waited.is_some() { self.share } else { Share::NOTHING };
        Event {
            stack: self.stack,
            wait_ns: Some(waited.unwrap_or(0)),
            blocked_ns: share.sums.map(|s| s.blocked_ns),
            runq_ns: share.sums.map(|s| s.runq_ns),
            peer_task: share.waker.map(|(task, _)| task),
            peer_stack: share.waker.and_then(|(_, stack)| stack),
            errno,
            mode: self.mode_of_rows(),
            ..moment.row(EventKind::Acquire, self.lock)
        }
    }

    /// The row of a wait that ended without the lock.
    pub(super) fn abandonment(&self, moment: &Moment, errno: Option<i32>) -> Event {
        let row = self.acquisition(moment, errno);
        Event { kind: EventKind::Abandon, peer_task: None, peer_stack: None, ..row }
    }

    /// The row that ends the wait for its condition variable.
    pub(super) fn condition_end(&self, moment: &Moment, condition: &Condition, errno: Option<i32>) -> Event {
        let sums = condition.share.sums;
        let waited = OpenWait { lock: condition.lock, ts_ns: self.ts_ns, stack: self.stack, sums: None };
        let signalled = Moment { waker: condition.share.waker, ..*moment };
        Event {
            blocked_ns: sums.map(|s| s.blocked_ns),
            runq_ns: sums.map(|s| s.runq_ns),
            ..signalled.end_of(&waited, errno)
        }
    }

    /// Rows of a condition wait's lock are those of its mutex.
    fn mode_of_rows(&self) -> Option<Mode> {
        if self.condition.is_some() { Some(Mode::Exclusive) } else { self.mode() }
    }
}

fn within(word: u64, start: u64, object: u8) -> bool {
    has_word(kind_of(object), start, word)
}
