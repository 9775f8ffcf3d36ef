//! The columns of the holder's states: each hold's waiting time, parted by the state of its task.
//!
//! Only holds that others waited for are kept, until all of their time is known: that of the last part may follow the hold's end.

use std::hash::Hash;

use polars::prelude::{Expr, LazyFrame, col, lit};
use rustc_hash::FxHashMap;
use trace_format::LockId;

use super::{
    columns::HolderStates,
    reading::{Reading, Rows},
};
use crate::{
    frame::{Sums as _, failed, masked, sums},
    key::RowKey,
    row_ids::RowIds,
};
use intervals::{
    causes,
    input::Input,
    items::{Caused, Hold, HoldId, Item, Payer, Sink},
};
use output::error::AnalyzeError;

sums! {
    /// Waiting time by state, in the order of the states.
    pub struct StateSums {
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

/// The waiting time of the holds of each row of one trace.
pub type StatesByRow = FxHashMap<RowKey, StateSums>;

/// Returns the columns of the rows: 0 where no task waited for a hold of the row, null where holds are not measured.
pub(super) fn filled() -> Vec<Expr> {
    let filled = |(name, _): &(&str, _)| {
        masked(col(*name).fill_null(lit(0)), col("wait_caused").is_not_null()).alias(*name)
    };
    StateSums::FIELDS.iter().map(filled).collect()
}

/// Reads every trace again and returns the waiting time of the holds of each row of each.
pub(super) fn read(reading: Reading, inputs: &[Input<'_>]) -> Result<Vec<StatesByRow>, AnalyzeError> {
    inputs.iter().map(|input| by_state(input, Rows::new(input, reading))).collect()
}

/// Returns the columns by row, from those of the rows of each trace.
pub(super) fn columns(found: Vec<StatesByRow>, ids: &RowIds) -> Result<LazyFrame, AnalyzeError> {
    let mut rows: FxHashMap<i64, StateSums> = FxHashMap::default();
    for (trace, found) in found.into_iter().enumerate() {
        let ids = ids.of_trace(trace);
        for (key, sums) in found {
            if let Some(row) = ids.get(&key) {
                rows.entry(*row).or_default().merge(&sums);
            }
        }
    }
    let columns = |(row, sums): (i64, StateSums)| {
        let states = HolderStates {
            caused_lock_ns: Some(sums.caused_lock),
            caused_idle_ns: Some(sums.caused_idle),
            caused_preempted_ns: Some(sums.caused_preempted),
            caused_uninterruptible_ns: Some(sums.caused_uninterruptible),
            caused_stopped_ns: Some(sums.caused_stopped),
            caused_asleep_ns: Some(sums.caused_asleep),
            caused_ready_ns: Some(sums.caused_ready),
            caused_running_ns: Some(sums.caused_running),
            caused_unknown_ns: Some(sums.caused_unknown),
        };
        (row, states)
    };
    HolderStates::frame(rows.into_iter().map(columns)).map_err(failed)
}

/// Reads a trace again and returns the waiting time of the holds of each row.
pub fn by_state<R: HoldRows>(
    input: &Input<'_>,
    rows: R,
) -> Result<FxHashMap<R::Key, StateSums>, AnalyzeError> {
    let (holds, _) = causes::of_all_waits(input, HoldStates::new(rows))?;
    Ok(holds.found)
}

/// The rows that count holds.
pub trait HoldRows {
    /// The key of a row.
    type Key: Copy + Eq + Hash;

    /// Returns the row that counts a hold, if one does.
    fn row(&mut self, hold: &Hold) -> Option<Self::Key>;
}

impl<K: Copy + Eq + Hash, F: FnMut(&Hold) -> Option<K>> HoldRows for F {
    type Key = K;

    fn row(&mut self, hold: &Hold) -> Option<K> {
        self(hold)
    }
}

impl HoldRows for Rows<'_> {
    type Key = RowKey;

    fn row(&mut self, hold: &Hold) -> Option<RowKey> {
        (self.selects(hold) && hold.is_credited()).then(|| self.key(hold))
    }
}

type ByHold<T> = FxHashMap<(LockId, HoldId), T>;

/// Adds the waiting time of each hold to its row, if a row counts the hold.
pub struct HoldStates<R: HoldRows> {
    rows: R,
    open: ByHold<StateSums>,
    /// Holds of which not all time is known: their row, if one counts them, and the missing time.
    ended: ByHold<(Option<R::Key>, i64)>,
    /// The waiting time of the holds of each row.
    pub found: FxHashMap<R::Key, StateSums>,
}

impl<R: HoldRows> HoldStates<R> {
    pub(super) fn new(rows: R) -> Self {
        let (open, ended, found) = (FxHashMap::default(), FxHashMap::default(), FxHashMap::default());
        Self { rows, open, ended, found }
    }
}

impl<R: HoldRows> Sink for HoldStates<R> {
    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Caused(caused) => self.caused(caused),
            Item::Hold(hold) => self.hold(hold),
            _ => {}
        }
    }
}

impl<R: HoldRows> HoldStates<R> {
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
        let row = self.rows.row(hold);
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
