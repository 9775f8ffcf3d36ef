//! Who passed on a lock whose holds are not recorded.
//!
//! ```text
//! 10 C waits, 50 A wakes B, which had waited, 70 B wakes C      of the 60 ns of C, 40 are for A and 20 for B
//! ```
//!
//! The time of a wait is divided: up to each wake-up of another waiter of the lock by another task, the time
//! is for the task that woke; the rest is for the task that ended the wait. That task alone did not have the
//! lock all the time. Where the end of a wait does not name its waker, the rows of wake-ups do.

use rustc_hash::FxHashMap;
use trace_format::{EventKind, EventRow, LockId, StackId, TaskId};

use intervals::items::{Outcome, Wait};

/// The wake-ups of waiters, by lock, while a task waits for it.
#[derive(Debug, Default)]
pub(crate) struct Passes {
    by_lock: FxHashMap<LockId, LockPasses>,
}

#[derive(Debug, Default)]
struct LockPasses {
    /// Open waits: the task and the begin.
    open: Vec<(TaskId, i64)>,
    /// In the order of time, then of tasks.
    passes: Vec<(i64, Waker)>,
    /// Calls that wake, the latest last.
    wakes: Vec<(i64, Waker)>,
}

/// The calls that wake that are kept of a lock.
const WAKES: usize = 8;

/// The task that woke a waiter, and the stack of the wake-up.
pub(crate) type Waker = (TaskId, Option<StackId>);

impl Passes {
    /// A wait begins for a lock whose holds are not recorded.
    pub(crate) fn begin(&mut self, wait: &Wait) {
        self.by_lock.entry(wait.lock).or_default().open.push((wait.task, wait.start_ns));
    }

    /// Adds a row. Processes that record themselves do not name who ended a wait: the last task that woke
    /// others meanwhile did.
    pub(crate) fn row(&mut self, row: &dyn EventRow) {
        if row.kind() != EventKind::Wake {
            return;
        }
        let of_lock = row.lock().and_then(|lock| self.by_lock.get_mut(&lock));
        if let (Some(of_lock), Some(task)) = (of_lock, row.task()) {
            if of_lock.wakes.len() == WAKES {
                of_lock.wakes.remove(0);
            }
            of_lock.wakes.push((row.ts_ns(), (task, row.stack())));
        }
    }

    /// Returns the parts of a wait that ends: the waker, if it is known, and the time.
    pub(crate) fn end(&mut self, wait: &Wait) -> Vec<(Option<Waker>, i64)> {
        let wakes = self.by_lock.get(&wait.lock).map_or(&[][..], |of_lock| &of_lock.wakes);
        let is_during = |wake: &&(i64, Waker)| wake.0 >= wait.start_ns && wake.1.0 != wait.task;
        let last = || wakes.iter().rev().find(is_during).filter(|_| wait.outcome == Outcome::Acquired);
        let waker = wait.waker.map(|waker| (waker, wait.waker_stack)).or_else(|| last().map(|wake| wake.1));
        let (mut parts, mut from_ns) = (Vec::new(), wait.start_ns);
        if let Some(of_lock) = self.by_lock.get_mut(&wait.lock) {
            let at = of_lock.open.iter().position(|(task, _)| *task == wait.task);
            if at.map(|at| of_lock.open.swap_remove(at)).is_some() {
                for (ns, waker) in &of_lock.passes {
                    if *ns > from_ns && *ns < wait.end_ns && waker.0 != wait.task {
                        parts.push((Some(*waker), ns - from_ns));
                        from_ns = *ns;
                    }
                }
            }
            let others = waker.filter(|(task, _)| *task != wait.task && !of_lock.open.is_empty());
            if let Some(pass) = others.map(|waker| (wait.end_ns, waker)) {
                let at = of_lock.passes.partition_point(|other| *other <= pass);
                of_lock.passes.insert(at, pass);
            }
            of_lock.forget();
        }
        parts.push((waker, wait.wait_ns.saturating_sub(from_ns.saturating_sub(wait.start_ns))));
        parts
    }
}

impl LockPasses {
    /// Forgets what no open wait can have a part of.
    fn forget(&mut self) {
        let first_ns = self.open.iter().map(|(_, begin_ns)| *begin_ns).min().unwrap_or(i64::MAX);
        let past = self.passes.partition_point(|(ns, _)| *ns <= first_ns);
        self.passes.drain(..past);
    }
}
