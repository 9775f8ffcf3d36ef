//! The report: the columns of FreeBSD's LOCK_PROFILING(9) and the waits that each row caused, by lock, by site, or by other keys.
//!
//! Traces and [`Options`] enter, a [`Report`] leaves: plain data in nanoseconds, and the [trust block](intervals::input::trust). Intervals are added to sums
//! by row (`reading`), which polars merges, sorts and limits (`ranking`). Memory grows with the number of rows, not with the
//! trace. Every column is credited at the release, to the site of the acquisition, as FreeBSD does it.

use std::io::{self, Write};

use polars::prelude::{col, lit};
use trace_format::Trace;

use super::{Table, frame::failed, gather, key::By, table::rows_and_trust};
use intervals::{
    input::filter::Filter,
    input::trust::About,
    input::{Input, readers},
};
use output::{
    error::AnalyzeError,
    layout::{Notes, TextStyle},
    units,
};

pub mod columns;
pub mod lockprof;

mod calls;
mod fairness;
mod hold_sums;
mod options;
mod percentiles;
pub mod queueing;
mod reading;
mod rows;
mod states;
#[cfg(test)]
pub mod tests;

pub use columns::{Calls, Column, Columns, Extra, Fairness, Freebsd, Group, HolderStates};
pub use fairness::CONVOY_MIN;
pub use hold_sums::HoldSums;
pub use options::{Options, ReportOptions};
pub use rows::{Report, Row, columns};
pub use states::{StateSums, StatesByRow, by_state};

use columns::UNFINISHED;
pub use reading::Found;
use reading::{Reading, Rows};
use states::HoldStates;

/// Adds the waiting time during each state of the holders to the rows of a report.
pub type RowStates<'a> = HoldStates<Rows<'a>>;

/// Makes one report of several traces, at least one. Rows of the same site, class or name are one row.
///
/// # Errors
///
/// A trace cannot be read, lost too much, or holds no events, or a filter matches no lock or task in any of them. With several traces,
/// those in which a filter matches nothing are passed over. A filter that leaves no rows is not an error: the report is empty.
pub fn report(traces: &[Trace], options: &Options) -> Result<Report, AnalyzeError> {
    let frames = options.by.frames(options.depth);
    let inputs = Input::open_all(traces, frames, &options.filter)?;
    let with_idle = Filter { include_idle: true, ..options.filter.clone() };
    let with_idle = options.asks_for(Group::Calls).then(|| Input::open_all(traces, frames, &with_idle));
    of_opened(&inputs, with_idle.transpose()?.as_deref(), options, readers())
}

