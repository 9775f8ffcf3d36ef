//! The columns of rows of tasks that the holds of a report do not give: their lifetime, the calls that woke others and those that failed, and
//! idle waits. They follow bcc's lockstat (iovisor/bcc pull request 1697).
//!
//! Each trace is read twice: intervals come from the engine, calls without one (wake-ups, failed attempts) from the events. Memory grows with
//! the rows, and the threads and locks in them.

use polars::prelude::LazyFrame;
use rustc_hash::{FxHashMap, FxHashSet};
use trace_format::{Event, EventKind, LockId, StackId, TaskId};

use super::Calls;
use crate::{
    frame::{Sums as _, failed, sums},
    key::{By, RowKey},
    row_ids::RowIds,
};
use intervals::{
    input::Input,
    items::{Hold, Item, Outcome, Sink, Wait},
};
use output::{error::AnalyzeError, units};

sums! {
    /// The sums of a row; null is not in them yet.
    struct CallSums {
        tasks: Sum,
        locks: Sum,
        waits: Sum,
        waited: Sum,
        asleep: Sum,
        lived: Sum,
        errors: Sum,
        wakes: Sum,
        woken: Sum,
        idle_waits: Sum,
        idle_time: Sum,
        /// Waits of which the time asleep is known.
        known: Sum,
    }
}

/// Whether the rows of this key are of tasks.
pub(super) const fn has_columns(by: By) -> bool {
    matches!(by, By::Task | By::Process | By::Comm | By::Cgroup | By::Host)
}

/// Reads every trace again, with idle waits, and returns the columns by row. New rows are those of tasks that got no lock.
pub(super) fn read(by: By, inputs: &[Input<'_>], ids: &mut RowIds) -> Result<LazyFrame, AnalyzeError> {
    let mut rows: FxHashMap<i64, CallSums> = FxHashMap::default();
    for (at, input) in inputs.iter().enumerate().filter(|_| has_columns(by)) {
        let mut counter = Counter { by, input, found: FxHashMap::default() };
        let outcome = input.run(&mut counter)?;
        input.events(|event| counter.event(event))?;
        let window = input.selection.window;
        let from_ns = window.from_ns.unwrap_or(input.selection.start_ns);
        let lived = |task: &TaskId| {
            let task = input.names.task(*task);
            let start_ns = task.and_then(|task| task.start_ns).unwrap_or(from_ns).max(from_ns);
            let exit_ns = task.and_then(|task| task.exit_ns).unwrap_or(outcome.end_ns).min(outcome.end_ns);
            exit_ns.saturating_sub(start_ns).max(0)
        };
        for (key, Found { mut sums, tasks, locks }) in counter.found {
            (sums.tasks, sums.locks) = (tasks.len() as i64, locks.len() as i64);
            sums.lived = tasks.iter().map(lived).fold(0, i64::saturating_add);
            rows.entry(ids.id(at, key, inputs)).or_default().merge(&sums);
        }
    }
    let columns = |(row, sums): (i64, CallSums)| {
        let asleep = (sums.known > 0).then_some(sums.asleep);
        let calls = Calls {
            tasks: Some(sums.tasks),
            locks: Some(sums.locks),
            waits: Some(sums.waits),
            waited_ns: Some(sums.waited),
            wait_share_ppm: units::ppm(sums.waited, sums.lived),
            asleep_ns: asleep,
            asleep_share_ppm: asleep.and_then(|ns| units::ppm(ns, sums.lived)),
            lived_ns: Some(sums.lived),
            errors: Some(sums.errors),
            wakes: Some(sums.wakes),
            woken: Some(sums.woken),
            idle_waits: Some(sums.idle_waits),
            idle_time_ns: Some(sums.idle_time),
        };
        (row, calls)
    };
    Calls::frame(rows.into_iter().map(columns)).map_err(failed)
}

/// The sums of one row of one trace.
#[derive(Default)]
struct Found {
    sums: CallSums,
    tasks: FxHashSet<TaskId>,
    locks: FxHashSet<LockId>,
}

/// Adds intervals and events up by row.
struct Counter<'a> {
    by: By,
    input: &'a Input<'a>,
    found: FxHashMap<RowKey, Found>,
}

impl Counter<'_> {
    fn row(&mut self, task: TaskId) -> &mut Found {
        let key = RowKey::of((LockId(-1), task, None), self.by, &self.input.names);
        let found = self.found.entry(key).or_default();
        found.tasks.insert(task);
        found
    }

    fn is_idle(&self, lock: LockId, stack: Option<StackId>) -> bool {
        self.input.names.purposes().of(lock, stack).is_idle()
    }

    /// Counts the calls that make no interval.
    fn event(&mut self, event: &Event) {
        let Some(task) = event.task.filter(|_| event.kind != EventKind::Lost) else { return };
        let sums = &mut self.row(task).sums;
        match event.kind {
            EventKind::Wake => {
                sums.wakes += 1;
                sums.woken = sums.woken.saturating_add(event.count.unwrap_or(0).max(0));
                sums.errors += i64::from(event.errno.is_some());
            }
            EventKind::TryFail => sums.errors += 1,
            _ => {}
        }
    }
}

impl Sink for Counter<'_> {
    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Hold(hold) => self.hold(hold),
            Item::Wait(wait) => self.wait(wait),
            _ => {}
        }
    }
}

impl Counter<'_> {
    fn hold(&mut self, hold: &Hold) {
        if self.input.selection.selects_hold(hold) && !self.is_idle(hold.lock, hold.stack) {
            self.row(hold.task).locks.insert(hold.lock);
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if !self.input.selection.selects_wait(wait) || wait.outcome == Outcome::CutByLoss {
            return;
        }
        let is_idle = self.is_idle(wait.lock, wait.stack);
        let Found { sums, locks, .. } = self.row(wait.task);
        if is_idle {
            sums.idle_waits += 1;
            sums.idle_time = sums.idle_time.saturating_add(wait.wait_ns);
            return;
        }
        locks.insert(wait.lock);
        sums.waits += 1;
        sums.waited = sums.waited.saturating_add(wait.wait_ns);
        sums.errors += i64::from(matches!(wait.outcome, Outcome::Abandoned(_)));
        sums.known += i64::from(wait.blocked_ns.is_some());
        sums.asleep = sums.asleep.saturating_add(wait.blocked_ns.unwrap_or(0));
    }
}
