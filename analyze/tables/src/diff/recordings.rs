//! The sums of a key in each recording of a side. A host of a fleet counts as one recording. Times are
//! counted in buckets.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::{buckets::bucket, frame::Sums as _, report::HoldSums};
use intervals::items::{Hold, HoldState};

/// The divisors of the sums of each recording of one side: its seconds, or 1 for a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Lengths {
    pub(super) all: Vec<f64>,
    /// 0 for a recording that has no holds, and so no part in averages of them.
    pub(super) with_holds: Vec<f64>,
}

/// A key in the recordings of one side.
#[derive(Clone, Debug, Default)]
pub(super) struct Recordings {
    /// By the index of the recording.
    pub(super) cells: BTreeMap<usize, Cell>,
    pub(super) cut_by_loss: u64,
    /// Whether the end of a hold was seen.
    pub(super) measured: bool,
    /// Whether the key is of kernel locks.
    pub(super) is_kernel: bool,
}

/// The sums of a key in one recording.
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

impl Recordings {
    /// Adds a hold of the only recording.
    pub(super) fn hold(&mut self, hold: &Hold) {
        let cell = self.cells.entry(0).or_default();
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
        for (recording, cell) in other.cells {
            self.cells.entry(recording).or_default().merge(cell);
        }
        self.cut_by_loss += other.cut_by_loss;
        self.measured |= other.measured;
        self.is_kernel |= other.is_kernel;
    }

    /// Adds another recording, which has this index on its side.
    pub(super) fn add_recording(&mut self, index: usize, mut other: Self) {
        other.cells = other.cells.into_values().map(|cell| (index, cell)).collect();
        self.merge(other);
    }
}
