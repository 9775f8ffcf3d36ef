//! The columns of the holder's states: each hold's waiting time, parted by the state of its task.
//!
//! Only holds that others waited for are kept, until all of their time is known: the row with the time of the
//! last part may follow the hold's end.

use std::hash::Hash;

use polars::prelude::{LazyFrame, PolarsResult, col, lit};
use rustc_hash::FxHashMap;
use trace_format::LockId;

use super::hold_sums::held;
use crate::{
    frame::{Lines, Sums, known, sums},
    held::{HELD, HeldSums},
    key::{Key, RowKey},
    rank::{Row, duration},
    row_ids::RowIds,
};
use intervals::{
    causes,
    input::Input,
    items::{Caused, Hold, HoldId, Item, Payer, Sink},
};
use output::{Column, error::AnalyzeError};

sums! {
    /// Waiting time by state, in the order of the states.
    pub struct StateSums {
        caused_lock_ns: Sum,
        caused_idle_ns: Sum,
        caused_preempted_ns: Sum,
        caused_uninterruptible_ns: Sum,
        caused_stopped_ns: Sum,
        caused_asleep_ns: Sum,
        caused_ready_ns: Sum,
        caused_running_ns: Sum,
        caused_unknown_ns: Sum,
    }
}

/// The waiting time of the holds of each row of one trace.
pub type StatesByRow = FxHashMap<RowKey, StateSums>;
/// The time of the holds of each row of one trace.
pub(super) type HeldByRow = FxHashMap<RowKey, HeldSums>;

/// The words of the columns, in the order of the states, and their sentences.
pub const STATES: [(&str, &str); 9] = [
    ("caused_lock", "The part of `wait_caused` in which the holder waited for another lock."),
    ("caused_idle", "The part in which it waited for a condition variable, semaphore or barrier."),
    ("caused_preempted", "The part in which it was preempted: runnable, but another task had its CPU."),
    (
        "caused_uninterruptible",
        "The part in which it slept uninterruptibly: mostly disk I/O and page faults.",
    ),
    ("caused_stopped", "The part in which a signal or a debugger had stopped it."),
    ("caused_asleep", "The part in which it slept in any other way."),
    ("caused_ready", "The part in which it was woken and waited for a CPU."),
    ("caused_running", "The part in which it ran."),
    (
        "caused_unknown",
        "The part in which its state is unknown: off-CPU time was not recorded, or it has no later event.",
    ),
];

/// Declares the columns, which add up to `wait_caused`.
pub(super) fn columns() -> Vec<Column<Row<Key>>> {
    STATES.map(|(word, doc)| duration(word, doc).sum()).into()
}

/// Declares the columns of the tasks' states in all of their holds, which add up to `total`.
pub(super) fn held_columns() -> Vec<Column<Row<Key>>> {
    HELD.map(|(word, doc)| duration(word, doc).sum()).into()
}

/// Adds the columns of sums to the rows: 0 where a row has none, null where holds are not measured.
pub(super) fn join<S: Sums>(
    rows: LazyFrame,
    found: Vec<FxHashMap<RowKey, S>>,
    ids: &RowIds,
) -> PolarsResult<LazyFrame> {
    let mut lines = Lines::new(["row"]);
    for (trace, found) in found.into_iter().enumerate() {
        let ids = ids.of_trace(trace);
        for (key, sums) in found {
            if let Some(row) = ids.get(&key) {
                lines.push([*row], &sums);
            }
        }
    }
    let filled = S::FIELDS.iter().map(|(name, _)| known(col(*name).fill_null(lit(0)), held()));
    let rows = rows.left_join(lines.merge()?, col("row"), col("row"));
    Ok(rows.with_columns(filled.collect::<Vec<_>>()))
}

/// Reads a trace again and returns the waiting time of the holds of each row.
pub fn read<K: Copy + Eq + Hash>(
    input: &Input<'_>,
    states: HoldStates<'_, K>,
) -> Result<FxHashMap<K, StateSums>, AnalyzeError> {
    let (states, _) = causes::of_all_waits(input, states)?;
    Ok(states.found)
}

/// Returns the row that counts a hold.
type RowOf<'a, K> = Box<dyn Fn(&Hold) -> Option<K> + 'a>;

type ByHold<T> = FxHashMap<(LockId, HoldId), T>;

/// Adds the waiting time of each hold to its row, if a row counts the hold.
pub struct HoldStates<'a, K> {
    row: RowOf<'a, K>,
    open: ByHold<StateSums>,
    /// Holds of which not all time is known: their row, if one counts them, and the missing time.
    ended: ByHold<(Option<K>, i64)>,
    /// The waiting time of the holds of each row.
    pub found: FxHashMap<K, StateSums>,
}

impl<'a, K: Copy + Eq + Hash> HoldStates<'a, K> {
    /// Returns a receiver that adds holds to the rows that `row` returns.
    pub fn new(row: impl Fn(&Hold) -> Option<K> + 'a) -> Self {
        let (open, ended, found) = (FxHashMap::default(), FxHashMap::default(), FxHashMap::default());
        Self { row: Box::new(row), open, ended, found }
    }
}

impl<K: Copy + Eq + Hash> Sink for HoldStates<'_, K> {
    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Caused(caused) => self.caused(caused),
            Item::Hold(hold) => self.hold(hold),
            _ => {}
        }
    }
}

impl<K: Copy + Eq + Hash> HoldStates<'_, K> {
    fn caused(&mut self, caused: &Caused) {
        let (Payer::Hold(hold), Some(state)) = (caused.payer, caused.state) else { return };
        let key = (caused.lock, hold);
        let mut sums = StateSums::default();
        sums.set(state as usize, caused.ns);
        match self.ended.get_mut(&key) {
            Some((row, missing_ns)) => {
                *missing_ns = missing_ns.saturating_sub(caused.ns);
                if let Some(row) = row {
                    self.found.entry(*row).or_default().merge(&sums);
                }
                if *missing_ns <= 0 {
                    self.ended.remove(&key);
                }
            }
            None => self.open.entry(key).or_default().merge(&sums),
        }
    }

    fn hold(&mut self, hold: &Hold) {
        if hold.wait_caused_ns == 0 {
            return;
        }
        let id = HoldId { task: hold.task, start_ns: hold.start_ns, stack: hold.stack, mode: hold.mode };
        let key = (hold.lock, id);
        let row = (self.row)(hold);
        let sums = self.open.remove(&key).unwrap_or_default();
        let known_ns = (0..StateSums::FIELDS.len()).map(|field| sums.get(field)).sum();
        if let Some(row) = row {
            self.found.entry(row).or_default().merge(&sums);
        }
        let missing_ns = hold.wait_caused_ns.saturating_sub(known_ns);
        if missing_ns > 0 {
            self.ended.insert(key, (row, missing_ns));
        }
    }
}
