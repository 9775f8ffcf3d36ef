//! Which acquisitions FreeBSD's profiler would have recorded, by its controls (`kern/subr_lock.c`): offline, so that a trace answers
//! for every setting.
//!
//! Acquisitions enter in the order in which they happened, holds as they end; what leaves is whether a hold is in the table. What is
//! not recorded is nowhere: counts and times are not scaled.

use rustc_hash::FxHashSet;
use trace_format::{LockId, LockKind, TaskId};

use crate::{intervals::Hold, names::Names};

/// The controls, by their names in `debug.lock.prof`. By default all is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pick {
    /// One in so many acquisitions, counted over all locks of the table; 0 and 1 are all.
    pub skipcount: u32,
    /// 1 leaves locks that spin out; all other numbers do nothing, as there. They count for `skipcount`.
    pub skipspin: i64,
    /// Only holds whose owner found the lock taken.
    pub contested_only: bool,
}

impl Pick {
    /// Whether everything is recorded.
    pub fn is_everything(&self) -> bool {
        self.skipcount <= 1 && self.skipspin != 1 && !self.contested_only
    }
}

/// Counts acquisitions and remembers which of the open holds are recorded.
#[derive(Debug)]
pub(super) struct Picker {
    pick: Pick,
    acquisitions: u64,
    /// Holds that have not ended: a task holds a lock from one moment on once.
    open: FxHashSet<(LockId, TaskId, i64)>,
}

impl Picker {
    pub(super) fn new(pick: Pick) -> Option<Self> {
        (!pick.is_everything()).then(|| Self { pick, acquisitions: 0, open: FxHashSet::default() })
    }

    /// An acquisition. One within a hold counts, and is recorded if the hold is.
    pub(super) fn acquired(&mut self, hold: &Hold, names: &Names) {
        self.acquisitions += 1;
        let is_skipped = !self.acquisitions.is_multiple_of(u64::from(self.pick.skipcount.max(1)));
        let is_left_out = self.pick.skipspin == 1 && spins(hold.lock, names)
            || self.pick.contested_only && !hold.contended
            || hold.acquisitions > 1;
        if !is_skipped && !is_left_out {
            self.open.insert(of(hold));
        }
    }

    /// A hold ended. Whether it is recorded.
    pub(super) fn takes(&mut self, hold: &Hold) -> bool {
        self.open.remove(&of(hold))
    }
}

fn of(hold: &Hold) -> (LockId, TaskId, i64) {
    (hold.lock, hold.task, hold.start_ns)
}

fn spins(lock: LockId, names: &Names) -> bool {
    let kind = names.lock(lock).map(|lock| lock.kind);
    matches!(kind, Some(LockKind::SpinLock | LockKind::RwLock | LockKind::PthreadSpin))
}
