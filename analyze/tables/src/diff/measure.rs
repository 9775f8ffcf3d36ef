//! The change of a metric from one side to the other, with its interval.
//!
//! Sums are per run, or per second where a recording is not a run. Quantiles are exact to a 64th: times are
//! counted in buckets.

use std::{collections::BTreeMap, ops::Range};

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::{
    options::Metric,
    recordings::{Cell, Lengths, Recordings},
    welch::{ENOUGH, interval},
};
use crate::buckets::bucket_end;

/// The least number of waits or holds for which a quantile has an interval, and for which none at all is no
/// chance.
const FEW: u64 = 20;

/// The change of one metric.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The metric.
    pub metric: Metric,
    /// Its value in the first recordings; `None` if nothing was measured.
    pub base: Option<f64>,
    /// Its value in the second ones.
    pub new: Option<f64>,
    /// `new / base - 1`; `None` if there is no base, or it is 0.
    pub change: Option<f64>,
    /// The interval of the change, by what the recordings of each side differ by; `None` if there are too
    /// few.
    pub interval: Option<(f64, f64)>,
    /// Whether no recording of the base has anything, and each of the new ones has.
    pub appeared: bool,
}

/// One side of a metric: its key in the recordings, and their lengths.
pub(super) type OfSide<'a> = (&'a Recordings, &'a Lengths);

/// Returns the metric over all recordings of a side; 0 if nothing was measured.
pub(super) fn value(metric: Metric, side: OfSide<'_>) -> f64 {
    measure(metric, side, 0..side.1.all.len()).unwrap_or(0.0)
}

/// Returns the metric over a range of the recordings of a side.
fn measure(metric: Metric, (key, lengths): OfSide<'_>, range: Range<usize>) -> Option<f64> {
    if !key.measured && metric.is_of_holds() {
        return None;
    }
    let cells = || key.cells.range(range.clone()).map(|(_, cell)| cell);
    let sum = |of: fn(&Cell) -> i64| cells().map(|cell| of(cell) as f64).sum::<f64>();
    let count = sum(|cell| cell.sums.count);
    let of_all = match metric {
        Metric::WaitTotal => sum(|cell| cell.sums.wait_total_ns),
        Metric::Total => sum(|cell| cell.sums.total_ns),
        Metric::Count => count,
        Metric::CntLock => sum(|cell| cell.sums.cnt_lock),
        Metric::WaitCaused => sum(|cell| cell.sums.wait_caused_ns),
        Metric::WaitAvg => return (count > 0.0).then(|| sum(|cell| cell.sums.wait_total_ns) / count),
        Metric::Avg => return (count > 0.0).then(|| sum(|cell| cell.sums.total_ns) / count),
        Metric::WaitP50 => return quantile(500, cells().map(|cell| &cell.waits)),
        Metric::WaitP99 => return quantile(990, cells().map(|cell| &cell.waits)),
        Metric::P50 => return quantile(500, cells().map(|cell| &cell.holds)),
        Metric::P99 => return quantile(990, cells().map(|cell| &cell.holds)),
    };
    let lengths = if metric.is_of_holds() { &lengths.with_holds } else { &lengths.all };
    let length: f64 = lengths[range].iter().sum();
    (length > 0.0).then(|| of_all / length)
}

/// Returns the time that `rank` of 1000 times in all buckets do not exceed.
fn quantile<'c>(rank: u64, cells: impl Iterator<Item = &'c FxHashMap<u32, u64>>) -> Option<f64> {
    let mut by_bucket: BTreeMap<u32, u64> = BTreeMap::new();
    cells.flatten().for_each(|(bucket, count)| *by_bucket.entry(*bucket).or_default() += count);
    let all: u64 = by_bucket.values().sum();
    let mut before = all.saturating_mul(rank).div_ceil(1000).checked_sub(1)?;
    for (bucket, count) in by_bucket {
        if before < count {
            return Some(bucket_end(bucket) as f64);
        }
        before -= count;
    }
    None
}

/// Returns whether a metric of a side is a quantile of too few times for an interval.
fn is_of_few(metric: Metric, key: &Recordings) -> bool {
    let times = |of: fn(&Cell) -> &FxHashMap<u32, u64>| {
        key.cells.values().flat_map(|cell| of(cell).values()).sum::<u64>() < FEW
    };
    match metric {
        Metric::WaitP50 | Metric::WaitP99 => times(|cell| &cell.waits),
        Metric::P50 | Metric::P99 => times(|cell| &cell.holds),
        _ => false,
    }
}

