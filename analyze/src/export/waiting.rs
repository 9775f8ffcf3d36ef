//! Who waits for a lock right now, for formats that count them as time passes.
//!
//! Begins and ends of waits enter, the number of waiters leaves. What is kept is of open waits, and a number per lock that was waited for.

use rustc_hash::FxHashMap;
use trace_format::{LockId, TaskId};

use crate::intervals::{Share, Wait};

/// The waits that are open.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    open: FxHashMap<(LockId, TaskId), Open>,
    waiters: FxHashMap<LockId, i64>,
}

/// A wait of a task. Before one that ended where it began is told, the task may have begun another.
#[derive(Debug, Default)]
struct Open {
    waits: u32,
    charged: Option<Owned>,
}

/// A hold of a lock: by whom, and its begin.
pub(super) type Owned = (TaskId, i64);

impl Waiting {
    /// A wait begins. How many there are now.
    pub(super) fn begin(&mut self, wait: &Wait) -> i64 {
        self.open.entry((wait.lock, wait.task)).or_default().waits += 1;
        self.count(wait.lock, 1)
    }

    /// Remembers the hold that is charged.
    pub(super) fn share(&mut self, wait: &Wait, share: &Share) {
        if let (Some(payer), Some(open)) = (share.payer, self.open.get_mut(&(wait.lock, wait.task))) {
            open.charged = Some((payer.task, payer.start_ns));
        }
    }

    /// A wait ends. How many there are now, and the hold that it was charged to last; `None` if it was not seen to begin.
    pub(super) fn end(&mut self, wait: &Wait) -> Option<(i64, Option<Owned>)> {
        let key = (wait.lock, wait.task);
        let open = self.open.get_mut(&key)?;
        open.waits -= 1;
        let charged = open.charged.take();
        if open.waits == 0 {
            self.open.remove(&key);
        }
        Some((self.count(wait.lock, -1), charged))
    }

    fn count(&mut self, lock: LockId, more: i64) -> i64 {
        let count = self.waiters.entry(lock).or_default();
        *count += more;
        *count
    }
}
