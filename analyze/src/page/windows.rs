//! Keeps the intervals that touch one of some windows. Beyond a number of intervals, the shortest are left
//! out.

use std::cmp::Reverse;

use trace_format::{EventRow, LockId, Mode, StackId, Syscall, TaskId};

use super::data::Window;
use crate::first::First;
use intervals::items::{Charge, Hold, Item, Sink, Wait};

pub(super) const NO_LOCK: LockId = LockId(-1);

/// The kinds of kept intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum KeptKind {
    Hold,
    Wait,
    OffCpu,
}

/// A kept interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    pub(super) kind: KeptKind,
    /// [`NO_LOCK`] off-CPU.
    pub(super) lock: LockId,
    pub(super) task: TaskId,
    pub(super) mode: Mode,
    pub(super) stack: Option<StackId>,
    /// The state of a hold, the outcome of a wait, why a thread was off-CPU.
    pub(super) state: &'static str,
    /// The system call in which the thread slept.
    pub(super) syscall: Option<Syscall>,
    /// The hold in which a wait began: its task and begin.
    pub(super) holder: Option<(TaskId, i64)>,
}

/// Keeps intervals that touch a window.
pub(super) struct Keep {
    windows: Vec<Window>,
    /// The first begin and the last end of the windows.
    from_ns: i64,
    to_ns: i64,
    /// The longest come first.
    kept: First<(Reverse<i64>, i64, LockId, TaskId), Kept>,
}

impl Keep {
    pub(super) fn new(windows: Vec<Window>, most: usize) -> Self {
        let from_ns = windows.iter().map(|window| window.from_ns).min().unwrap_or(i64::MAX);
        let to_ns = windows.iter().map(|window| window.to_ns).max().unwrap_or(i64::MIN);
        Self { windows, from_ns, to_ns, kept: First::new(most) }
    }

    /// Returns the longest intervals, by their begins, and the number of those that are left out.
    pub(super) fn finish(self) -> (Vec<Kept>, u64) {
        let (mut kept, left_out) = self.kept.finish();
        // A hold before the wait that begins with it: its place is known when the wait is met.
        kept.sort_by_key(|kept| (kept.start_ns, kept.kind, kept.lock, kept.task));
        (kept, left_out)
    }

    /// Whether an interval touches a window.
    #[inline]
    fn touches(&self, start_ns: i64, end_ns: i64) -> bool {
        let touches = |window: &Window| start_ns < window.to_ns && end_ns >= window.from_ns;
        start_ns < self.to_ns && end_ns >= self.from_ns && self.windows.iter().any(touches)
    }

    fn push(&mut self, kept: Kept) {
        let length = kept.end_ns.saturating_sub(kept.start_ns);
        self.kept.push((Reverse(length), kept.start_ns, kept.lock, kept.task), kept);
    }
}

impl Sink for Keep {
    #[inline]
    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Hold(hold) if self.touches(hold.start_ns, hold.end_ns) => self.hold(hold),
            Item::Wait(wait) if self.touches(wait.start_ns, wait.end_ns) => self.wait(wait),
            _ => {}
        }
    }
}

impl Keep {
    /// Keeps the time that a thread was off-CPU: asleep, and then in the run queue.
    pub(super) fn off_cpu(&mut self, row: &dyn EventRow, [start_ns, ready_ns, end_ns]: [i64; 3]) {
        let asleep = (start_ns, ready_ns, "asleep", row.syscall().filter(|call| *call != Syscall::NONE));
        for (start_ns, end_ns, state, syscall) in [asleep, (ready_ns, end_ns, "run queue", None)] {
            if start_ns < end_ns && self.touches(start_ns, end_ns) {
                let (kind, lock, task) = (KeptKind::OffCpu, NO_LOCK, row.task().unwrap_or(TaskId(-1)));
                let (mode, stack, holder) = (Mode::Exclusive, row.stack(), None);
                self.push(Kept { start_ns, end_ns, kind, lock, task, mode, stack, state, syscall, holder });
            }
        }
    }

    fn hold(&mut self, hold: &Hold) {
        let Hold { start_ns, end_ns, lock, task, mode, stack, .. } = *hold;
        let (kind, state, syscall, holder) = (KeptKind::Hold, hold.state.as_str(), None, None);
        self.push(Kept { start_ns, end_ns, kind, lock, task, mode, stack, state, syscall, holder });
    }

    fn wait(&mut self, wait: &Wait) {
        let Wait { start_ns, end_ns, lock, task, mode, stack, .. } = *wait;
        let holder = match wait.charge {
            Charge::Hold { task, start_ns } => Some((task, start_ns)),
            Charge::Gap | Charge::Unknown => None,
        };
        let (kind, state, syscall) = (KeptKind::Wait, wait.outcome.as_str(), None);
        self.push(Kept { start_ns, end_ns, kind, lock, task, mode, stack, state, syscall, holder });
    }
}
