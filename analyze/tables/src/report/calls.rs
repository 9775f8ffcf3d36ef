//! The columns of rows of tasks that the holds of a report do not give: their lifetime, the calls that woke
//! others and those that failed, and idle waits. They follow bcc's lockstat (iovisor/bcc pull request 1697).
//!
//! Each trace is read twice: intervals come from the engine, calls without one (wake-ups, failed attempts)
//! from the events. Memory grows with the rows, and the threads and locks in them.

use polars::prelude::{LazyFrame, col};
use rustc_hash::{FxHashMap, FxHashSet};
use trace_format::{Event, EventKind, LockId, StackId, TaskId};

use super::{hold_sums::HoldSums, reading::Found};
use crate::{
    frame::{Lines, failed, known, share, sums},
    key::{By, Ids, Key, RowKey},
    rank::{Row, count, duration, measure},
};
use intervals::{
    input::Input,
    items::{Hold, Outcome, Sink, Wait},
};
use output::{Column, Kind, error::AnalyzeError};

sums! {
    /// The sums of a row.
    struct CallSums {
        tasks: Sum,
        locks: Sum,
        waits: Sum,
        waited_ns: Sum,
        slept_ns: Sum,
        lived_ns: Sum,
        errors: Sum,
        wakes: Sum,
        woken: Sum,
        idle_waits: Sum,
        idle_time_ns: Sum,
        /// Waits of which the time asleep is known.
        known: Sum,
    }
}

/// Declares the columns.
pub(super) fn columns() -> Vec<Column<Row<Key>>> {
    vec![
        count("tasks", "Threads that have events.").sum(),
        count("locks", "Locks that they acquired or waited for."),
        count("waits", "Waits for locks, however they ended.").sum(),
        duration("waited", "The sum of these waits; a wait that is open at the end counts until then.").sum(),
        measure("wait_share", Kind::Ppm, "`waited` divided by `lived`."),
        duration("slept", "The part of `waited` spent asleep, as far as it is known.").sum(),
        measure("slept_share", Kind::Ppm, "`slept` divided by `lived`."),
        duration("lived", "The lifetime of the threads within the selected time: running, waiting and asleep.").sum(),
        count("errors", "Abandoned waits, attempts that found a lock taken, and failed wake-ups.").sum(),
        count("wakes", "Calls that wake others.").sum(),
        count("woken", "Threads woken by these calls, as far as it is known.").sum(),
        count("idle_waits", "Idle waits: on condition variables, semaphores and barriers, for the end of threads, in schedulers.").sum(),
        duration("idle_time", "The sum of these waits.").sum(),
    ]
}

/// Whether the rows of this key are of tasks.
pub(super) fn has_columns(by: By) -> bool {
    matches!(by.ids(), Ids::Task | Ids::None)
}

/// Reads every trace again, with idle waits, and returns the columns by row. Tasks that got no lock have new
/// rows.
pub(super) fn read(by: By, inputs: &[Input<'_>], found: &mut Found<'_>) -> Result<LazyFrame, AnalyzeError> {
    let (with_locks, mut lines) = (found.ids.len(), Lines::new(["row"]));
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
        for (key, OfRow { mut sums, tasks, locks }) in counter.found {
            (sums.tasks, sums.locks) = (tasks.len() as i64, locks.len() as i64);
            sums.lived_ns = tasks.iter().map(lived).fold(0, i64::saturating_add);
            lines.push([found.ids.id(at, key, inputs)], &sums);
        }
    }
    // Tasks that got no lock have rows, too.
    (with_locks..found.ids.len()).for_each(|row| found.sums.push([row], &HoldSums::default()));
    let slept = known(col("slept_ns"), col("known")).alias("slept_ns");
    let share = |of: &str, name: &str| share(of, "lived_ns").alias(name);
    let shares = [share("waited_ns", "wait_share_ppm"), share("slept_ns", "slept_share_ppm")];
    Ok(lines.merge().map_err(failed)?.with_columns([slept]).with_columns(shares))
}

/// The sums of one row of one trace.
#[derive(Default)]
struct OfRow {
    sums: CallSums,
    tasks: FxHashSet<TaskId>,
    locks: FxHashSet<LockId>,
}

/// Adds intervals and events up by row.
struct Counter<'a> {
    by: By,
    input: &'a Input<'a>,
    found: FxHashMap<RowKey, OfRow>,
}

impl Counter<'_> {
    fn row(&mut self, task: TaskId) -> &mut OfRow {
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
        let OfRow { sums, locks, .. } = self.row(wait.task);
        if is_idle {
            sums.idle_waits += 1;
            sums.idle_time_ns = sums.idle_time_ns.saturating_add(wait.wait_ns);
            return;
        }
        locks.insert(wait.lock);
        sums.waits += 1;
        sums.waited_ns = sums.waited_ns.saturating_add(wait.wait_ns);
        sums.errors += i64::from(matches!(wait.outcome, Outcome::Abandoned(_)));
        sums.known += i64::from(wait.blocked_ns.is_some());
        sums.slept_ns = sums.slept_ns.saturating_add(wait.blocked_ns.unwrap_or(0));
    }
}
