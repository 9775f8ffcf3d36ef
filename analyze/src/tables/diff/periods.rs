//! The sums of a key, period by period of each recording: holds or the sums of hosts enter, cells leave.
//!
//! Each recording is cut into periods. A host of a fleet counts as one recording. Times are counted in buckets.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::draws::PERIODS;
use crate::{
    engine::{Hold, HoldState},
    tables::buckets::bucket,
};

/// The sums of a key on one host.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HostSums {
    pub(super) count: i64,
    pub(super) contended: i64,
    /// `None` where it was not measured.
    pub(super) wait_ns: Option<i64>,
    pub(super) hold_ns: Option<i64>,
    pub(super) caused_ns: Option<i64>,
}

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
    pub(super) wait_ns: i64,
    pub(super) hold_ns: i64,
    pub(super) count: i64,
    pub(super) contended: i64,
    pub(super) caused_ns: i64,
    pub(super) waits: BTreeMap<u32, u64>,
    pub(super) holds: BTreeMap<u32, u64>,
}

/// Adds up the holds of a key. Holds end in the order of time, so one period is open at a time.
#[derive(Debug, Default)]
pub(super) struct Filling {
    period: usize,
    /// The sums of the open period, whose times are counted in the next two.
    cell: Cell,
    waits: FxHashMap<u32, u64>,
    holds: FxHashMap<u32, u64>,
    pub(super) periods: Periods,
}

impl Filling {
    /// Adds a hold; to the quantiles of holds only `with_times`.
    #[inline]
    pub(super) fn hold(&mut self, period: usize, hold: &Hold, with_times: bool) {
        if period != self.period {
            self.end_period();
            self.period = period;
        }
        let cell = &mut self.cell;
        let wait_ns = hold.wait_ns.unwrap_or(0);
        cell.wait_ns = cell.wait_ns.saturating_add(wait_ns);
        cell.count += hold.acquisitions;
        cell.contended += i64::from(hold.contended);
        cell.caused_ns = cell.caused_ns.saturating_add(hold.wait_caused_ns);
        if hold.contended && hold.wait_ns.is_some() {
            *self.waits.entry(bucket(wait_ns)).or_default() += 1;
        }
        if hold.state == HoldState::Complete {
            self.periods.measured = true;
            let hold_ns = hold.end_ns.saturating_sub(hold.start_ns);
            cell.hold_ns = cell.hold_ns.saturating_add(hold_ns);
            if with_times {
                *self.holds.entry(bucket(hold_ns)).or_default() += 1;
            }
        }
    }

    fn end_period(&mut self) {
        let mut cell = std::mem::take(&mut self.cell);
        if cell.count > 0 {
            cell.waits.extend(self.waits.drain());
            cell.holds.extend(self.holds.drain());
            self.periods.cells.entry(self.period).or_default().merge(cell);
        }
    }

    /// Returns the sums of all holds.
    pub(super) fn finish(mut self) -> Periods {
        self.end_period();
        self.periods
    }
}

impl Cell {
    fn merge(&mut self, other: Self) {
        self.wait_ns = self.wait_ns.saturating_add(other.wait_ns);
        self.hold_ns = self.hold_ns.saturating_add(other.hold_ns);
        self.count += other.count;
        self.contended += other.contended;
        self.caused_ns = self.caused_ns.saturating_add(other.caused_ns);
        for (all, times) in [(&mut self.waits, other.waits), (&mut self.holds, other.holds)] {
            times.into_iter().for_each(|(bucket, count)| *all.entry(bucket).or_default() += count);
        }
    }
}

impl Periods {
    /// Adds the holds of other locks in the same recordings.
    pub(super) fn merge(&mut self, other: Self) {
        for (period, cell) in other.cells {
            self.cells.entry(period).or_default().merge(cell);
        }
        self.cut_by_loss += other.cut_by_loss;
        self.measured |= other.measured;
    }

    /// Adds the sums of a host, which counts as the recording with this index.
    pub(super) fn host(&mut self, index: usize, sums: &HostSums) {
        let cell = self.cells.entry(index * PERIODS).or_default();
        cell.wait_ns = cell.wait_ns.saturating_add(sums.wait_ns.unwrap_or(0));
        cell.hold_ns = cell.hold_ns.saturating_add(sums.hold_ns.unwrap_or(0));
        cell.caused_ns = cell.caused_ns.saturating_add(sums.caused_ns.unwrap_or(0));
        cell.count = cell.count.saturating_add(sums.count);
        cell.contended = cell.contended.saturating_add(sums.contended);
        self.measured |= sums.hold_ns.is_some();
    }

    /// Adds the periods of another recording, which has this index on its side.
    pub(super) fn add_recording(&mut self, index: usize, other: Self) {
        let cells = other.cells.into_iter().map(|(period, cell)| (index * PERIODS + period, cell));
        self.cells.extend(cells);
        self.cut_by_loss += other.cut_by_loss;
        self.measured |= other.measured;
    }
}