impl Change {
    /// Computes the change from one side to the other; its interval misses it with a probability of `level`.
    pub(super) fn of(metric: Metric, [base, new]: [OfSide<'_>; 2], level: f64) -> Self {
        let [was, is] = [base, new].map(|side| measure(metric, side, 0..side.1.all.len()));
        let by_recording = |(key, lengths): OfSide<'_>| {
            let of_one = |recording: usize| measure(metric, (key, lengths), recording..recording + 1);
            // A recording without holds has no value of them.
            let values: Vec<f64> = (0..lengths.all.len()).filter_map(of_one).collect();
            let is_whole = metric.is_of_holds() || values.len() == lengths.all.len();
            Some(values).filter(|_| is_whole && !is_of_few(metric, key))
        };
        // If every base recording has many waits, chance does not leave all new recordings without one.
        let is_busy = |cell: &Cell| cell.sums.cnt_lock.min(cell.sums.count) >= FEW as i64;
        let base_is_busy = base.0.cells.len() == base.1.all.len() && base.0.cells.values().all(is_busy);
        let recordings = by_recording(base).zip(by_recording(new));
        let of_both = recordings.as_ref();
        let appeared = of_both.is_some_and(|(base, new)| {
            let is_enough = base.len().min(new.len()) >= ENOUGH;
            is_enough && base.iter().all(|value| *value == 0.0) && new.iter().all(|value| *value > 0.0)
        });
        let change = was.filter(|was| *was > 0.0).zip(is).map(|(was, is)| is / was - 1.0);
        let of_values = |(base, new): &(Vec<f64>, Vec<f64>)| {
            let is_positive = |value: &f64| *value > 0.0;
            let has_gone = base.len().min(new.len()) >= ENOUGH
                && base.iter().all(is_positive)
                && !new.iter().any(is_positive)
                && base_is_busy;
            if has_gone { Some((-1.0, -1.0)) } else { interval(base, new, level) }
        };
        let interval = of_both.and_then(of_values).map(|(low, high)| {
            // Equal quantiles may differ by a bucket on either side.
            let accuracy = if metric.is_quantile() { 2.0 / 64.0 } else { 0.0 };
            (low - accuracy, high + accuracy)
        });
        Self { metric, base: was, new: is, change, interval, appeared }
    }

    /// Returns whether the change is more than chance: the interval leaves out 0.
    pub fn is_certain(&self) -> bool {
        self.appeared || self.interval.is_some_and(|(low, high)| low > 0.0 || high < 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{buckets::bucket, report::HoldSums, testing::cases};

    /// Normal numbers, from a seed.
    struct Normal(u64);

    impl Normal {
        fn uniform(&mut self) -> f64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            ((self.0 >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
        }

        fn next(&mut self) -> f64 {
            (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
        }
    }

    /// Recordings whose sums differ by `spread` from one to the next.
    fn side(normal: &mut Normal, recordings: usize, level: f64, spread: f64) -> Recordings {
        let mut all = Recordings::default();
        for index in 0..recordings {
            let wait_ns = (level * (normal.next() * spread).exp()) as i64;
            let sums = HoldSums { wait_total_ns: wait_ns, count: 1, ..HoldSums::default() };
            let waits = [(bucket(wait_ns), 10)].into_iter().collect();
            let cells = [(0, Cell { sums, waits, ..Cell::default() })].into_iter().collect();
            all.add_recording(index, Recordings { cells, ..Recordings::default() });
        }
        all
    }

    /// Returns the share of pairs of sides whose change is more than chance.
    fn certain(recordings: usize, factor: f64, metric: Metric, pairs: u32) -> f64 {
        let lengths = Lengths { all: vec![1.0; recordings], with_holds: vec![1.0; recordings] };
        let mut normal = Normal(0x1234_5678_9abc_def1);
        // Let the generator forget its seed.
        for _ in 0..20 {
            normal.uniform();
        }
        let found = (0..pairs).filter(|_| {
            let base = side(&mut normal, recordings, 1e6, 0.2);
            let new = side(&mut normal, recordings, 1e6 * factor, 0.2);
            Change::of(metric, [(&base, &lengths), (&new, &lengths)], 0.05).is_certain()
        });
        found.count() as f64 / f64::from(pairs)
    }

    #[test]
    fn recordings_of_one_program_differ_by_more_than_chance_about_once_in_twenty() {
        let pairs = cases(600);
        for recordings in [3, 5, 10] {
            let share = certain(recordings, 1.0, Metric::WaitTotal, pairs);
            // Three standard errors of 600 pairs are 2.7 %.
            let most = 0.05 + 3.0 * (0.05 * 0.95 / f64::from(pairs)).sqrt();
            assert!(share <= most, "{recordings} recordings: {share}");
            assert!(pairs < 600 || share > 0.02, "{recordings} recordings: {share}");
        }
        let quantile = certain(4, 1.0, Metric::WaitP50, cases(200));
        assert!(quantile <= 0.10, "{quantile}");
        assert_eq!(certain(2, 4.0, Metric::WaitTotal, cases(200)), 0.0, "two recordings cannot say");
    }

    #[test]
    fn a_lock_that_nobody_waits_for_any_more_has_lost_its_waits_if_there_were_many() {
        let of = |waits: i64| {
            let mut base = Recordings::default();
            for (index, wait_total_ns) in [900, 1_000, 1_500].into_iter().enumerate() {
                let sums = HoldSums { wait_total_ns, count: waits, cnt_lock: waits, ..HoldSums::default() };
                let cells = [(0, Cell { sums, ..Cell::default() })].into_iter().collect();
                base.add_recording(index, Recordings { cells, ..Recordings::default() });
            }
            let lengths = Lengths { all: vec![1.0; 3], with_holds: vec![1.0; 3] };
            let new = Recordings::default();
            Change::of(Metric::WaitTotal, [(&base, &lengths), (&new, &lengths)], 0.001).interval
        };
        assert_eq!(of(20), Some((-1.0, -1.0)));
        assert!(of(19).is_some_and(|(_, high)| high > 0.0));
    }

    #[test]
    fn a_change_that_is_larger_than_what_recordings_differ_by_is_found() {
        let pairs = cases(200);
        for (recordings, factor) in [(3, 4.0), (5, 2.0), (10, 1.5)] {
            let share = certain(recordings, factor, Metric::WaitTotal, pairs);
            assert!(share > 0.9, "{recordings} recordings, {factor} times: {share}");
        }
    }
}
