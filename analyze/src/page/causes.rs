//! Passes the items of one reading on to the parts of a page: the ends of chains, the parts of the waits for
//! judged locks, the states of holders, the levels of the timeline, and the intervals of its windows.

use trace_format::{EventKind, EventRow, LockId, TaskId};

use super::{
    levels::{HELD, Levels, OFF, WAITED},
    windows::Keep,
};
use intervals::{
    input::selection::Selection,
    items::{Item, Needs, Sink},
};
use tables::{blame, key::RowKey, report::HoldStates, why};

/// Receives everything that the page needs of a trace once its windows are known, other than what its tables
/// gather.
pub(super) struct Causes<'a> {
    pub(super) selection: &'a Selection,
    pub(super) chains: blame::Causes<'a, true>,
    pub(super) why: why::PartsByLock<'a>,
    /// The states of the holders in the rows of the report, if they are recorded.
    pub(super) states: Option<HoldStates<'a, RowKey>>,
    pub(super) levels: Levels,
    pub(super) threads: Levels,
    /// Whether a thread that left the CPU is of interest: off-CPU times of all threads were recorded.
    pub(super) has_off_cpu: bool,
    pub(super) keep: Keep,
}

impl Sink for Causes<'_> {
    fn needs(&self) -> Needs {
        Needs { rows: true, chains: true, direct: true, held: true, ..Needs::default() }
    }

    #[inline]
    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Caused(_) | Item::Passed(_) | Item::Nested(_) => return self.chains.push(item),
            Item::Direct(caused) => self.why.push(Item::Caused(caused)),
            _ => self.why.push(item),
        }
        match item {
            Item::Row(row) if self.has_off_cpu && row.kind() == EventKind::OffCpu => self.off_cpu(row),
            Item::Direct(caused) => {
                self.states.iter_mut().for_each(|states| states.push(Item::Caused(caused)));
            }
            Item::Hold(hold) => {
                self.states.iter_mut().for_each(|states| states.push(item));
                if self.selection.selects_hold(hold) && self.selection.selects_lock(hold.lock.0) {
                    self.interval((hold.lock, hold.task), (hold.start_ns, hold.end_ns), HELD);
                    self.keep.push(item);
                }
            }
            Item::Wait(wait)
                if self.selection.selects_wait(wait) && self.selection.selects_lock(wait.lock.0) =>
            {
                self.interval((wait.lock, wait.task), (wait.start_ns, wait.end_ns), WAITED);
                self.keep.push(item);
            }
            _ => {}
        }
    }
}

impl Causes<'_> {
    #[inline]
    fn interval(&mut self, (lock, task): (LockId, TaskId), (start_ns, end_ns): (i64, i64), what: usize) {
        self.levels.add(lock.0, start_ns, end_ns, what);
        self.threads.add(task.0, start_ns, end_ns, what);
    }

    fn off_cpu(&mut self, row: &dyn EventRow) {
        let (Some(task), Some(off_ns)) = (row.task(), row.wait_ns()) else { return };
        let (end_ns, runq_ns) = (row.ts_ns(), row.runq_ns().unwrap_or(0).clamp(0, off_ns.max(0)));
        let start_ns = end_ns.saturating_sub(off_ns);
        self.threads.add(task.0, start_ns, end_ns, OFF);
        self.keep.off_cpu(row, [start_ns, end_ns - runq_ns, end_ns]);
    }
}
