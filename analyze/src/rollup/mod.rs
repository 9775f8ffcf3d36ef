//! `klock rollup`: a trace as sums that any engine can add up over machines and days.
//!
//! One [`Trace`] and [`Options`] enter; a [`Rollup`] leaves: five tables, as Parquet files by day. A row has sums, maxima or counts of
//! one key in one period of the wall clock, so that rows of many traces are merged by `GROUP BY`. A lock belongs to one machine,
//! so pairing and blame are done here; no engine has to know events.
//!
//! | table | a row is |
//! |---|---|
//! | `facts` | a key in a period: the sums of its holds and waits |
//! | `buckets` | a key in a long period: its holds or waits of about one length |
//! | `blame` | a holder and a waiter in a long period |
//! | `traces` | the trace |
//! | `labels` | a label of the trace |
//!
//! The sums are those of [`report`](crate::tables::report), [`hist`](crate::tables::hist), [`blame`](crate::tables::blame) and
//! [`timeline`], to the digit. One pass over the trace makes all of them; a second
//! one adds the states of holders where off-CPU times were recorded.

use std::str::FromStr;

use trace_format::{Trace, run_info::Clocks};

use crate::{
    Filter,
    error::AnalyzeError,
    input::{
        Input, readers,
        trust::{Trust, TrustCounter},
    },
    tables::{spans::Periods, timeline},
};

mod files;
mod gather;
mod keys;
mod rows;
#[cfg(test)]
mod splits;
#[cfg(test)]
mod tests;
mod traces;

pub use files::File;
pub use keys::FactKey;
pub use rows::{BlameRow, BucketRow, FactRow};
pub use traces::{LabelRow, TraceRow};

use gather::{Gather, Gathered};
use keys::Aligns;

/// Options of a rollup.
#[derive(Clone, Debug)]
pub struct Options {
    /// The length of a period of `facts`, in ns.
    pub period_ns: i64,
    /// The length of a period of `buckets` and `blame`, in ns.
    pub long_period_ns: i64,
    /// The number of keys in each period of each table; the rest of the period is one row. `None` is all.
    pub keys: Option<usize>,
    /// Labels of the trace.
    pub labels: Vec<Label>,
    /// The part of the trace to read.
    pub filter: Filter,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            period_ns: 60_000_000_000,
            long_period_ns: 3_600_000_000_000,
            keys: Some(1000),
            labels: Vec::new(),
            filter: Filter::default(),
        }
    }
}

/// A label of a trace, by which an engine tells groups of machines apart: `version=2.1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The name.
    pub name: String,
    /// The value, which may be empty.
    pub value: String,
}

impl FromStr for Label {
    type Err = AnalyzeError;

    fn from_str(text: &str) -> Result<Self, AnalyzeError> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => {
                Ok(Self { name: name.to_owned(), value: value.to_owned() })
            }
            _ => Err(AnalyzeError::BadLabel { text: text.to_owned() }),
        }
    }
}

/// The tables of one trace.
#[derive(Clone, Debug)]
pub struct Rollup {
    /// The trace.
    pub trace: TraceRow,
    /// Its labels.
    pub labels: Vec<LabelRow>,
    /// Sums by period and key, in this order.
    pub facts: Vec<FactRow>,
    /// Counts of holds and waits by length.
    pub buckets: Vec<BucketRow>,
    /// Waits by holder and waiter.
    pub blame: Vec<BlameRow>,
    /// Events and intervals that the sums do not hold.
    pub trust: Trust,
}

/// Computes the tables of a trace.
///
/// # Errors
///
/// The trace cannot be read or holds no events, a filter finds nothing in it, or there would be too many periods.
pub fn rollup(trace: &Trace, options: &Options) -> Result<Rollup, AnalyzeError> {
    of_input(&Input::open(trace, 0, &options.filter)?, options, readers())
}

/// Computes the tables with this number of readers, which changes nothing in them.
pub(crate) fn of_input(input: &Input<'_>, options: &Options, readers: usize) -> Result<Rollup, AnalyzeError> {
    let clock = Clock::of(&input.trace.info().clocks_start);
    let window = timeline::window(input)?;
    let count = window.1.saturating_sub(window.0) / options.period_ns.min(options.long_period_ns).max(1);
    if count > timeline::MOST_PERIODS {
        return Err(AnalyzeError::TooManyPeriods { periods: count, most: timeline::MOST_PERIODS });
    }
    let (rules, aligns) = (input.rules(), Aligns::of(&input.names));
    let [periods, long_periods] = [options.period_ns, options.long_period_ns].map(|ns| clock.periods(ns));
    let sink = |_| Gather::new(input, &rules, &aligns, window, [periods, long_periods]);
    // The row of the trace has its losses, so a trace that lost much is not refused here: queries leave it out.
    let how = (readers, true);
    let mut gathered = Gathered::default();
    let trust = Input::read_all(std::slice::from_ref(input), how, sink, |_, sink| -> TrustCounter {
        gathered.add(sink)
    })?;
    let states = gather::states(input, periods, &aligns)?;
    let naming = rows::Naming { names: &input.names, aligns: &aligns, keys: options.keys };
    Ok(Rollup {
        trace: TraceRow::of(input.trace, window, clock, &trust, options),
        labels: options.labels.iter().cloned().map(LabelRow).collect(),
        facts: naming.facts(gathered.facts, states, periods),
        buckets: naming.buckets(gathered.buckets, long_periods),
        blame: naming.blame(gathered.blame, long_periods),
        trust,
    })
}

/// Converts times of a trace to the wall clock, as both clocks were when the recording began.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// The wall clock less the clock of the trace.
    offset_ns: i64,
}

impl Clock {
    /// A trace without a wall clock has its own.
    fn of(start: &Clocks) -> Self {
        let is_known = start.realtime_ns > 0;
        Self { offset_ns: if is_known { start.realtime_ns.saturating_sub(start.monotonic_ns) } else { 0 } }
    }

    /// Returns the time since 1970.
    const fn wall_ns(self, ns: i64) -> i64 {
        ns.saturating_add(self.offset_ns)
    }

    /// Returns periods that begin at multiples of their length on the wall clock.
    fn periods(self, length_ns: i64) -> Periods {
        Periods { origin_ns: self.offset_ns.saturating_neg(), length_ns: length_ns.max(1) }
    }
}
