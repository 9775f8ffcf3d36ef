//! One call that takes or awaits a lock, from its begin to its end, and the rows that report it.

use serde::{Deserialize, Serialize};
use trace_format::{CallKind, Event, EventKind, LockId, LockKind, Mode, StackId, TaskId, wire::api};

use super::fact::{Fact, call_of};
use crate::compose::{
    header::{Header, OffCpuTimes, Source},
    locks::{Space, has_word},
};

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    /// The function, as in [`api`].
    function: u8,
    kind: LockKind,
    pub(crate) mode: Option<Mode>,
    pub(crate) source: Source,
    space: Space,
    /// The address of its lock; in a condition wait, of the mutex.
    pub(crate) address: u64,
    pub(crate) lock: LockId,
    ts_ns: i64,
    stack: Option<StackId>,
    /// Events were lost since it began: it may be another call by now.
    pub(crate) is_stale: bool,
    /// Since events were lost, the task waited on this lock or condition variable: if it is another call,
    /// then one on the same lock.
    pub(crate) same_lock: bool,
    pub(crate) is_refused: bool,
    /// The lock's owner died before.
    pub(crate) takes_over: bool,
    /// The time at which its wait for the lock began, if it waits.
    pub(crate) waits_since: Option<i64>,
    pub(crate) sleep: Sleep,
    pub(crate) condition: Option<Condition>,
}

/// The condition variable that a call waits for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Condition {
    pub(crate) address: u64,
    pub(crate) lock: LockId,
    pub(crate) sleep: Sleep,
    /// The number of times that the task held the mutex before.
    pub(crate) depth: u32,
}

/// The lock of a call that a futex wait is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitTarget {
    Lock,
    Condition,
}

impl Call {
    /// A call on `lock` that begins now.
    pub(crate) fn new(at: &Header, fact: &Fact, lock: LockId, sleep: Sleep) -> Self {
        Self {
            function: fact.function,
            kind: fact.kind(),
            mode: fact.mode(),
            source: at.source,
            space: at.space,
            address: fact.address,
            lock,
            ts_ns: at.ts_ns,
            stack: at.stack,
            is_stale: false,
            same_lock: false,
            is_refused: false,
            takes_over: false,
            waits_since: None,
            sleep,
            condition: None,
        }
    }

    /// Whether `fact` may be about this call. After a loss, the call may have become one on another lock.
    pub(crate) fn matches(&self, fact: &Fact) -> bool {
        self.function == fact.function && (fact.address == 0 || self.address == fact.address || self.is_stale)
    }

    /// The part of the call that a futex wait on `word` belongs to.
    pub(crate) fn target_of(&self, at: &Header, word: u64) -> Option<WaitTarget> {
        if self.space != at.space {
            return None;
        }
        let condition = self.condition.as_ref();
        if condition.is_some_and(|condition| has_word(LockKind::CondVar, condition.address, word)) {
            return Some(WaitTarget::Condition);
        }
        has_word(self.kind, self.address, word).then_some(WaitTarget::Lock)
    }

    pub(crate) fn address(&self) -> (Space, u64) {
        (self.space, self.address)
    }

    /// The kind of call by which it takes its lock. A wait on a condition variable takes its mutex without a
    /// limit.
    fn call_kind(&self) -> Option<CallKind> {
        call_of(self.function).filter(|_| self.condition.is_none())
    }

    pub(crate) fn wait(&self, at: &Header, owner: Option<TaskId>) -> Event {
        Event { peer_task: owner, call: self.call_kind(), ..self.row(at, EventKind::Wait) }
    }

    /// The row of the acquisition; in a condition wait, of the mutex.
    pub(crate) fn acquisition(&self, at: &Header, errno: Option<i32>) -> Event {
        let row = Event { errno, call: self.call_kind(), ..self.row(at, EventKind::Acquire) };
        match self.waits_since {
            Some(since) => self.sleep.add_to(at.ts_ns - since, row),
            None => Sleep::NONE.add_to(0, row),
        }
    }

