//! The metrics of a key, period by period of each recording, and the change from one side to the other with its interval.
//!
//! Each recording is cut into periods. With few recordings per side, periods are drawn within each recording. With at least
//! [`ENOUGH`], whole recordings are drawn, so that the interval holds what recordings of one program differ by. Quantiles are exact to a 64th: times
//! are counted in buckets.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    choices::choices,
    engine::{Hold, HoldState},
    tables::buckets::{bucket, bucket_end},
};

/// Into how many equal periods a recording is cut.
pub const PERIODS: usize = 40;

/// The least number of recordings per side of which whole recordings are drawn.
pub const ENOUGH: usize = 3;

/// The number of times that periods are drawn.
pub const DRAWS: usize = 1000;

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

impl Periods {
    pub(super) fn hold(&mut self, period: usize, hold: &Hold) {
        let cell = self.cells.entry(period).or_default();
        let wait_ns = hold.wait_ns.unwrap_or(0);
        cell.wait_ns = cell.wait_ns.saturating_add(wait_ns);
        cell.count += hold.acquisitions;
        cell.contended += i64::from(hold.contended);
        cell.caused_ns = cell.caused_ns.saturating_add(hold.wait_caused_ns);
        if hold.contended && hold.wait_ns.is_some() {
            *cell.waits.entry(bucket(wait_ns)).or_default() += 1;
        }
        if hold.state == HoldState::Complete {
            self.measured = true;
            let hold_ns = hold.end_ns.saturating_sub(hold.start_ns);
            cell.hold_ns = cell.hold_ns.saturating_add(hold_ns);
            *cell.holds.entry(bucket(hold_ns)).or_default() += 1;
        }
    }

    /// Returns the metric over all periods of recordings of these lengths; 0 if nothing was measured.
    pub(super) fn rate(&self, metric: Metric, spans_ns: &[i64]) -> f64 {
        Series::of(metric, (self, spans_ns)).value(&vec![1; spans_ns.len() * PERIODS]).unwrap_or(0.0)
    }

    /// Adds the periods of another recording, which has this index on its side.
    pub(super) fn add_recording(&mut self, index: usize, other: Self) {
        let cells = other.cells.into_iter().map(|(period, cell)| (index * PERIODS + period, cell));
        self.cells.extend(cells);
        self.cut_by_loss += other.cut_by_loss;
        self.measured |= other.measured;
    }
}

/// A metric of one key, prepared for many draws.
enum Series {
    NotMeasured,
    /// The sum of each period in which there is something, and the seconds of a period of each recording.
    Rate {
        by_period: Vec<(usize, f64)>,
        seconds: Vec<f64>,
    },
    /// The number of times in each period, and in each bucket and period, ordered by bucket.
    Quantile {
        rank: u64,
        by_period: Vec<(usize, u64)>,
        by_bucket: Vec<(u32, usize, u64)>,
    },
}

impl Series {
    fn of(metric: Metric, (periods, spans_ns): (&Periods, &[i64])) -> Self {
        if metric.is_quantile() {
            return Self::quantile(metric, periods);
        }
        if !periods.measured && matches!(metric, Metric::Total | Metric::WaitCaused) {
            return Self::NotMeasured;
        }
        let of = |cell: &Cell| match metric {
            Metric::WaitTotal => cell.wait_ns,
            Metric::Total => cell.hold_ns,
            Metric::Count => cell.count,
            Metric::CntLock => cell.contended,
            _ => cell.caused_ns,
        };
        let by_period = periods.cells.iter().map(|(period, cell)| (*period, of(cell) as f64)).collect();
        let seconds = spans_ns.iter().map(|span_ns| *span_ns as f64 / 1e9 / PERIODS as f64).collect();
        Self::Rate { by_period, seconds }
    }

    fn quantile(metric: Metric, periods: &Periods) -> Self {
        let rank = if matches!(metric, Metric::WaitP50 | Metric::P50) { 500 } else { 990 };
        let (mut by_period, mut by_bucket) = (Vec::new(), Vec::new());
        for (period, cell) in &periods.cells {
            let times = if metric.is_of_waits() { &cell.waits } else { &cell.holds };
            by_period.push((*period, times.values().sum()));
            by_bucket.extend(times.iter().map(|(bucket, count)| (*bucket, *period, *count)));
        }
        by_bucket.sort_unstable();
        Self::Quantile { rank, by_period, by_bucket }
    }

