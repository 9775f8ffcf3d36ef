//! Futex waits inside calls. They are parts of these calls, and the first one may be the begin of a call's wait.

use trace_format::{EventColumns, wire::WireEvent};

use super::{UserLocks, call::WaitTarget};
use crate::compose::header::{Header, OffCpuTimes};

/// `include/uapi/linux/futex.h` (5.14)
const FUTEX_LOCK_PI2: i32 = 13;

impl UserLocks {
    /// Adds a futex wait that began. Returns the part of the task's open call that it belongs to. The first wait for a lock
    /// that seemed free begins the call's wait.
    pub(crate) fn futex_wait(
        &mut self,
        at: &Header,
        event: &WireEvent,
        out: &mut EventColumns,
    ) -> Option<WaitTarget> {
        let Self { open, holders, .. } = self;
        let call = open.last(at.key)?;
        let target = call.target_of(at, event.address)?;
        call.same_lock = true;
        if target == WaitTarget::Condition {
            return Some(target);
        }
        let asks_kernel = matches!(i32::from(event.detail), libc::FUTEX_LOCK_PI | FUTEX_LOCK_PI2);
        if std::mem::take(&mut call.takes_over) && asks_kernel {
            // The kernel hands over what the dead owner left, without a wait.
        } else if !call.is_stale && !call.is_refused && call.waits_since.is_none() {
            let owner = call.mode().and_then(|mode| holders.blocker(at, call.lock, mode));
            out.push(call.wait(at, owner));
            call.waits_since = Some(at.ts_ns);
        }
        Some(target)
    }

    /// Notes that the task's futex wait on `word` ended: its open call is about the lock around that word.
    pub(crate) fn futex_wait_seen(&mut self, at: &Header, word: u64) {
        if let Some(call) = self.open.last(at.key) {
            call.same_lock |= call.target_of(at, word).is_some();
        }
    }

    /// Adds the end of a futex wait that is a part of a call.
    pub(crate) fn futex_wait_done(
        &mut self,
        at: &Header,
        target: WaitTarget,
        times: Option<OffCpuTimes>,
        errno: Option<i32>,
    ) {
        let Some(call) = self.open.last(at.key) else { return };
        match (target, &mut call.condition) {
            (WaitTarget::Condition, Some(condition)) => condition.sleep.merge(at, times, errno),
            _ => call.sleep.merge(at, times, errno),
        }
    }
}