    /// The row of a call that ended without the lock.
    pub(crate) fn failure(&self, at: &Header, errno: Option<i32>) -> Event {
        let errno = errno.or_else(|| self.semaphore_errno());
        if self.waits_since.is_none() {
            return Event { errno, call: self.call_kind(), ..self.row(at, EventKind::TryFail) };
        }
        let row = self.acquisition(at, errno);
        Event { kind: EventKind::Abandon, call: None, peer_task: None, peer_stack: None, ..row }
    }

    /// The row that ends the wait for its condition variable.
    pub(crate) fn condition_end(&self, at: &Header, condition: &Condition, errno: Option<i32>) -> Event {
        let kind = if errno.is_some() { EventKind::Abandon } else { EventKind::Acquire };
        let row = Event { errno, stack: self.stack, ..at.row(kind, condition.lock) };
        let row = condition.sleep.add_to(at.ts_ns - self.ts_ns, row);
        match errno {
            Some(_) => Event { peer_task: None, peer_stack: None, ..row },
            None => Event { call: call_of(self.function), ..row },
        }
    }

    /// The errno of a failed call on a semaphore, if it can be inferred: the function returns only -1.
    fn semaphore_errno(&self) -> Option<i32> {
        if self.kind != LockKind::UserSemaphore || self.source == Source::Library {
            return None;
        }
        if self.is_refused {
            return Some(libc::EINVAL);
        }
        match (api::variant(self.function), self.sleep.errno) {
            (api::NONE, _) => None,
            (api::TRY, _) => Some(libc::EAGAIN),
            (_, Some(errno)) => Some(errno),
            // Without a signal, the time was over, if futex waits are recorded.
            (api::BLOCKING, None) => Some(libc::EINTR),
            (_, None) => self.sleep.is_known().then_some(libc::ETIMEDOUT),
        }
    }

    fn row(&self, at: &Header, kind: EventKind) -> Event {
        Event { stack: self.stack, mode: self.mode, ..at.row(kind, self.lock) }
    }
}

// The sleep inside a call: its futex waits, added up.

/// The futex waits of a call.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Sleep {
    times: Option<OffCpuTimes>,
    /// The last task that woke the call, and its stack.
    waker: Option<(TaskId, Option<StackId>)>,
    /// The errno of the last futex wait, if it failed.
    pub(crate) errno: Option<i32>,
}

impl Sleep {
    /// No futex wait.
    pub(crate) const NONE: Self =
        Self { times: Some(OffCpuTimes { blocked_ns: 0, runq_ns: 0 }), waker: None, errno: None };
    /// Futex waits are not recorded.
    pub(crate) const UNKNOWN: Self = Self { times: None, ..Self::NONE };

    /// Whether futex waits are recorded.
    pub(crate) fn is_known(&self) -> bool {
        self.times.is_some()
    }

    /// Adds a futex wait that ended with this record.
    pub(crate) fn merge(&mut self, at: &Header, times: Option<OffCpuTimes>, errno: Option<i32>) {
        self.times = match (self.times, times) {
            (Some(a), Some(b)) => {
                Some(OffCpuTimes { blocked_ns: a.blocked_ns + b.blocked_ns, runq_ns: a.runq_ns + b.runq_ns })
            }
            _ => None,
        };
        self.waker = at.waker.or(self.waker);
        self.errno = errno;
    }

    /// `row`, which ends a wait of this length, with its sleep.
    #[inline]
    pub(crate) fn add_to(&self, wait_ns: i64, row: Event) -> Event {
        Event {
            wait_ns: Some(wait_ns.max(0)),
            blocked_ns: self.times.map(|times| times.blocked_ns),
            runq_ns: self.times.map(|times| times.runq_ns),
            peer_task: self.waker.map(|(task, _)| task),
            peer_stack: self.waker.and_then(|(_, stack)| stack),
            ..row
        }
    }
}
