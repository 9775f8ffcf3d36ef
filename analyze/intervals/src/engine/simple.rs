//! Simple holds: the owner did not wait, released the lock itself, and nothing else happened on the lock in
//! between. Nearly all holds are simple.
//!
//! An acquisition begins as a [`SimpleStart`], which takes a few words instead of an [`OpenHold`]. If the
//! next event of the lock is its release, the hold is done. Any other event makes it an ordinary open hold
//! first, so that all other rules know nothing of it.

use trace_format::{EventKind, EventRow, LockId, Mode, TaskId};

use super::lock_state::{LockState, OpenHold, SimpleStart};
use crate::items::{Hold, HoldState, Item, Sink, started};

impl LockState {
    /// Begins a simple hold with an acquisition, to which the lock has advanced. Returns false if it may not
    /// be simple.
    #[inline]
    pub(super) fn begin_simple(
        &mut self,
        lock: LockId,
        task: TaskId,
        event: &impl EventRow,
        sink: &mut impl Sink,
    ) -> bool {
        let mode = event.mode().unwrap_or(Mode::Exclusive);
        let is_simple = self.holds.is_empty()
            && !self.fresh
            && event.ts_ns() == self.now_ns
            && event.wait_ns().is_some_and(|ns| ns <= 0)
            && self.rule.measures(mode)
            && self.rule.excludes(mode)
            && (self.waits.is_empty() || !sink.needs().shares && !self.is_waiting(task));
        if is_simple {
            let stack = event.stack();
            self.simple = Some(SimpleStart { task, stack });
            if sink.needs().acquired {
                sink.push(Item::Acquired(&started(lock, task, self.now_ns, stack)));
            }
        }
        is_simple
    }

    /// Ends the simple hold with an event of its lock. Returns false if the event is not its release, or if
    /// it lasted no time.
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
            sink.push(Item::Hold(&Hold {
                end_ns,
                wait_caused_ns: end_ns.saturating_sub(start_ns).saturating_mul(waiters),
                max_waiters: waiters,
                owner_changed,
                state: HoldState::Complete,
                ..started(lock, task, start_ns, stack)
            }));
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
