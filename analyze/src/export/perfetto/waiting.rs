//! Counts the waiters of each lock over time.
//!
//! Begins and ends of waits go in, the number of waiters comes out. Memory is used for open waits and for a number per lock.

use rustc_hash::FxHashMap;
use trace_format::{LockId, TaskId};

use intervals::engine::{Share, Wait};

/// The open waits.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    open: FxHashMap<(LockId, TaskId), Open>,
    waiters: FxHashMap<LockId, i64>,
}

/// The open waits of a task. A wait that ended where it began may be reported after the task began the next one.
#[derive(Debug, Default)]
struct Open {
    /// The starts of the waits.
    starts: Vec<i64>,
    charged: Option<HoldStart>,
}

/// The owner and the start of a hold.
pub(super) type HoldStart = (TaskId, i64);

impl Waiting {
    /// Adds a wait. Returns the number of waiters now.
    pub(super) fn begin(&mut self, wait: &Wait) -> i64 {
        self.open.entry((wait.lock, wait.task)).or_default().starts.push(wait.start_ns);
        self.count(wait.lock, 1)
    }

    /// Notes the hold that is charged for this wait.
    pub(super) fn share(&mut self, wait: &Wait, share: &Share) {
        if let (Some(payer), Some(open)) = (share.payer, self.open.get_mut(&(wait.lock, wait.task))) {
            open.charged = Some((payer.task, payer.start_ns));
        }
    }

    /// Removes a wait. Returns the number of waiters now and the hold that was charged last, or `None` if the start of the wait was
    /// not seen.
    pub(super) fn end(&mut self, wait: &Wait) -> Option<(i64, Option<HoldStart>)> {
        let key = (wait.lock, wait.task);
        let open = self.open.get_mut(&key)?;
        // A wait whose start was not seen can end while another one is open.
        let at = open.starts.iter().position(|start_ns| *start_ns == wait.start_ns)?;
        open.starts.swap_remove(at);
        let charged = open.charged.take();
        if open.starts.is_empty() {
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