/// Makes the report with this number of readers, which changes nothing in it.
#[cfg(test)]
pub fn of_inputs(inputs: &[Input<'_>], options: &Options, readers: usize) -> Result<Report, AnalyzeError> {
    of_opened(inputs, None, options, readers)
}

/// Makes the report of inputs, with the columns of calls if there are the same inputs `with_idle` waits.
fn of_opened(
    inputs: &[Input<'_>],
    with_idle: Option<&[Input<'_>]>,
    options: &Options,
    readers: usize,
) -> Result<Report, AnalyzeError> {
    let reading = Reading::new(options, readers);
    let mut found = Found::new(reading, inputs);
    gather::read(inputs, reading.readers, &mut found)?;
    let trust = found.trust();
    let Found { mut ids, mut sums, percentiles, .. } = found;
    let mut on_request = Vec::new();
    if let Some(inputs) = with_idle.filter(|_| calls::has_columns(options.by)) {
        let with_locks = ids.len();
        on_request.push((calls::read(options.by, inputs, &mut ids)?, Vec::new()));
        // Tasks that got no lock have rows, too.
        (with_locks..ids.len()).for_each(|row| sums.push([row], &HoldSums::default()));
    }
    let keeps_all = !on_request.is_empty();
    if let Some(mut percentiles) = percentiles {
        let places = percentiles.places();
        reading.second_pass(inputs, &ids, &mut percentiles, &places)?;
        // A row without an acquisition has no thread that acquired the lock.
        let filled = vec![col("threads").fill_null(lit(0))];
        on_request.push((Extra::frame(percentiles.extra(&places)).map_err(failed)?, filled));
    }
    if options.asks_for(Group::HolderStates) {
        on_request.push((states::columns(states::read(reading, inputs)?, &ids)?, states::filled()));
    }
    if options.asks_for(Group::Fairness) {
        on_request.push((fairness::read(options.by, readers, inputs, &ids)?, fairness::filled(options.by)));
    }
    let name = |[row]: [i64; 1]| ids.name(row, inputs);
    let (rows, rows_total, totals) =
        rows::ranked(sums, (on_request, keeps_all), options, name).map_err(failed)?;
    let is_unfiltered = options.filter == Filter::default();
    Ok(Report { by: options.by, traces: inputs.len(), rows, rows_total, totals, is_unfiltered, trust })
}

/// Gathers the rows of reports without columns on request, and what waits were spent with.
pub fn gather<'a>(inputs: &'a [Input<'a>], options: &Options) -> Found<'a> {
    Found::new(Reading::new(options, 1).with_spent(), inputs)
}

impl<'a> Found<'a> {
    /// Returns a receiver of the states of the holders in the input with this index, for a reading that follows the causes of waits anyway.
    pub fn states(&self, at: usize) -> RowStates<'a> {
        HoldStates::new(Rows::new(&self.inputs[at], self.reading))
    }

    /// Reads every trace again for the states of the holders, if the options ask for them.
    pub fn read_states(&self, options: &Options) -> Result<Option<Vec<StatesByRow>>, AnalyzeError> {
        let is_asked = options.asks_for(Group::HolderStates);
        is_asked.then(|| states::read(self.reading, self.inputs)).transpose()
    }

    /// Returns the report of what was gathered, which can be ranked more than once. With `spent`, it has those columns on request that
    /// say what waits were spent with, and with `states` those of the holders' states; all other columns on request are null.
    pub fn report(
        &self,
        options: &Options,
        spent: bool,
        states: Option<Vec<StatesByRow>>,
    ) -> Result<Report, AnalyzeError> {
        let mut on_request = Vec::new();
        if let Some(percentiles) = self.percentiles.as_ref().filter(|_| spent) {
            on_request.push((Extra::frame(percentiles.spent()).map_err(failed)?, Vec::new()));
        }
        if let Some(states) = states {
            on_request.push((states::columns(states, &self.ids)?, states::filled()));
        }
        let name = |[row]: [i64; 1]| self.ids.name(row, self.inputs);
        let sums = self.sums.clone();
        let (rows, rows_total, totals) =
            rows::ranked(sums, (on_request, false), options, name).map_err(failed)?;
        let is_unfiltered = options.filter == Filter::default();
        let (by, traces, trust) = (options.by, self.inputs.len(), self.trust());
        Ok(Report { by, traces, rows, rows_total, totals, is_unfiltered, trust })
    }
}

impl Table for Report {
    rows_and_trust!(Row);

    fn columns(&self) -> Vec<output::Column<Row>> {
        columns(self.by, self.traces > 1)
    }

    fn text_columns(&self) -> Vec<String> {
        let has_none = self.by != By::Process && self.rows.iter().any(|row| row.columns.count == 0);
        let is_used = |column: &&Column| self.rows.iter().any(|row| row.get(**column).unwrap_or(0) > 0);
        let unfinished = UNFINISHED.iter().filter(|column| has_none && is_used(column));
        rows::text_columns(self.by).iter().chain(unfinished).map(ToString::to_string).collect()
    }

    fn terminal_columns(&self, sorted_by: &str) -> Vec<String> {
        let columns = self.columns();
        let column = output::column::find(&columns, sorted_by).ok();
        let column = column.and_then(|column| column.word().parse().ok());
        rows::terminal_columns(self.by, column.unwrap_or_default())
    }

    fn dispensable(&self) -> &'static [&'static str] {
        &[
            "woken",
            "wakes",
            "errors",
            "asleep_share",
            "locks",
            "idle_waits",
            "idle_time",
            "cnt_hold",
            "wait_avg",
            "avg",
            "cnt_lock",
            "max",
            "total",
            "count",
            "wait_max",
        ]
    }

    fn about(&self) -> About {
        About::Report
    }

    fn nothing(&self) -> Option<String> {
        let nothing = "no lock was acquired, waited for or tried in what was selected; `klock info` shows what was recorded";
        self.rows.is_empty().then(|| nothing.to_owned())
    }

    /// Says what the times of open waits are, and where to look for a deadlock, or that locks are not the cause.
    fn write_totals(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        if let Some(verdict) = verdict(self).filter(|_| style.notes != Notes::None) {
            writeln!(out)?;
            return style.wrapped(&verdict, out);
        }
        let waits = self.rows.iter().map(|row| row.columns.open_waits).sum::<i64>();
        if waits == 0 {
            return Ok(());
        }
        let were = if waits == 1 { "was" } else { "were" };
        let line = format!(
            "{} {were} open at the end: `klock why` says what for, `klock blame --chains` who is at the end if the holders wait themselves, and \
             `klock report -F open_waits,open_wait` for how long so far",
            units::counted(waits, "wait")
        );
        writeln!(out)?;
        style.wrapped(&line, out)
    }
}

/// The least part of the recording, in per cent, that waits have to take to be worth looking at.
const LEAST_PERCENT: i64 = 1;

/// Returns the sentence if all waits together, of all threads, took less than [`LEAST_PERCENT`] of the time that was recorded: then no
/// thread waited longer. It is certain only if nothing was lost or filtered out, and no wait is open at the end.
fn verdict(report: &Report) -> Option<String> {
    let trust = &report.trust;
    let is_whole =
        report.is_unfiltered && report.traces == 1 && trust.lost == 0 && trust.waits_open_at_end == 0;
    let waited_ns = report.totals.wait_total_ns?.checked_add(trust.abandoned_wait_ns)?;
    let is_little = waited_ns.checked_mul(100)? < trust.span_ns.checked_mul(LEAST_PERCENT)?;
    (is_whole && is_little && !report.rows.is_empty()).then(|| {
        format!(
            "All waits together took {} of {}: no thread was slowed down by more than {LEAST_PERCENT} % by the locks that were recorded. \
             `perf record` shows where a program runs, `klock record --off-cpu` where it sleeps",
            units::duration(waited_ns),
            units::duration(trust.span_ns),
        )
    })
}
