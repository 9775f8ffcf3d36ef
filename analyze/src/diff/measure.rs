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

    /// How many waits or holds a quantile is of.
    fn times(&self, metric: Metric) -> u64 {
        let of_waits = metric.is_of_waits();
        let of = |cell: &Cell| (if of_waits { &cell.waits } else { &cell.holds }).values().sum::<u64>();
        self.cells.values().map(of).sum()
    }

    /// The metric over all periods; 0 if there is nothing that it could be of.
    pub(super) fn rate(&self, metric: Metric, span_ns: i64) -> f64 {
        self.value(metric, span_ns, &[1; PERIODS]).unwrap_or(0.0)
    }

    /// The metric if each period had been there so many times.
    fn value(&self, metric: Metric, span_ns: i64, times: &[u32; PERIODS]) -> Option<f64> {
        let cells = self.cells.iter().map(|(period, cell)| (u64::from(times[*period]), cell));
        if metric.is_quantile() {
            return quantile(metric, cells);
        }
        if !self.measured && matches!(metric, Metric::Total | Metric::WaitCaused) {
            return None;
        }
        let of = |cell: &Cell| match metric {
            Metric::WaitTotal => cell.wait_ns,
            Metric::Total => cell.hold_ns,
            Metric::Count => cell.count,
            Metric::CntLock => cell.contended,
            _ => cell.caused_ns,
        };
        let sum: f64 = cells.map(|(times, cell)| times as f64 * of(cell) as f64).sum();
        Some(sum / (span_ns as f64 / 1e9))
    }
}

fn quantile<'a>(metric: Metric, cells: impl Iterator<Item = (u64, &'a Cell)>) -> Option<f64> {
    let mut all: BTreeMap<u32, u64> = BTreeMap::new();
    for (times, cell) in cells.filter(|(times, _)| *times > 0) {
        let of = if metric.is_of_waits() { &cell.waits } else { &cell.holds };
        for (bucket, count) in of {
            *all.entry(*bucket).or_default() += count * times;
        }
    }
    let rank = if matches!(metric, Metric::WaitP50 | Metric::P50) { 500 } else { 990 };
    let mut before = (all.values().sum::<u64>().saturating_mul(rank)).div_ceil(1000).checked_sub(1)?;
    for (bucket, count) in &all {
        if before < *count {
            return Some(bucket_end(*bucket) as f64);
        }
        before -= count;
    }
    None
}

impl Change {
    /// From one trace to the other, each with the length of its recording.
    pub(super) fn of(metric: Metric, base: (&Periods, i64), new: (&Periods, i64)) -> Self {
        let value = |(periods, span_ns): (&Periods, i64), times: &[u32; PERIODS]| {
            periods.value(metric, span_ns, times)
        };
        let once = [1; PERIODS];
        let (was, is) = (value(base, &once), value(new, &once));
        let few = |(periods, _): (&Periods, i64)| metric.is_quantile() && periods.times(metric) < FEW;
        if few(base) || few(new) {
            return Self { metric, base: was, new: is, change: ratio(was, is), interval: None };
        }
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut drawn: Vec<f64> = Vec::with_capacity(DRAWS);
        // A quantile costs a pass over all buckets, and settles sooner.
        let draws = if metric.is_quantile() { DRAWS / 4 } else { DRAWS };
        for _ in 0..draws {
            let (a, b) = (random.draw(), random.draw());
            drawn.extend(ratio(value(base, &a), value(new, &b)));
        }
        let enough = drawn.len() * 100 >= draws * 95 && !drawn.is_empty();
        drawn.sort_by(f64::total_cmp);
        let at = |part: f64| drawn[((drawn.len() - 1) as f64 * part).round() as usize];
        let interval = enough.then(|| (at(0.025), at(0.975)));
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
