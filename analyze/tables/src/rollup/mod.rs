//! `klock rollup`: a trace as sums that any engine can add up over machines and days.
//!
//! A [`Rollup`] of a [`Trace`] has five tables, which are written as Parquet files by day. A row has sums,
//! maxima or counts of one key in one period of the wall clock, so that rows of many traces are merged by
//! `GROUP BY`. A lock belongs to one machine, so pairing and blame are done here; no engine has to know
//! events.
//!
//! | table | a row is |
//! |---|---|
//! | `facts` | a key in a period: the sums of its holds and waits |
//! | `buckets` | a key in a long period: its holds or waits of about one length |
//! | `blame` | a holder and a waiter in a long period |
//! | `traces` | the trace |
//! | `labels` | a label of the trace |
//!
//! The sums are equal to the sums of [`report`](crate::report), [`hist`](crate::hist),
//! [`blame`](crate::blame) and [`timeline`], to the digit. One pass over the trace makes all of them; a
//! second one adds the states of holders where off-CPU times were recorded.

use trace_format::Trace;

use crate::timeline;
use intervals::{
    input::trust::{Trust, TrustCounter},
    input::{Input, readers},
};
use output::error::AnalyzeError;

mod files;
mod gather;
mod keys;
mod options;
mod rows;
#[cfg(test)]
mod splits;
#[cfg(test)]
mod tests;
mod traces;

pub use files::File;
pub use keys::FactKey;
pub use options::{Label, Options};
pub use rows::{BlameRow, BucketRow, FactRow};
pub use traces::{LabelRow, TraceRow};

use gather::{Gather, Gathered};
use keys::Aligns;
use options::Clock;

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
/// The trace cannot be read or holds no events, a filter finds nothing in it, or there would be too many
/// periods.
pub fn rollup(trace: &Trace, options: &Options) -> Result<Rollup, AnalyzeError> {
    of_input(&Input::open(trace, 0, &options.filter)?, options, readers())
}

/// Computes the tables with this number of readers, which changes nothing in them.
pub fn of_input(input: &Input<'_>, options: &Options, readers: usize) -> Result<Rollup, AnalyzeError> {
    let clock = Clock::of(&input.trace.info().clocks_start);
    let window = timeline::window(input)?;
    let count = window.1.saturating_sub(window.0) / options.period_ns.min(options.long_period_ns).max(1);
    if count > timeline::MOST_PERIODS {
        return Err(AnalyzeError::TooManyPeriods { periods: count, most: timeline::MOST_PERIODS });
    }
    let (rules, aligns) = (input.rules(), Aligns::of(&input.names));
    let [periods, long_periods] = [options.period_ns, options.long_period_ns].map(|ns| clock.periods(ns));
    let sink = |_| Gather::new(input, &rules, &aligns, window, [periods, long_periods]);
    // The row of the trace has its losses, so a trace that lost much is not refused here: queries leave it
    // out.
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
