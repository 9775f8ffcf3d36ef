//! Keeps the intervals that touch one of some windows. Beyond a number of intervals, the shortest are left out.

use std::cmp::Reverse;

use trace_format::{LockId, Mode, StackId, TaskId};

use super::data::Window;
use crate::first::First;
use intervals::items::{Charge, Hold, Item, Sink, Wait};

/// A kept interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    pub(super) is_wait: bool,
    pub(super) lock: LockId,
    pub(super) task: TaskId,
    pub(super) mode: Mode,
    pub(super) stack: Option<StackId>,
    /// The state of a hold, the outcome of a wait.
    pub(super) state: &'static str,
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
        kept.sort_by_key(|kept| (kept.start_ns, kept.is_wait, kept.lock, kept.task));
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
    fn hold(&mut self, hold: &Hold) {
        let Hold { start_ns, end_ns, lock, task, mode, stack, .. } = *hold;
        let (is_wait, state, holder) = (false, hold.state.as_str(), None);
        self.push(Kept { start_ns, end_ns, is_wait, lock, task, mode, stack, state, holder });
    }

    fn wait(&mut self, wait: &Wait) {
        let Wait { start_ns, end_ns, lock, task, mode, stack, .. } = *wait;
        let holder = match wait.charge {
            Charge::Hold { task, start_ns } => Some((task, start_ns)),
            Charge::Gap | Charge::Unknown => None,
        };
        let (is_wait, state) = (true, wait.outcome.as_str());
        self.push(Kept { start_ns, end_ns, is_wait, lock, task, mode, stack, state, holder });
    }
}
