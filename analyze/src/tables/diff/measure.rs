//! The change of a metric: the sums of a key on both sides enter, the change from one side to the other leaves, with its interval.
//!
//! With few recordings per side, periods are drawn within each recording. With at least [`ENOUGH`](super::ENOUGH), whole recordings are
//! drawn, so that the interval holds what recordings of one program differ by. Quantiles are exact to a 64th: times are counted in buckets.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    draws::{DRAWS, Draws, Units, interval_of_recordings},
    metric::Metric,
    periods::{Cell, Periods, Spans},
};
use crate::tables::buckets::bucket_end;

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
pub(super) fn rate(metric: Metric, of: (&Periods, &Spans)) -> f64 {
    Series::of(metric, of, Units::Recordings).once().unwrap_or(0.0)
}

/// A metric of one key, prepared for many draws of units.
enum Series {
    NotMeasured,
    /// The sum of each unit in which there is something, and the seconds of a unit of each recording.
    Rate {
        by_unit: Vec<(usize, f64)>,
        seconds: Vec<f64>,
        units_per_recording: usize,
    },
    /// The number of times in each unit, and in each bucket and unit, ordered by bucket.
    Quantile {
        rank: u64,
        by_unit: Vec<(usize, u64)>,
        by_bucket: Vec<(u32, usize, u64)>,
    },
}

impl Series {
    fn of(metric: Metric, (periods, spans): (&Periods, &Spans), units: Units) -> Self {
        if metric.is_quantile() {
            return Self::quantile(metric, periods, units);
        }
        if !periods.measured && metric.is_of_holds() {
            return Self::NotMeasured;
        }
        let of = |cell: &Cell| match metric {
            Metric::WaitTotal => cell.wait_ns,
            Metric::Total => cell.hold_ns,
            Metric::Count => cell.count,
            Metric::CntLock => cell.contended,
            _ => cell.caused_ns,
        };
        let mut by_unit: BTreeMap<usize, f64> = BTreeMap::new();
        for (period, cell) in &periods.cells {
            *by_unit.entry(units.of_period(*period)).or_default() += of(cell) as f64;
        }
        let units_per_recording = units.per_recording();
        let seconds = |span_ns: &i64| *span_ns as f64 / 1e9 / units_per_recording as f64;
        let spans_ns = if metric.is_of_holds() { &spans.with_holds_ns } else { &spans.all_ns };
        let seconds = spans_ns.iter().map(seconds).collect();
        Self::Rate { by_unit: by_unit.into_iter().collect(), seconds, units_per_recording }
    }

    fn quantile(metric: Metric, periods: &Periods, units: Units) -> Self {
        let rank = if matches!(metric, Metric::WaitP50 | Metric::P50) { 500 } else { 990 };
        let (mut by_unit, mut by_bucket) = (BTreeMap::new(), BTreeMap::new());
        for (period, cell) in &periods.cells {
            let (unit, times) =
                (units.of_period(*period), if metric.is_of_waits() { &cell.waits } else { &cell.holds });
            *by_unit.entry(unit).or_default() += times.values().sum::<u64>();
            for (bucket, count) in times {
                *by_bucket.entry((*bucket, unit)).or_default() += count;
            }
        }
        let by_bucket = by_bucket.into_iter().map(|((bucket, unit), count)| (bucket, unit, count)).collect();
        Self::Quantile { rank, by_unit: by_unit.into_iter().collect(), by_bucket }
    }

    /// Returns the metric over all units.
    fn once(&self) -> Option<f64> {
        self.sum(|_| 1)
    }

    /// Returns the metric, with each unit counted `times`.
    fn value(&self, times: &[u32]) -> Option<f64> {
        self.sum(|unit| times[unit])
    }

    fn sum(&self, times: impl Fn(usize) -> u32) -> Option<f64> {
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
            Self::Quantile { rank, by_unit, by_bucket } => {
                let count = |(unit, count): &(usize, u64)| u64::from(times(*unit)) * count;
                let all: u64 = by_unit.iter().map(count).sum();
                let mut before = all.saturating_mul(*rank).div_ceil(1000).checked_sub(1)?;
                for (bucket, unit, count) in by_bucket {
                    let count = u64::from(times(*unit)) * count;
                    if before < count {
                        return Some(bucket_end(*bucket) as f64);
                    }
                    before -= count;
                }
                None
            }
        }
    }

    /// Returns whether it is a quantile of too few times for an interval.
    fn is_of_few(&self) -> bool {
        match self {
            Self::Quantile { by_unit, .. } => by_unit.iter().map(|(_, count)| count).sum::<u64>() < FEW,
            _ => false,
        }
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
        let recordings = (base.1.all_ns.len(), new.1.all_ns.len());
        let (base, new) = (Series::of(metric, base, draws.units), Series::of(metric, new, draws.units));
        let (was, is) = (base.once(), new.once());
        if base.is_of_few() || new.is_of_few() {
            return Self { metric, base: was, new: is, change: ratio(was, is), interval: None };
        }
        // A quantile costs a pass over all buckets, and settles sooner.
        let (units, draws) = (draws.units, &draws.times);
        let draws = if metric.is_quantile() { &draws[..DRAWS / 4] } else { &draws[..] };
        if units == Units::Recordings {
            let drawn = (
                draws.iter().map(|(times, _)| base.value(times)).collect::<Option<Vec<f64>>>(),
                draws.iter().map(|(_, times)| new.value(times)).collect::<Option<Vec<f64>>>(),
            );
            let interval = match drawn {
                (Some(base), Some(new)) => {
                    interval_of_recordings((&base, recordings.0), (&new, recordings.1), is, was)
                }
                _ => None,
            };
            return Self { metric, base: was, new: is, change: ratio(was, is), interval };
        }
        let changes = draws.iter().filter_map(|(a, b)| ratio(base.value(a), new.value(b)));
        let mut drawn: Vec<f64> = changes.collect();
        let enough = drawn.len() * 100 >= draws.len() * 95 && !drawn.is_empty();
        let interval = enough.then(|| {
            let last = (drawn.len() - 1) as f64;
            let mut at = |part: f64| {
                let at = (last * part).round() as usize;
                *drawn.select_nth_unstable_by(at, f64::total_cmp).1
            };
            (at(0.025), at(0.975))
        });
        Self { metric, base: was, new: is, change: ratio(was, is), interval }
    }

    /// Returns whether the change is more than chance: the interval leaves out 0.
    pub fn is_certain(&self) -> bool {
        self.interval.is_some_and(|(low, high)| low > 0.0 || high < 0.0)
    }
}

fn ratio(was: Option<f64>, is: Option<f64>) -> Option<f64> {
    let was = was.filter(|was| *was > 0.0)?;
    Some(is? / was - 1.0)
}

#[cfg(test)]
mod tests {
    use super::{
        super::draws::{PERIODS, Random, Resampling},
        *,
    };
    use crate::{tables::buckets::bucket, testing::cases};

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
                let waits = BTreeMap::from([(bucket(wait_ns), 10)]);
                recording.cells.insert(period, Cell { wait_ns, count: 1, waits, ..Cell::default() });
            }
            all.add_recording(index, recording);
        }
        all
    }

    /// Returns the share of pairs of sides whose change is more than chance.
    fn certain(recordings: usize, factor: f64, metric: Metric, pairs: u32) -> f64 {
        let draws = Draws::new(Resampling::of(recordings, recordings), recordings, recordings);
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
