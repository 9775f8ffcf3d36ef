//! Controls of FreeBSD's lock profiler (`kern/subr_lock.c`), applied offline, so that one trace answers for every setting.
//!
//! Acquisitions go in, in the order of time, then holds as they end; out comes whether a hold counts. Counts and times are not scaled.

use rustc_hash::FxHashSet;
use trace_format::{LockId, LockKind, TaskId};

use crate::{engine::Hold, input::names::Names};

/// The controls, by their names in `debug.lock.prof`. By default every acquisition counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pick {
    /// Counts one in this number of acquisitions, over all locks of the table; 0 and 1 count all.
    pub skipcount: u32,
    /// 1 excludes spinning locks, which still count for `skipcount`; other numbers change nothing, as in FreeBSD.
    pub skipspin: i64,
    /// Counts only holds whose owner found the lock taken.
    pub contested_only: bool,
}

impl Pick {
    /// Returns whether every acquisition counts.
    pub fn is_everything(&self) -> bool {
        self.skipcount <= 1 && self.skipspin != 1 && !self.contested_only
    }
}

/// Counts acquisitions and remembers the open holds that count.
#[derive(Debug)]
pub(super) struct Picker {
    pick: Pick,
    acquisitions: u64,
    /// Open holds, by lock, task and start.
    open: FxHashSet<(LockId, TaskId, i64)>,
}

impl Picker {
    pub(super) fn new(pick: Pick) -> Option<Self> {
        (!pick.is_everything()).then(|| Self { pick, acquisitions: 0, open: FxHashSet::default() })
    }

    /// Adds an acquisition. A nested one advances the count, and is included with its hold.
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

    /// Ends a hold. Returns whether it counts.
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
