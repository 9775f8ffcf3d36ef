//! The forward pass: rows enter in their order; the notes that the walk undoes leave.

use rustc_hash::FxHashMap;
use trace_format::{Event, EventKind, TaskId};

use super::{
    context::Context,
    held::HeldLocks,
    links::{Links, OpenWait},
    log::Log,
};

/// The forward pass.
pub(crate) struct Forward<'a> {
    context: &'a Context<'a>,
    pub(super) log: Log,
    pub(super) held: HeldLocks,
    links: Links,
    /// The number of rows.
    pub(super) rows: u64,
    /// The time of the last row.
    pub(super) last_ns: i64,
    /// The first and the last time of each task.
    seen: FxHashMap<TaskId, (i64, i64)>,
}

impl<'a> Forward<'a> {
    pub(crate) fn new(context: &'a Context<'a>) -> Self {
        let (log, held, links) = (Log::default(), HeldLocks::default(), Links::default());
        Self { context, log, held, links, rows: 0, last_ns: i64::MIN, seen: FxHashMap::default() }
    }

    /// Adds the next row.
    pub(crate) fn push(&mut self, row: &Event) {
        (self.rows, self.last_ns) = (self.rows + 1, row.ts_ns);
        if row.kind == EventKind::Lost {
            self.held.clear(&mut self.log);
            self.links.lost(row.ts_ns);
            return;
        }
        let Some(task) = row.task else { return };
        self.seen.entry(task).or_insert((row.ts_ns, 0)).1 = row.ts_ns;
        let link = self.links.row(task, row, self.rows, self.context);
        if has_notes(row) {
            let changes = self.held.apply(row, &self.context.rules, &mut self.log);
            if let Some(link) = link {
                link.push((row.ts_ns, self.rows), &mut self.log);
            }
            self.log.push(changes << 1 | u64::from(link.is_some()));
        }
    }

    /// Returns the times of the first and the last row of each task.
    pub(super) fn seen(&self) -> &FxHashMap<TaskId, (i64, i64)> {
        &self.seen
    }

    /// Returns the wait of a task that is open after the last row.
    pub(super) fn open_wait(&self, task: TaskId) -> Option<(OpenWait, bool)> {
        let wait = self.links.open_wait(task)?;
        Some((wait, self.context.is_idle(wait.lock, wait.stack)))
    }

    pub(super) fn is_idle(&self, row: &Event) -> bool {
        row.lock.is_some_and(|lock| self.context.is_idle(lock, row.stack))
    }
}

/// Whether a row of a task has notes.
pub(super) const fn has_notes(row: &Event) -> bool {
    use EventKind::{Abandon, Acquire, Destroy, OffCpu, Release};
    row.task.is_some() && matches!(row.kind, Acquire | Abandon | Release | Destroy | OffCpu)
}
