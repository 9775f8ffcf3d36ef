//! The columns of queues and fairness: convoys, overtaking, and how hold time is divided among tasks.
//!
//! They are properties of a lock, so only rows that hold whole locks have them. All waits and holds of the selected locks count.

use polars::prelude::{Expr, LazyFrame, col, lit};
use rustc_hash::FxHashMap;
use trace_format::{LockId, TaskId};

use super::{
    Column, Fairness, Group,
    queueing::{Held, LockQueue, QueueSums},
};
use crate::{
    frame::{Sums as _, failed, masked},
    key::{By, RowKey},
    row_ids::RowIds,
};
use intervals::{
    input::Input,
    items::{Columns, Item, Needs, Sink},
};
use output::error::AnalyzeError;

/// The number of acquisitions from which on an episode is a convoy or saturated.
pub const CONVOY_MIN: u32 = 8;

/// Reads every trace again and returns the columns by row.
pub(super) fn read(
    by: By,
    readers: usize,
    inputs: &[Input<'_>],
    ids: &RowIds,
) -> Result<LazyFrame, AnalyzeError> {
    // Hold time by task of every trace.
    let mut rows: FxHashMap<i64, (QueueSums, Vec<i64>)> = FxHashMap::default();
    for (trace, input) in inputs.iter().enumerate().filter(|_| has_columns(by)) {
        let names = &input.names;
        let queues =
            || Queues { min: CONVOY_MIN.into(), by_lock: FxHashMap::default(), held: Held::new(names) };
        let (sinks, _) = input.run_apart(readers, queues)?;
        let mut held: FxHashMap<(i64, TaskId), i64> = FxHashMap::default();
        let row = |lock: LockId| ids.of_trace(trace).get(&RowKey::of(lock, by, names)).copied();
        for Queues { by_lock, held: times, .. } in sinks {
            for (lock, mut queue) in by_lock {
                queue.finish();
                if let Some(row) = row(lock) {
                    rows.entry(row).or_default().0.merge(&queue.sums);
                }
            }
            for (lock, task, ns) in times.into_times() {
                if let Some(row) = row(lock) {
                    let sum = held.entry((row, task)).or_default();
                    *sum = sum.saturating_add(ns);
                }
            }
        }
        for ((row, _), ns) in held {
            rows.entry(row).or_default().1.push(ns);
        }
    }
    let columns = |(row, (queue, held)): (i64, (QueueSums, Vec<i64>))| {
        let fairness = Fairness {
            convoys: Some(queue.convoys),
            convoy_wait_ns: Some(queue.convoy_wait_ns),
            saturated_wait_ns: Some(queue.saturated_wait_ns),
            overtakes: Some(queue.overtakes),
            overtaken_max: Some(queue.overtaken_max),
            jain_ppm: Some(jain(&held)),
            hog_ppm: Some(hog(&held)),
            run_length: None,
        };
        (row, fairness)
    };
    Fairness::frame(rows.into_iter().map(columns)).map_err(failed)
}

/// Returns the columns of the rows, and `run_length`. Null where holds are not measured or a row is a part of a lock.
pub(super) fn filled(by: By) -> Vec<Expr> {
    let is_known = || col("wait_caused").is_not_null().and(lit(has_columns(by)));
    let run_length = (col("count") / (col("owner_changes") + lit(1))).alias("run_length");
    let of_fairness = Column::ALL.iter().filter(|column| column.group() == Some(Group::Fairness));
    let filled = of_fairness.map(|column| match column {
        Column::RunLength => masked(run_length.clone(), is_known()),
        column => masked(col(column.as_str()), is_known()).alias(column.as_str()),
    });
    filled.collect()
}

/// Whether the rows of this key hold whole locks.
const fn has_columns(by: By) -> bool {
    matches!(by, By::Lock | By::Class | By::Kind | By::Host)
}

/// Returns Jain's index of these times in millionths: 1,000,000 if all are equal, a millionth of that by their number if one has all.
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
    min: i64,
    by_lock: FxHashMap<LockId, LockQueue>,
    held: Held,
}

impl Queues {
    fn of(&mut self, lock: LockId) -> &mut LockQueue {
        let min = self.min;
        self.by_lock.entry(lock).or_insert_with(|| LockQueue::new(min))
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
                self.held.add(hold);
                self.of(hold.lock).hold(hold);
            }
            Item::Wait(wait) => self.of(wait.lock).wait(wait),
            _ => {}
        }
    }
}
