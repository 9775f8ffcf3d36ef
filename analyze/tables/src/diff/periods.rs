//! The sums of a key, period by period of each recording.
//!
//! Each recording is cut into periods. A host of a fleet counts as one recording. Times are counted in buckets.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::draws::PERIODS;
use crate::{buckets::bucket, frame::Sums as _, report::HoldSums};
use intervals::{
    input::Input,
    items::{Hold, HoldState},
};
use output::error::AnalyzeError;

/// The lengths of the recordings of one side, in ns.
#[derive(Clone, Debug, Default)]
pub(super) struct Spans {
    pub(super) all_ns: Vec<i64>,
    /// 0 for a recording that has no holds, and so no part in averages of them.
    pub(super) with_holds_ns: Vec<i64>,
}

/// A key in the recordings of one side. Period `p` of recording `r` has the index `r * PERIODS + p`.
#[derive(Clone, Debug, Default)]
pub(super) struct Periods {
    pub(super) cells: BTreeMap<usize, Cell>,
    pub(super) cut_by_loss: u64,
    /// Whether the end of a hold was seen.
    pub(super) measured: bool,
}

/// The sums of a key in one period.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    pub(super) sums: HoldSums,
    /// The number of waits and of holds in each bucket of times.
    pub(super) waits: FxHashMap<u32, u64>,
    pub(super) holds: FxHashMap<u32, u64>,
}

impl Cell {
    fn merge(&mut self, other: Self) {
        self.sums.merge(&other.sums);
        for (all, times) in [(&mut self.waits, other.waits), (&mut self.holds, other.holds)] {
            times.into_iter().for_each(|(bucket, count)| *all.entry(bucket).or_default() += count);
        }
    }
}

impl Periods {
    /// Adds a hold.
    pub(super) fn hold(&mut self, period: usize, hold: &Hold) {
        let cell = self.cells.entry(period).or_default();
        cell.sums.add(hold);
        if let Some(wait_ns) = hold.wait_ns.filter(|_| hold.contended) {
            *cell.waits.entry(bucket(wait_ns)).or_default() += 1;
        }
        if hold.state == HoldState::Complete {
            self.measured = true;
            *cell.holds.entry(bucket(hold.end_ns.saturating_sub(hold.start_ns))).or_default() += 1;
        }
    }

    /// Adds the holds of other locks in the same recordings.
    pub(super) fn merge(&mut self, other: Self) {
        for (period, cell) in other.cells {
            self.cells.entry(period).or_default().merge(cell);
        }
        self.cut_by_loss += other.cut_by_loss;
        self.measured |= other.measured;
    }

    /// Adds the periods of another recording, which has this index on its side.
    pub(super) fn add_recording(&mut self, index: usize, mut other: Self) {
        other.cells =
            other.cells.into_iter().map(|(period, cell)| (index * PERIODS + period, cell)).collect();
        self.merge(other);
    }
}

/// The equal periods into which a recording is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    from_ns: i64,
    /// At least 1.
    pub(super) span_ns: i64,
}

impl Cut {
    pub(super) fn of(input: &Input<'_>) -> Result<Self, AnalyzeError> {
        let selection = &input.selection;
        let (first_ns, last_ns) = match input.trace.info().program_ns() {
            (_, 0) => (selection.start_ns, input.last_event_ns()?),
            program_ns => program_ns,
        };
        let from_ns = selection.window.from_ns.unwrap_or(first_ns).max(first_ns);
        let to_ns = selection.window.to_ns.unwrap_or(last_ns).min(last_ns).max(from_ns);
        Ok(Self { from_ns, span_ns: to_ns.saturating_sub(from_ns).max(1) })
    }

    /// Returns the index of the period that has this time. Times outside of the recording are in the nearest one.
    pub(super) fn period(self, ns: i64) -> usize {
        let since_ns = ns.saturating_sub(self.from_ns);
        let at = match since_ns.checked_mul(PERIODS as i64) {
            Some(product) => product / self.span_ns,
            // Of a recording of more than seven years.
            None => (i128::from(since_ns) * PERIODS as i128 / i128::from(self.span_ns)) as i64,
        };
        at.clamp(0, PERIODS as i64 - 1) as usize
    }
}
