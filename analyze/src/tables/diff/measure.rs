//! The metrics of a key, period by period of each recording, and the change from one side to the other with its interval.
//!
//! Each recording is cut into periods. With few recordings per side, periods are drawn within each recording. With at least
//! [`ENOUGH`](super::ENOUGH), whole recordings are drawn, so that the interval holds what recordings of one program differ by; a host of a fleet
//! counts as one recording. Quantiles are exact to a 64th: times are counted in buckets.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::draws::{DRAWS, Draws, PERIODS, Units, interval_of_recordings};
use crate::{
    choices::choices,
    engine::{Hold, HoldState},
    tables::buckets::{bucket, bucket_end},
};

/// The least number of waits or holds for which a quantile has an interval.
const FEW: u64 = 20;

choices! {
    /// The metric that is compared.
    Metric, "metric" {
        /// Waiting, in ns per second.
        #[default]
        WaitTotal = "wait_total",
        /// Holding, in ns per second.
        Total = "total",
        /// Acquisitions per second.
        Count = "count",
        /// Contended acquisitions per second.
        CntLock = "cnt_lock",
        /// Time that others waited for its holds, in ns per second.
        WaitCaused = "wait_caused",
        /// Median of the waits, in ns.
        WaitP50 = "wait_p50",
        /// 99 % of the waits are no longer, in ns.
        WaitP99 = "wait_p99",
        /// Median of the holds, in ns.
        P50 = "p50",
        /// 99 % of the holds are no longer, in ns.
        P99 = "p99",
    }
}

impl Metric {
    /// Returns whether it is per second.
    pub const fn is_rate(self) -> bool {
        !self.is_quantile()
    }

    /// Returns whether its values are times, not numbers of things.
    pub const fn is_time(self) -> bool {
        !matches!(self, Self::Count | Self::CntLock)
    }

    const fn is_of_waits(self) -> bool {
        matches!(self, Self::WaitP50 | Self::WaitP99)
    }

    /// Returns whether it is a sum of what is known only where holds were recorded.
    const fn is_of_holds(self) -> bool {
        matches!(self, Self::Total | Self::WaitCaused)
    }

    /// Returns whether it is a quantile of the lengths of holds.
    pub(super) const fn is_of_hold_times(self) -> bool {
        self.is_quantile() && !self.is_of_waits()
    }

    const fn is_quantile(self) -> bool {
        matches!(self, Self::WaitP50 | Self::WaitP99 | Self::P50 | Self::P99)
    }
}

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

impl Spans {
    /// Returns the lengths by which sums of a metric are divided.
    fn of(&self, metric: Metric) -> &[i64] {
        if metric.is_of_holds() { &self.with_holds_ns } else { &self.all_ns }
    }
}

/// A key in the recordings of one side. Period `p` of recording `r` has the index `r * PERIODS + p`.
#[derive(Clone, Debug, Default)]
pub(super) struct Periods {
    cells: BTreeMap<usize, Cell>,
    pub(super) cut_by_loss: u64,
    /// Whether the end of a hold was seen.
    measured: bool,
}

#[derive(Clone, Debug, Default)]
struct Cell {
    wait_ns: i64,
    hold_ns: i64,
    count: i64,
    contended: i64,
    caused_ns: i64,
    waits: BTreeMap<u32, u64>,
    holds: BTreeMap<u32, u64>,
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

    /// Returns the metric over all of these recordings; 0 if nothing was measured.
    pub(super) fn rate(&self, metric: Metric, spans: &Spans) -> f64 {
        Series::of(metric, (self, spans), Units::Recordings).once().unwrap_or(0.0)
    }

    /// Adds the periods of another recording, which has this index on its side.
    pub(super) fn add_recording(&mut self, index: usize, other: Self) {
        let cells = other.cells.into_iter().map(|(period, cell)| (index * PERIODS + period, cell));
        self.cells.extend(cells);
        self.cut_by_loss += other.cut_by_loss;
        self.measured |= other.measured;
    }
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
        let seconds = spans.of(metric).iter().map(seconds).collect();
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
        super::draws::{Random, Resampling},
        *,
    };
    use crate::testing::cases;

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
