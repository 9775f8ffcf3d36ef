//! The change of a metric from one side to the other, with its interval.
//!
//! With few recordings per side, periods are drawn within each recording. With at least [`ENOUGH`](super::ENOUGH), whole recordings are
//! drawn, so that the interval holds what recordings of one program differ by. Quantiles are exact to a 64th: times are counted in buckets.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    draws::{DRAWS, Draws, Resampling, interval_of_recordings},
    options::Metric,
    periods::{Cell, Periods, Spans},
};
use crate::buckets::bucket_end;

/// The least number of waits or holds for which a quantile has an interval.
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
    /// The interval of 95 %, by draws; `None` if too many draws had no value.
    pub interval: Option<(f64, f64)>,
}

/// Returns the metric over all of these recordings; 0 if nothing was measured.
pub(super) fn rate(metric: Metric, periods: &Periods, spans: &Spans) -> f64 {
    Series::of(metric, periods, spans, Resampling::Recordings).value(|_| 1).unwrap_or(0.0)
}

/// A metric of one key, prepared for many draws of units.
enum Series {
    NotMeasured,
    /// The sum of each unit in which there is something, and the seconds of a unit of each recording.
    Rate {
        by_unit: BTreeMap<usize, f64>,
        seconds: Vec<f64>,
        units_per_recording: usize,
    },
    /// The number of times in each bucket and unit.
    Quantile {
        rank: u64,
        by_bucket: BTreeMap<(u32, usize), u64>,
    },
}

impl Series {
    fn of(metric: Metric, periods: &Periods, spans: &Spans, units: Resampling) -> Self {
        let (is_of_waits, rank) = match metric {
            Metric::WaitP50 => (true, 500),
            Metric::WaitP99 => (true, 990),
            Metric::P50 => (false, 500),
            Metric::P99 => (false, 990),
            _ => return Self::rate(metric, periods, spans, units),
        };
        let mut by_bucket = BTreeMap::new();
        for (period, cell) in &periods.cells {
            let unit = units.of_period(*period);
            for (bucket, count) in if is_of_waits { &cell.waits } else { &cell.holds } {
                *by_bucket.entry((*bucket, unit)).or_default() += count;
            }
        }
        Self::Quantile { rank, by_bucket }
    }

    fn rate(metric: Metric, periods: &Periods, spans: &Spans, units: Resampling) -> Self {
        if !periods.measured && metric.is_of_holds() {
            return Self::NotMeasured;
        }
        let of = |cell: &Cell| match metric {
            Metric::WaitTotal => cell.sums.wait_total_ns,
            Metric::Total => cell.sums.total_ns,
            Metric::Count => cell.sums.count,
            Metric::CntLock => cell.sums.cnt_lock,
            _ => cell.sums.wait_caused_ns,
        };
        let mut by_unit: BTreeMap<usize, f64> = BTreeMap::new();
        for (period, cell) in &periods.cells {
            *by_unit.entry(units.of_period(*period)).or_default() += of(cell) as f64;
        }
        let units_per_recording = units.per_recording();
        let spans_ns = if metric.is_of_holds() { &spans.with_holds_ns } else { &spans.all_ns };
        let seconds = spans_ns.iter().map(|ns| *ns as f64 / 1e9 / units_per_recording as f64).collect();
        Self::Rate { by_unit, seconds, units_per_recording }
    }

    /// Returns the metric, with each unit counted `times`.
    fn value(&self, times: impl Fn(usize) -> u32) -> Option<f64> {
        match self {
            Self::NotMeasured => None,
            Self::Rate { by_unit, seconds, units_per_recording } => {
                let sum: f64 = by_unit.iter().map(|(unit, value)| f64::from(times(*unit)) * value).sum();
                let drawn = |recording: usize| {
                    let first = recording * units_per_recording;
                    f64::from((first..first + units_per_recording).map(&times).sum::<u32>())
                };
                let seconds: f64 = seconds.iter().enumerate().map(|(at, seconds)| drawn(at) * seconds).sum();
                (seconds > 0.0).then_some(sum / seconds)
            }
            Self::Quantile { rank, by_bucket } => {
                let drawn = || {
                    by_bucket.iter().map(|((bucket, unit), count)| (*bucket, u64::from(times(*unit)) * count))
                };
                let all: u64 = drawn().map(|(_, count)| count).sum();
                let mut before = all.saturating_mul(*rank).div_ceil(1000).checked_sub(1)?;
                for (bucket, count) in drawn() {
                    if before < count {
                        return Some(bucket_end(bucket) as f64);
                    }
                    before -= count;
                }
                None
            }
        }
    }

    /// Returns whether it is a quantile of too few times for an interval.
    fn is_of_few(&self) -> bool {
        matches!(self, Self::Quantile { by_bucket, .. } if by_bucket.values().sum::<u64>() < FEW)
    }
}

