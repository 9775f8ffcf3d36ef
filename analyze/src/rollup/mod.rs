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

use trace_format::Trace;

use crate::{
    engine::Rules,
    error::AnalyzeError,
    input::{
        Input, readers,
        trust::{Trust, TrustCounter},
    },
    tables::timeline,
};

mod blame;
mod buckets;
mod by_period;
mod clock;
mod counts;
mod facts;
mod files;
mod gather;
mod keys;
mod options;
mod plain;
#[cfg(test)]
mod splits;
mod sums;
#[cfg(test)]
mod tests;
mod traces;

pub use blame::BlameRow;
pub use buckets::BucketRow;
pub use facts::FactRow;
pub use files::File;
pub use keys::FactKey;
pub use options::{Label, Options};
pub use traces::{LabelRow, TraceRow};

use clock::Clock;
use gather::{Gather, Gathered};
use keys::Aligns;

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
    let (window, rules): (_, Rules) = (timeline::window(input)?, input.rules());
    let periods = window.1.saturating_sub(window.0) / options.period_ns.min(options.long_period_ns).max(1);
    if periods > timeline::MOST_PERIODS {
        return Err(AnalyzeError::TooManyPeriods { periods, most: timeline::MOST_PERIODS });
    }
    let aligns = Aligns::of(&input.names);
    let sink = |_| Gather::new(input, &rules, &aligns, window, clock, options);
    // The row of the trace has its losses, so a trace that lost much is not refused here: queries leave it out.
    let how = (readers, true);
    let mut gathered = Gathered::default();
    let trust = Input::read_all(std::slice::from_ref(input), how, sink, |_, sink| -> TrustCounter {
        gathered.add(sink)
    })?;
    let (names, keys) = (&input.names, options.keys);
    let states = facts::states(input, clock, options.period_ns, &aligns)?;
    Ok(Rollup {
        trace: TraceRow::of(input.trace, window, clock, &trust, options),
        labels: options.labels.iter().cloned().map(LabelRow).collect(),
        facts: facts::rows((gathered.facts, states), clock.periods(options.period_ns), &aligns, names, keys),
        buckets: buckets::rows(gathered.buckets, clock.periods(options.long_period_ns), &aligns, names, keys),
        blame: blame::rows(gathered.blame, clock.periods(options.long_period_ns), names, keys),
        trust,
    })
}
