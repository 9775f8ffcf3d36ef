//! Simple holds: the owner did not wait, released the lock itself, and nothing else happened on the lock in between. Nearly all holds are
//! simple.
//!
//! An acquisition enters as a [`SimpleStart`], which takes a few words instead of an [`OpenHold`]. If the next event of the lock is its
//! release, a [`SimpleHold`] leaves. Any other event makes it an ordinary open hold first, so that all other rules know nothing of it.

use trace_format::{EventKind, EventRow, LockId, Mode, StackId, TaskId};

use super::{
    deadlock,
    interval::{Hold, HoldState},
    lock_state::{LockState, OpenHold},
    sink::Sink,
};

/// An exclusive hold whose owner did not wait and released the lock itself, and during which no wait began or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimpleHold {
    /// The lock.
    pub lock: LockId,
    /// Its owner.
    pub task: TaskId,
    /// The start of ownership, in ns of the trace's clock.
    pub start_ns: i64,
    /// The end of ownership, which is later.
    pub end_ns: i64,
    /// The stack of the acquisition.
    pub stack: Option<StackId>,
    /// The number of tasks that waited during the whole hold. All of their time is charged to it.
    pub waiters: i64,
    /// As [`Hold::owner_changed`].
    pub owner_changed: bool,
}

impl SimpleHold {
    /// Returns the length, in ns.
    #[inline]
    pub(crate) fn ns(&self) -> i64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// Returns the time of other tasks' waits that is charged to the hold, in ns.
    #[inline]
    pub(crate) fn wait_caused_ns(&self) -> i64 {
        self.ns().saturating_mul(self.waiters)
    }

    /// Returns the same hold with all fields.
    #[inline]
    pub fn to_hold(&self) -> Hold {
        Hold {
            end_ns: self.end_ns,
            wait_caused_ns: self.wait_caused_ns(),
            max_waiters: self.waiters,
            owner_changed: self.owner_changed,
            state: HoldState::Complete,
            ..started(self.lock, self.task, self.start_ns, self.stack)
        }
    }
}

/// Returns an uncontended exclusive hold, without an end.
#[inline]
fn started(lock: LockId, task: TaskId, start_ns: i64, stack: Option<StackId>) -> Hold {
    Hold {
        lock,
        task,
        mode: Mode::Exclusive,
        start_ns,
        end_ns: start_ns,
        stack,
        contended: false,
        wait_ns: Some(0),
        gap_ns: Some(0),
        blocked_ns: None,
        runq_ns: None,
        waits_begun: 0,
        wait_caused_ns: 0,
        max_waiters: 0,
        owner_changed: false,
        acquisitions: 1,
        recursions: 0,
        released_by: None,
        state: HoldState::AcquisitionOnly,
    }
}

/// The start of a hold that is simple so far: the only hold of its lock, begun at the lock's time, of which no other event is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimpleStart {
    task: TaskId,
    stack: Option<StackId>,
}

impl SimpleStart {
    /// Returns the hold as a search for deadlocks knows it.
    pub(super) fn open(self, lock: LockId) -> deadlock::OpenHold {
        let Self { task, stack } = self;
        deadlock::OpenHold { lock, task, mode: Mode::Exclusive, stack, excludes: true }
    }
}

impl LockState {
    /// Begins a simple hold with an acquisition, to which the lock has advanced. Returns false if it may not be simple.
    #[inline]
    pub(super) fn begin_simple<S: Sink>(
        &mut self,
        lock: LockId,
        task: TaskId,
        event: &impl EventRow,
        sink: &mut S,
    ) -> bool {
        let mode = event.mode().unwrap_or(Mode::Exclusive);
        let is_simple = self.holds.is_empty()
            && !self.fresh
            && event.ts_ns() == self.now_ns
            && event.wait_ns().is_some_and(|ns| ns <= 0)
            && self.rule.measures(mode)
            && self.rule.excludes(mode)
            && (self.waits.is_empty() || !S::SHARES && !self.is_waiting(task));
        if is_simple {
            let stack = event.stack();
            self.simple = Some(SimpleStart { task, stack });
            if sink.follows_acquired() {
                sink.acquired(&started(lock, task, self.now_ns, stack));
            }
        }
        is_simple
    }

    /// Ends the simple hold with an event of its lock. Returns false if the event is not its release, or if it lasted no time.
    #[inline]
    pub(super) fn end_simple(
        &mut self,
        lock: LockId,
        SimpleStart { task, stack }: SimpleStart,
        event: &impl EventRow,
        sink: &mut impl Sink,
    ) -> bool {
        let (start_ns, end_ns) = (self.now_ns, event.ts_ns());
        let is_release = event.kind() == EventKind::Release
            && event.task() == Some(task)
            && end_ns > start_ns
            && event.mode() != Some(Mode::Shared);
        if is_release {
            let before = self.last_owner.replace(task);
            let owner_changed = before.is_some_and(|before| before != task);
            let waiters = i64::try_from(self.waits.len()).unwrap_or(i64::MAX);
            self.simple = None;
            self.now_ns = end_ns;
            self.complete = true;
            sink.simple_hold(&SimpleHold { lock, task, start_ns, end_ns, stack, waiters, owner_changed });
        }
        is_release
    }

    /// Makes the simple hold, if there is one, an ordinary open hold.
    pub(super) fn unfold_simple(&mut self) {
        if let (Some(SimpleStart { task, stack }), Some(lock)) = (self.simple.take(), self.lock) {
            let hold = started(lock, task, self.now_ns, stack);
            self.holds.push(OpenHold::new(hold, self.now_ns, true, self.complete));
            self.fresh = true;
        }
    }
}
