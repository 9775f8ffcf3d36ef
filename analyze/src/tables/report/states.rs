//! The columns of the holder's states: each hold's waiting time, parted by the state of its task.
//!
//! Only holds that others waited for are kept, until all of their time is known: that of the last part may follow the hold's end.

use std::hash::Hash;

use polars::prelude::{Expr, LazyFrame, col, lit};
use rustc_hash::FxHashMap;
use trace_format::LockId;

use super::reading::{Reading, Rows};
use crate::{
    causes::{self, Caused, Payer, Receiver},
    engine::{Hold, HoldId},
    error::AnalyzeError,
    input::Input,
    tables::{
        frame::{Lines, Sums as _, failed, masked, sums},
        row_ids::RowIds,
    },
};

sums! {
    /// Waiting time by state, in the order of the states.
    pub(crate) struct StateSums {
        caused_lock: Sum,
        caused_idle: Sum,
        caused_preempted: Sum,
        caused_uninterruptible: Sum,
        caused_stopped: Sum,
        caused_asleep: Sum,
        caused_ready: Sum,
        caused_running: Sum,
        caused_unknown: Sum,
    }
}

/// Returns the columns of the rows: 0 where no task waited for a hold of the row, null where holds are not measured.
pub(super) fn filled() -> Vec<Expr> {
    let filled = |(name, _): &(&str, _)| {
        masked(col(*name).fill_null(lit(0)), col("wait_caused").is_not_null()).alias(*name)
    };
    StateSums::FIELDS.iter().map(filled).collect()
}

/// Reads every trace again and returns the columns by row.
pub(super) fn read(reading: Reading, inputs: &[Input<'_>], ids: &RowIds) -> Result<LazyFrame, AnalyzeError> {
    let mut lines: Lines<StateSums, 1> = Lines::new(["row"]);
    for (trace, input) in inputs.iter().enumerate() {
        let mut rows = Rows::new(input, reading);
        let row = |hold: &Hold| (rows.selects(hold) && hold.is_credited()).then(|| rows.key(hold));
        let found = by_state(input, row)?;
        let ids = ids.of_trace(trace);
        for (key, sums) in found {
            if let Some(row) = ids.get(&key) {
                lines.push([*row], &sums);
            }
        }
    }
    lines.merge().map_err(failed)
}

/// Reads a trace again and returns the waiting time of the holds of each row. `row` returns the row that counts a hold, if one does.
pub(crate) fn by_state<K: Copy + Eq + Hash>(
    input: &Input<'_>,
    row: impl FnMut(&Hold) -> Option<K>,
) -> Result<FxHashMap<K, StateSums>, AnalyzeError> {
    let (open, ended, found) = (FxHashMap::default(), FxHashMap::default(), FxHashMap::default());
    let (holds, _) = causes::of_all_waits(input, HoldStates { row, open, ended, found })?;
    Ok(holds.found)
}

/// Adds the waiting time of each hold to its row, if a row counts the hold.
struct HoldStates<K, F> {
    row: F,
    open: FxHashMap<(LockId, HoldId), StateSums>,
    /// Holds of which not all time is known: their row, if one counts them, and the missing time.
    ended: FxHashMap<(LockId, HoldId), (Option<K>, i64)>,
    found: FxHashMap<K, StateSums>,
}

impl<K: Copy + Eq + Hash, F: FnMut(&Hold) -> Option<K>> Receiver for HoldStates<K, F> {
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
