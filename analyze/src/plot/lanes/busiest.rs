//! The busiest window of a lock: the one with the most waiting, or without waits the most holding, among
//! those with few enough intervals to be drawn one by one.

use super::grid::Grid;
use crate::charges::add;
use intervals::items::{Item, Sink};

/// Slices of the trace between which a window can begin.
const SLICES: usize = 1 << 15;

/// How many times the intervals of a chosen window a whole recording may have: it is worth smaller bars.
const FITS: u64 = 4;

/// The waiting, the holding and the number of intervals of each slice of time.
#[derive(Debug)]
pub(super) struct Activity {
    grid: Grid,
    wait_ns: Vec<i64>,
    held_ns: Vec<i64>,
    /// Holds and waits that begin in the slice.
    begun: Vec<u64>,
}

impl Activity {
    pub(super) fn new(from_ns: i64, to_ns: i64) -> Self {
        let grid = Grid::new(from_ns, to_ns, SLICES);
        let [wait_ns, held_ns] = [(); 2].map(|()| vec![0; grid.columns()]);
        Self { grid, wait_ns, held_ns, begun: vec![0; grid.columns()] }
    }

    /// Returns the window with the most waiting that has at most `most` intervals; `None` if all have at most
    /// [`FITS`] times as many.
    ///
    /// Windows are halved until the one with the most waiting is small enough. Without waits, the most
    /// holding counts, so that a long hold is seen; without holds, the most intervals.
    pub(super) fn busiest(&self, most: u64) -> Option<(i64, i64)> {
        if self.begun.iter().sum::<u64>() <= most.saturating_mul(FITS) {
            return None;
        }
        let begun: Vec<i64> = self.begun.iter().map(|n| i64::try_from(*n).unwrap_or(i64::MAX)).collect();
        let times = [&self.wait_ns, &self.held_ns];
        let weights = times.into_iter().find(|times| times.iter().any(|ns| *ns > 0)).unwrap_or(&begun);
        let run = busiest_run(weights, &self.begun, most)?;
        let (from_ns, to_ns) = (self.grid.begin_of(run.first), self.grid.begin_of(run.first + run.length));
        if run.count <= most {
            return Some((from_ns, to_ns));
        }
        let part = i128::from(to_ns - from_ns) * i128::from(most) / i128::from(run.count);
        Some((from_ns, from_ns.saturating_add(i64::try_from(part).unwrap_or(1).max(1))))
    }
}

impl Sink for Activity {
    fn push(&mut self, item: Item<'_>) {
        let (start_ns, end_ns, times) = match item {
            Item::Hold(hold) => (hold.start_ns, hold.end_ns, &mut self.held_ns),
            Item::Wait(wait) => (wait.start_ns, wait.end_ns, &mut self.wait_ns),
            _ => return,
        };
        self.begun[self.grid.column_of(start_ns)] += 1;
        let Some((from_ns, to_ns)) = self.grid.clip(start_ns, end_ns) else { return };
        self.grid.spread(from_ns, to_ns, |slice, ns| add(&mut times[slice], ns));
    }
}

/// Neighbouring slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The first slice.
    pub(crate) first: usize,
    /// The number of slices.
    pub(crate) length: usize,
    /// The intervals that begin in them.
    pub(crate) count: u64,
}

/// Returns the heaviest run of slices with at most `most` intervals, by halving the run; a single slice may
/// have more. `None` if there are no slices.
pub(crate) fn busiest_run(weights: &[i64], begun: &[u64], most: u64) -> Option<Run> {
    let mut length = weights.len();
    while length > 0 {
        length = (length / 2).max(1);
        let first = heaviest(weights, length);
        let count = begun[first..first + length].iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
        if count <= most || length == 1 {
            return Some(Run { first, length, count });
        }
    }
    None
}

/// Returns the first index of the heaviest run of `length` weights.
fn heaviest(weights: &[i64], length: usize) -> usize {
    let mut sum: i128 = weights[..length].iter().map(|ns| i128::from(*ns)).sum();
    let (mut best, mut at) = (sum, 0);
    for first in 1..=weights.len() - length {
        sum += i128::from(weights[first + length - 1]) - i128::from(weights[first - 1]);
        if sum > best {
            (best, at) = (sum, first);
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_run_is_found_and_the_first_of_equal_ones() {
        assert_eq!(heaviest(&[1, 5, 5, 0, 9, 1], 2), 1);
        assert_eq!(heaviest(&[0, 0, 0], 1), 0);
        assert_eq!(heaviest(&[0, 0, 7], 1), 2);
    }
}
