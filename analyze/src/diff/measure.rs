//! What is compared: metrics of a key in a trace, period by period, and the change from one trace to another with its interval.
//!
//! Quantiles are known to a 64th of their size: times are kept in the buckets in which a report looks for them first.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::Serialize;

use super::{DRAWS, PERIODS, word};
use crate::{
    choices::choices,
    error::AnalyzeError,
    intervals::{Hold, HoldState},
    report::spread::{bucket, bucket_end},
};

/// Of fewer waits or holds, a quantile has no interval.
const FEW: u64 = 20;

choices! {
    /// What is compared.
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
        /// How long others waited for its holds, in ns per second.
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
    /// Whether it is per second.
    pub const fn is_rate(self) -> bool {
        !self.is_quantile()
    }

    /// Whether its values are times, not numbers of things.
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

/// What became of one metric.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Which.
    #[serde(serialize_with = "word")]
    pub metric: Metric,
    /// Its value in the first trace; `None` if there is nothing that it could be of.
    pub base: Option<f64>,
    /// Its value in the second.
    pub new: Option<f64>,
    /// `new / base - 1`; `None` if there is no base, or it is 0.
    pub change: Option<f64>,
    /// Between which values 95 % of the drawn changes lie; `None` if too many draws had no base.
    pub interval: Option<(f64, f64)>,
}

/// A key in a trace.
#[derive(Clone, Debug, Default)]
pub(super) struct Periods {
    cells: BTreeMap<usize, Cell>,
    pub(super) cut_by_loss: u64,
    /// Whether the end of any hold was seen.
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

    pub(super) fn add(&mut self, other: &Self) {
        self.cut_by_loss += other.cut_by_loss;
        self.measured |= other.measured;
        for (period, more) in &other.cells {
            let cell = self.cells.entry(*period).or_default();
            cell.wait_ns = cell.wait_ns.saturating_add(more.wait_ns);
            cell.hold_ns = cell.hold_ns.saturating_add(more.hold_ns);
            cell.count += more.count;
            cell.contended += more.contended;
            cell.caused_ns = cell.caused_ns.saturating_add(more.caused_ns);
            for (times, more) in [(&mut cell.waits, &more.waits), (&mut cell.holds, &more.holds)] {
                for (bucket, count) in more {
                    *times.entry(*bucket).or_default() += count;
                }
            }
        }
    }

    /// The metric over all periods; 0 if there is nothing that it could be of.
    pub(super) fn rate(&self, metric: Metric, span_ns: i64) -> f64 {
        Series::of(metric, (self, span_ns)).value(&[1; PERIODS]).unwrap_or(0.0)
    }
}

/// A metric of one key, ready to be asked for draw after draw.
enum Series {
    NotMeasured,
    /// The sum of each period in which there is something, and the seconds of the recording.
    Rate {
        by_period: Vec<(usize, f64)>,
        seconds: f64,
    },
    /// How many times each period has, and how many in each bucket, by bucket.
    Quantile {
        rank: u64,
        by_period: Vec<(usize, u64)>,
        by_bucket: Vec<(u32, usize, u64)>,
    },
}

impl Series {
    fn of(metric: Metric, (periods, span_ns): (&Periods, i64)) -> Self {
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
        Self::Rate { by_period, seconds: span_ns as f64 / 1e9 }
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

    /// The metric if each period had been there so many times.
    fn value(&self, times: &[u32; PERIODS]) -> Option<f64> {
        match self {
            Self::NotMeasured => None,
            Self::Rate { by_period, seconds } => {
                let sum: f64 =
                    by_period.iter().map(|(period, value)| f64::from(times[*period]) * value).sum();
                Some(sum / seconds)
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

    /// Whether it is a quantile of so few that it has no interval.
    fn is_of_few(&self) -> bool {
        match self {
            Self::Quantile { by_period, .. } => by_period.iter().map(|(_, count)| count).sum::<u64>() < FEW,
            _ => false,
        }
    }
}

impl Change {
    /// From one trace to the other, each with the length of its recording.
    pub(super) fn of(metric: Metric, base: (&Periods, i64), new: (&Periods, i64), draws: &Draws) -> Self {
        let (base, new) = (Series::of(metric, base), Series::of(metric, new));
        let once = [1; PERIODS];
        let (was, is) = (base.value(&once), new.value(&once));
        if base.is_of_few() || new.is_of_few() {
            return Self { metric, base: was, new: is, change: ratio(was, is), interval: None };
        }
        // A quantile costs a pass over all buckets, and settles sooner.
        let draws = if metric.is_quantile() { &draws.0[..DRAWS / 4] } else { &draws.0[..] };
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

    /// Whether it is more than chance: whether the interval leaves out 0.
    pub fn is_certain(&self) -> bool {
        self.interval.is_some_and(|(low, high)| low > 0.0 || high < 0.0)
    }
}

fn ratio(was: Option<f64>, is: Option<f64>) -> Option<f64> {
    let was = was.filter(|was| *was > 0.0)?;
    Some(is? / was - 1.0)
}

/// How often each period was drawn, of the one trace and of the other: the same draws for all keys and metrics.
pub(super) struct Draws(Vec<([u32; PERIODS], [u32; PERIODS])>);

impl Draws {
    pub(super) fn new() -> Self {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        Self((0..DRAWS).map(|_| (random.draw(), random.draw())).collect())
    }
}

/// xorshift64: the same draws each time.
struct Random(u64);

impl Random {
    fn draw(&mut self) -> [u32; PERIODS] {
        let mut times = [0; PERIODS];
        for _ in 0..PERIODS {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            // The upper bits are the better ones.
            times[((self.0 >> 32) % PERIODS as u64) as usize] += 1;
        }
        times
    }
}