    /// Returns the metric, with each period counted `times`.
    fn value(&self, times: &[u32]) -> Option<f64> {
        match self {
            Self::NotMeasured => None,
            Self::Rate { by_period, seconds } => {
                let sum: f64 =
                    by_period.iter().map(|(period, value)| f64::from(times[*period]) * value).sum();
                let drawn = times.chunks(PERIODS).map(|periods| f64::from(periods.iter().sum::<u32>()));
                Some(sum / drawn.zip(seconds).map(|(drawn, seconds)| drawn * seconds).sum::<f64>())
            }
            Self::Quantile { rank, by_period, by_bucket } => {
                let count = |(period, count): &(usize, u64)| u64::from(times[*period]) * count;
                let all: u64 = by_period.iter().map(count).sum();
                let mut before = all.saturating_mul(*rank).div_ceil(1000).checked_sub(1)?;
                for (bucket, period, count) in by_bucket {
                    let count = u64::from(times[*period]) * count;
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
            Self::Quantile { by_period, .. } => by_period.iter().map(|(_, count)| count).sum::<u64>() < FEW,
            _ => false,
        }
    }
}

impl Change {
    /// Computes the change from one side to the other, each with the lengths of its recordings.
    pub(super) fn of(
        metric: Metric,
        base: (&Periods, &[i64]),
        new: (&Periods, &[i64]),
        draws: &Draws,
    ) -> Self {
        let recordings = (base.1.len(), new.1.len());
        let once = |recordings| vec![1; recordings * PERIODS];
        let (base, new) = (Series::of(metric, base), Series::of(metric, new));
        let (was, is) = (base.value(&once(recordings.0)), new.value(&once(recordings.1)));
        if base.is_of_few() || new.is_of_few() {
            return Self { metric, base: was, new: is, change: ratio(was, is), interval: None };
        }
        // A quantile costs a pass over all buckets, and settles sooner.
        let (of_recordings, draws) = (draws.of_recordings, &draws.times);
        let draws = if metric.is_quantile() { &draws[..DRAWS / 4] } else { &draws[..] };
        if of_recordings {
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

/// Returns the interval of the change between two sides, by draws of whole recordings.
///
/// Values of recordings are taken as log-normal. Few draws differ when there are few recordings, so their quantiles would be too close; the spread
/// of the draws is right, but for a factor, and Student's distribution says how far 95 % reach (Welch's test with the errors of the bootstrap).
fn interval_of_recordings(
    base: (&[f64], usize),
    new: (&[f64], usize),
    is: Option<f64>,
    was: Option<f64>,
) -> Option<(f64, f64)> {
    let variance = |(draws, recordings): (&[f64], usize)| {
        if draws.iter().any(|value| *value <= 0.0) {
            return None;
        }
        let count = draws.len() as f64;
        let mean = draws.iter().map(|value| value.ln()).sum::<f64>() / count;
        let squares: f64 = draws.iter().map(|value| (value.ln() - mean).powi(2)).sum();
        let recordings = recordings as f64;
        Some((squares / count * recordings / (recordings - 1.0), recordings - 1.0))
    };
    let ((of_base, base_freedom), (of_new, new_freedom)) = (variance(base)?, variance(new)?);
    let change = (is? / was.filter(|was| *was > 0.0)?).ln();
    let sum = of_base + of_new;
    if sum <= 0.0 {
        return Some((change.exp_m1(), change.exp_m1()));
    }
    let freedom = sum.powi(2) / (of_base.powi(2) / base_freedom + of_new.powi(2) / new_freedom);
    let reach = student(freedom) * sum.sqrt();
    Some(((change - reach).exp_m1(), (change + reach).exp_m1()))
}

/// Returns how many standard errors hold 95 % around the mean in Student's distribution with this many degrees of freedom, at least 1.
fn student(freedom: f64) -> f64 {
    /// For 1 to 10 degrees.
    const FEW: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    let freedom = freedom.max(1.0);
    if freedom >= FEW.len() as f64 {
        // The expansion of Cornish and Fisher.
        return 1.95996 + 2.37227 / freedom + 2.8225 / freedom.powi(2) + 2.5558 / freedom.powi(3);
    }
    let below = freedom.floor();
    let (low, high) = (FEW[below as usize - 1], FEW[below as usize]);
    // Linear in the inverse.
    let part = (1.0 / below - 1.0 / freedom) / (1.0 / below - 1.0 / (below + 1.0));
    low + (high - low) * part
}

fn ratio(was: Option<f64>, is: Option<f64>) -> Option<f64> {
    let was = was.filter(|was| *was > 0.0)?;
    Some(is? / was - 1.0)
}

/// The number of times that each period was drawn, for either side: the same draws for all keys and metrics.
pub(super) struct Draws {
    times: Vec<(Vec<u32>, Vec<u32>)>,
    /// Whether whole recordings were drawn.
    of_recordings: bool,
}

impl Draws {
    /// Draws from this many recordings per side.
    pub(super) fn new(base: usize, new: usize) -> Self {
        let of_recordings = base.min(new) >= ENOUGH;
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut side = |recordings: usize| {
            if of_recordings {
                let drawn = random.draw(recordings);
                drawn.into_iter().flat_map(|times| [times; PERIODS]).collect()
            } else {
                (0..recordings).flat_map(|_| random.draw(PERIODS)).collect()
            }
        };
        Self { times: (0..DRAWS).map(|_| (side(base), side(new))).collect(), of_recordings }
    }
}

/// xorshift64: the same draws each time.
struct Random(u64);

impl Random {
    /// Draws `count` of as many things, with repetition. Returns how often each was drawn.
    fn draw(&mut self, count: usize) -> Vec<u32> {
        let mut times = vec![0; count];
        for _ in 0..count {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            // The upper bits are the better ones.
            times[((self.0 >> 32) % count as u64) as usize] += 1;
        }
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let draws = Draws::new(recordings, recordings);
        let spans = vec![1_000_000_000; recordings];
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

    #[test]
    fn the_quantiles_of_student_are_those_of_tables() {
        for (freedom, expected) in
            [(1.0, 12.706), (4.0, 2.776), (9.0, 2.262), (12.0, 2.179), (30.0, 2.042), (1e9, 1.96)]
        {
            assert!((student(freedom) - expected).abs() < 0.002, "{freedom}: {}", student(freedom));
        }
        assert!((2.571..2.776).contains(&student(4.5)));
    }
}
