//! The parts of the time between two rows of a task that makes others wait, by its state.

use trace_format::{EventKind, EventRow, TaskState};

use crate::items::{Detail, State};

/// The number of a task among those that waited or had a row.
pub(super) type TaskIndex = u32;

/// A part of the time between two rows of a task.
#[derive(Clone, Copy, Debug)]
pub struct StatePart {
    pub until_ns: i64,
    pub state: State,
    pub(super) detail: Detail,
}

impl StatePart {
    const EMPTY: Self = Self::new(i64::MIN, State::Unknown, Detail::None);

    const fn new(until_ns: i64, state: State, detail: Detail) -> Self {
        Self { until_ns, state, detail }
    }

    /// Returns the parts of the time from the row of a task at `from_ns` to its next row, during which it
    /// waits for nothing. `is_covered`: whether its off-CPU times are recorded.
    pub fn between(from_ns: i64, row: &impl EventRow, is_covered: bool) -> [Self; 3] {
        let ts_ns = row.ts_ns();
        let here = if is_covered { State::Running } else { State::Unknown };
        let on_cpu = |until_ns| Self::new(until_ns, here, Detail::None);
        if row.kind() != EventKind::OffCpu {
            return [on_cpu(ts_ns), Self::EMPTY, Self::EMPTY];
        }
        let left_ns = ts_ns.saturating_sub(row.wait_ns().unwrap_or(0).max(0)).clamp(from_ns, ts_ns);
        let woken_ns = match row.blocked_ns() {
            Some(blocked_ns) => left_ns.saturating_add(blocked_ns.max(0)).min(ts_ns),
            None => ts_ns,
        };
        let asleep = match (row.syscall(), row.stack()) {
            (None, None) => Detail::None,
            (syscall, stack) => Detail::Asleep(syscall, stack),
        };
        let (state, detail) = match row.state() {
            Some(TaskState::Runnable) => {
                let detail = row.peer_task().map_or(Detail::None, Detail::Preempted);
                return [on_cpu(left_ns), Self::new(ts_ns, State::Preempted, detail), Self::EMPTY];
            }
            Some(TaskState::Uninterruptible) => (State::Uninterruptible, asleep),
            Some(TaskState::Stopped | TaskState::Traced) => (State::Stopped, Detail::None),
            _ => (State::Asleep, asleep),
        };
        let blocked = Self::new(woken_ns, state, detail);
        let ready = Self::new(ts_ns, State::Ready, Detail::None);
        [on_cpu(left_ns), blocked, ready]
    }

    /// Returns one part that lasts until `until_ns`.
    pub(super) const fn whole(until_ns: i64, state: State, detail: Detail) -> [Self; 3] {
        [Self::new(until_ns, state, detail), Self::EMPTY, Self::EMPTY]
    }
}