impl Change {
    /// Computes the change from one side to the other, each with the lengths of its recordings.
    pub(super) fn of(
        metric: Metric,
        base: (&Periods, &Spans),
        new: (&Periods, &Spans),
        draws: &Draws,
    ) -> Self {
        let series = [base, new].map(|(periods, spans)| Series::of(metric, periods, spans, draws.units));
        let [was, is] = [&series[0], &series[1]].map(|side| side.value(|_| 1));
        let recordings = [base, new].map(|(_, spans)| spans.all_ns.len());
        let ratio = ratio(was, is);
        let interval = match draws.units {
            _ if series.iter().any(Series::is_of_few) => None,
            Resampling::Periods => interval_of_periods(metric, &series, draws),
            Resampling::Recordings | Resampling::Hosts => {
                let drawn = |side: usize| -> Option<Vec<f64>> {
                    let times = draws_of(metric, draws).iter();
                    times.map(|times| series[side].value(|unit| times[side][unit])).collect()
                };
                drawn(0)
                    .zip(drawn(1))
                    .and_then(|(base, new)| interval_of_recordings([&base, &new], recordings, ratio))
            }
        };
        Self { metric, base: was, new: is, change: ratio.map(|ratio| ratio - 1.0), interval }
    }

    /// Returns whether the change is more than chance: the interval leaves out 0.
    pub fn is_certain(&self) -> bool {
        self.interval.is_some_and(|(low, high)| low > 0.0 || high < 0.0)
    }
}

/// Returns the draws for a metric: a quantile costs a pass over all buckets, and settles sooner.
fn draws_of(metric: Metric, draws: &Draws) -> &[[Vec<u32>; 2]] {
    if metric.is_rate() { &draws.times } else { &draws.times[..DRAWS / 4] }
}

/// Returns the interval of the changes between draws of periods.
fn interval_of_periods(metric: Metric, [base, new]: &[Series; 2], draws: &Draws) -> Option<(f64, f64)> {
    let draws = draws_of(metric, draws);
    let change = |[a, b]: &[Vec<u32>; 2]| ratio(base.value(|unit| a[unit]), new.value(|unit| b[unit]));
    let mut drawn: Vec<f64> = draws.iter().filter_map(change).map(|ratio| ratio - 1.0).collect();
    if drawn.len() * 100 < draws.len() * 95 || drawn.is_empty() {
        return None;
    }
    let last = (drawn.len() - 1) as f64;
    let [low, high] = [0.025, 0.975].map(|part| {
        let at = (last * part).round() as usize;
        *drawn.select_nth_unstable_by(at, f64::total_cmp).1
    });
    Some((low, high))
}

fn ratio(was: Option<f64>, is: Option<f64>) -> Option<f64> {
    let was = was.filter(|was| *was > 0.0)?;
    Some(is? / was)
}

#[cfg(test)]
mod tests {
    use super::{
        super::draws::{PERIODS, Random},
        *,
    };
    use crate::{buckets::bucket, report::HoldSums, testing::cases};

    /// Normal numbers, from a seed.
    struct Normal(Random);

    impl Normal {
        fn uniform(&mut self) -> f64 {
            self.0.draw(1);
            ((self.0.0 >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
        }

        fn next(&mut self) -> f64 {
            (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
        }
    }

    /// Recordings whose rates differ by `spread` from one to the next, and their periods by a tenth.
    fn side(normal: &mut Normal, recordings: usize, level: f64, spread: f64) -> Periods {
        let mut all = Periods::default();
        for index in 0..recordings {
            let level = level * (normal.next() * spread).exp();
            let mut recording = Periods::default();
            for period in 0..PERIODS {
                let wait_ns = (level * (normal.next() * 0.1).exp()) as i64;
                let waits = [(bucket(wait_ns), 10)].into_iter().collect();
                let sums = HoldSums { wait_total_ns: wait_ns, count: 1, ..HoldSums::default() };
                recording.cells.insert(period, Cell { sums, waits, ..Cell::default() });
            }
            all.add_recording(index, recording);
        }
        all
    }

    /// Returns the share of pairs of sides whose change is more than chance.
    fn certain(recordings: usize, factor: f64, metric: Metric, pairs: u32) -> f64 {
        let draws = Draws::new(Resampling::of(recordings, recordings), [recordings; 2]);
        let spans_ns = vec![1_000_000_000; recordings];
        let spans = Spans { with_holds_ns: spans_ns.clone(), all_ns: spans_ns };
        let mut normal = Normal(Random(0x1234_5678_9abc_def1));
        // Let the generator forget its seed.
        for _ in 0..20 {
            normal.uniform();
        }
        let found = (0..pairs).filter(|_| {
            let base = side(&mut normal, recordings, 1e6, 0.2);
            let new = side(&mut normal, recordings, 1e6 * factor, 0.2);
            Change::of(metric, (&base, &spans), (&new, &spans), &draws).is_certain()
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
        // Periods of one recording do not show what recordings differ by.
        let alone = certain(1, 1.0, Metric::WaitTotal, cases(200));
        assert!(alone > 0.5, "{alone}");
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
