//! The columns of queues and fairness: convoys, overtaking, and how hold time is divided among tasks.
//!
//! They are properties of a lock, so only rows that hold whole locks have them. All waits and holds of the
//! selected locks count.

use std::collections::BTreeMap;

use polars::prelude::{Expr, LazyFrame, col, lit};
use rustc_hash::FxHashMap;
use trace_format::{LockId, TaskId};

use super::queueing::{LockQueue, QueueSums};
use crate::{
    cells::Cells,
    frame::{Lines, Sums as _, failed, known},
    key::{By, Ids, Key, RowKey},
    rank::{Row, count, duration, measure},
    row_ids::RowIds,
};
use intervals::{
    input::Input,
    items::{Columns, Item, Needs, Sink},
};
use output::{Column, Kind, error::AnalyzeError};

/// The number of acquisitions from which on an episode is a convoy or saturated.
pub const CONVOY_MIN: u32 = 8;

/// Declares the columns.
pub(super) fn columns() -> Vec<Column<Row<Key>>> {
    vec![
        count("convoys", "Queues that were not empty for at least 8 acquisitions although the lock was free half of the time.").sum(),
        duration("convoy_wait", "The time of all waits in convoys.").sum(),
        duration("saturated_wait", "The time of all waits in queues of as many acquisitions in which the lock was mostly held.").sum(),
        count("overtakes", "Acquisitions that a waiting task had to let pass, although it came first; once for each such task.").sum(),
        count("overtaken_max", "The most acquisitions that overtook one wait."),
        measure("jain", Kind::Ppm, "Jain's index of the tasks' hold times: 100 % if all are equal, 100 % divided by their number if one has all."),
        measure("hog", Kind::Ppm, "The share of the hold time of the task that held longest."),
        count("run_length", "Acquisitions in a row by one task, on average: count divided by owner_changes + 1."),
    ]
}

/// Reads every trace again and adds the columns to the rows: null where holds are not measured or a row is a
/// part of a lock.
pub(super) fn join(
    rows: LazyFrame,
    (by, readers): (By, usize),
    inputs: &[Input<'_>],
    ids: &RowIds,
) -> Result<LazyFrame, AnalyzeError> {
    let mut lines = Lines::new(["row"]);
    // Hold time by row, trace and task.
    let mut held: BTreeMap<(i64, usize, TaskId), i64> = BTreeMap::new();
    for (trace, input) in inputs.iter().enumerate().filter(|_| has_columns(by)) {
        let names = &input.names;
        let queues = || Queues { by_lock: FxHashMap::default(), held: Cells::new(Ids::TaskAndLock, names) };
        let row = |lock: LockId| ids.of_trace(trace).get(&RowKey::of(lock, by, names)).copied();
        for Queues { by_lock, held: times } in input.run_apart(readers, queues)?.0 {
            for (lock, mut queue) in by_lock {
                queue.finish();
                row(lock).into_iter().for_each(|row| lines.push([row], &queue.sums));
            }
            for ((lock, task), ns) in times.into_values() {
                if let Some(row) = row(lock) {
                    let sum = held.entry((row, trace, task)).or_default();
                    *sum = sum.saturating_add(ns);
                }
            }
        }
    }
    let held: Vec<(i64, i64)> = held.into_iter().map(|((row, ..), ns)| (row, ns)).collect();
    for of_row in held.chunk_by(|(one, _), (other, _)| one == other) {
        let times: Vec<i64> = of_row.iter().map(|(_, ns)| *ns).collect();
        let division = QueueSums { jain_ppm: jain(&times), hog_ppm: hog(&times), ..QueueSums::default() };
        lines.push([of_row[0].0], &division);
    }
    let known = |of: Expr| known(of, col("measured") * lit(i64::from(has_columns(by))));
    let run_length = (col("count") / (col("owner_changes") + lit(1))).alias("run_length");
    let columns = QueueSums::FIELDS.iter().map(|(name, _)| col(*name)).chain([run_length]).map(known);
    let rows = rows.left_join(lines.merge().map_err(failed)?, col("row"), col("row"));
    Ok(rows.with_columns(columns.collect::<Vec<_>>()))
}

/// Whether the rows of this key hold whole locks.
fn has_columns(by: By) -> bool {
    matches!(by.ids(), Ids::Lock | Ids::None)
}

/// Returns Jain's index of these times in millionths: 1,000,000 if all are equal, a millionth of that by
/// their number if one has all.
pub(super) fn jain(times: &[i64]) -> i64 {
    // Times of hours in ns fit into 43 bits, their squares and a million of those into 128.
    let wide = |ns: &i64| u128::try_from(*ns).unwrap_or(0);
    let sum: u128 = times.iter().map(wide).sum();
    let squares = times.iter().map(|ns| wide(ns).saturating_mul(wide(ns))).fold(0, u128::saturating_add);
    let divisor = squares.saturating_mul(times.len() as u128);
    let index = sum.saturating_mul(sum).saturating_mul(1_000_000).checked_div(divisor);
    index.and_then(|index| i64::try_from(index).ok()).unwrap_or(1_000_000)
}

/// Returns the greatest share of these times in millionths.
fn hog(times: &[i64]) -> i64 {
    let sum: i128 = times.iter().map(|ns| i128::from(*ns)).sum();
    let most = i128::from(times.iter().copied().max().unwrap_or(0));
    (most * 1_000_000).checked_div(sum).and_then(|ppm| i64::try_from(ppm).ok()).unwrap_or(0)
}

/// The queues of the locks of one reader.
struct Queues {
    by_lock: FxHashMap<LockId, LockQueue>,
    /// Hold time by lock and task.
    held: Cells<i64, (LockId, TaskId)>,
}

impl Queues {
    fn of(&mut self, lock: LockId) -> &mut LockQueue {
        self.by_lock.entry(lock).or_insert_with(|| LockQueue::new(CONVOY_MIN.into()))
    }
}

impl Sink for Queues {
    fn needs(&self) -> Needs {
        Needs { acquired: true, ..Needs::columns(Columns::Times) }
    }

    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Acquired(hold) => self.of(hold.lock).acquired(hold),
            Item::WaitBegins(wait) => self.of(wait.lock).wait_begins(wait),
            Item::Hold(hold) => {
                let ns = self.held.of(hold, |subject| (subject.lock, subject.task));
                *ns = ns.saturating_add(hold.end_ns.saturating_sub(hold.start_ns));
                self.of(hold.lock).hold(hold);
            }
            Item::Wait(wait) => self.of(wait.lock).wait(wait),
            _ => {}
        }
    }
}
