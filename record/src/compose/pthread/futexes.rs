//! Futex waits inside calls: they are parts of these, and the first one may be the begin of a call's wait.

use trace_format::{Event, Mode, wire::WireEvent};

use super::Calls;
use crate::compose::{Moment, Sums};

/// `include/uapi/linux/futex.h` (5.14)
const FUTEX_LOCK_PI2: i32 = 13;

/// Which lock of a call a futex wait is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::compose) enum Part {
    /// The one that the call takes.
    Lock,
    /// Its condition variable.
    Condition,
}

impl Calls {
    /// A futex wait began. Says of what it is a part, if the task is in a call that uses this word; the first wait
    /// for a lock that seemed free is the begin of the call's wait.
    pub(in crate::compose) fn futex_wait(
        &mut self,
        moment: &Moment,
        event: &WireEvent,
        out: &mut Vec<Event>,
    ) -> Option<Part> {
        let word = event.address;
        let Self { open, held, .. } = self;
        let call = open.get_mut(&moment.key)?.last_mut()?;
        if call.condition_has(word) {
            return Some(Part::Condition);
        }
        if !call.lock_has(word) {
            return None;
        }
        let asks_kernel = matches!(i32::from(event.detail), libc::FUTEX_LOCK_PI | FUTEX_LOCK_PI2);
        if std::mem::take(&mut call.takes_over) && asks_kernel {
            // It gives the caller what its owner left, and lets nobody wait.
        } else if !call.stale && !call.is_refused && call.waits_since.is_none() {
            let mode = if call.condition.is_some() { Some(Mode::Exclusive) } else { call.mode() };
            let owner = mode.and_then(|mode| held.in_the_way(moment, call.address, mode));
            out.push(call.wait(moment, owner));
            call.waits_since = Some(moment.ts_ns);
        }
        Some(Part::Lock)
    }

    /// The task's futex wait on `word` began or ended: its open call is about the lock around that word.
    pub(in crate::compose) fn futex_seen(&mut self, moment: &Moment, word: u64) {
        let Some(call) = self.open.get_mut(&moment.key).and_then(|open| open.last_mut()) else { return };
        call.same_lock |= call.lock_has(word) || call.condition_has(word);
    }

    /// A futex wait that is a part of a call ended.
    pub(in crate::compose) fn futex_wait_done(
        &mut self,
        moment: &Moment,
        part: Part,
        sums: Option<Sums>,
        errno: Option<i32>,
    ) {
        let Some(call) = self.open.get_mut(&moment.key).and_then(|open| open.last_mut()) else { return };
        match (part, &mut call.condition) {
            (Part::Condition, Some(condition)) => condition.share.add(sums, moment, errno),
            _ => call.share.add(sums, moment, errno),
        }
    }
}
