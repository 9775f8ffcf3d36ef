//! `klock timeline`: waiting and holding of each key in each period.
//!
//! A wait or hold that is longer than a period is split over the periods that it spans, so the cells of a key
//! add up to its intervals, to the nanosecond; its start counts in one period. An interval that is open at
//! the end counts until then, one that loss cut short counts nowhere. So abandoned waits and holds without an
//! end are here, unlike in a report. Each of several traces counts time from its own start.
//!
//! Memory grows with the cells that are not empty, at most keys times periods.

use std::{
    borrow::Borrow,
    io::{self, Write},
    sync::Arc,
};

use trace_format::Trace;

use crate::{
    Table,
    frame::{Lines, failed},
    gather::{self, Gather},
    rank::{OrderBy, order_by},
    row_ids::RowIds,
};
use intervals::{
    engine::Rules,
    input::trust::{About, Trust, TrustCounter},
    input::{Input, ReadOutcome, readers},
};
use output::{Column, Page, error::AnalyzeError};

mod filling;
mod series;
#[cfg(test)]
mod tests;
mod worst;
#[cfg(test)]
mod worst_tests;

pub use crate::options::TimelineOptions as Options;
pub use series::{Cell, PeriodRow, Series, Timeline, columns};
#[cfg(test)]
pub(crate) use worst::worst_of_inputs;
pub use worst::{GatheredWorst, gather_worst};
pub use worst::{Row, WorstPeriods, worst, worst_columns};

use filling::{CellSums, Filling, KeySums};
use series::{Ranking, count, rank_series};

/// The least number of periods if their length is not given.
const PERIODS: i64 = 20;

/// The greatest number of periods.
pub const MOST_PERIODS: i64 = 100_000;

/// Computes the table of one trace or several.
///
/// # Errors
///
/// A trace cannot be read, holds no events or lost too much, a filter finds nothing in any of them, or there
/// would be too many periods.
pub fn timeline(traces: &[Trace], options: &Options) -> Result<Timeline, AnalyzeError> {
    let frames = options.by.frames(options.depth);
    let inputs = Input::open_all(traces, frames, &options.filter)?;
    of_inputs(&inputs, options, readers())
}

/// Computes the table with this number of readers, which changes nothing in it.
pub fn of_inputs(inputs: &[Input<'_>], options: &Options, readers: usize) -> Result<Timeline, AnalyzeError> {
    let mut gathered = gather(inputs, options)?;
    gather::read(inputs, readers, &mut gathered)?;
    gathered.finish()
}

/// Gathers the cells of all traces.
pub struct Gathered<'a> {
    inputs: &'a [Input<'a>],
    options: &'a Options,
    order: Vec<OrderBy>,
    windows: Vec<(i64, i64)>,
    rules: Vec<Arc<Rules>>,
    span_ns: i64,
    period_ns: i64,
    ids: RowIds,
    sums: Lines<KeySums, 1>,
    cells: Lines<CellSums, 2>,
    trusts: Vec<Trust>,
}

/// Gathers the cells of the table.
///
/// # Errors
///
/// A trace cannot be read, the table has no such column to sort by, or there would be too many periods.
pub fn gather<'a>(inputs: &'a [Input<'a>], options: &'a Options) -> Result<Gathered<'a>, AnalyzeError> {
    let windows = inputs.iter().map(window).collect::<Result<Vec<_>, _>>()?;
    let (span_ns, period_ns) = span_and_period(&windows, options);
    if count(span_ns, period_ns) > MOST_PERIODS {
        return Err(AnalyzeError::TooManyPeriods { periods: count(span_ns, period_ns), most: MOST_PERIODS });
    }
    let order = order_by(&columns(options.by, false), &options.sort, &["wait_ns", "hold_ns", "holds"])?;
    Ok(Gathered {
        inputs,
        options,
        order,
        windows,
        rules: inputs.iter().map(|input| Arc::new(input.rules())).collect(),
        span_ns,
        period_ns,
        ids: RowIds::new(inputs.len()),
        sums: Lines::new(["row"]),
        cells: Lines::new(["row", "period"]),
        trusts: Vec::new(),
    })
}

impl<'a> Gather for Gathered<'a> {
    type Sink = Filling<'a>;

    fn sink(&self, at: usize) -> Filling<'a> {
        let periods = (self.period_ns, count(self.span_ns, self.period_ns) - 1);
        let rules = Arc::clone(&self.rules[at]);
        Filling::new(&self.inputs[at], rules, self.options.by, self.windows[at], periods)
    }

    fn add(&mut self, at: usize, sinks: Vec<Filling<'a>>, outcome: &ReadOutcome) -> Result<(), AnalyzeError> {
        let mut counter = TrustCounter::default();
        for Filling { keys, trust, .. } in sinks {
            for (key, gathered) in keys.into_values() {
                let row = self.ids.id(at, key, self.inputs);
                self.sums.push([row], &gathered.sums);
                let cells = gathered.finish();
                cells.iter().for_each(|(period, cell)| self.cells.push([row, *period], cell));
            }
            counter.merge(trust);
        }
        self.trusts.push(self.inputs[at].trust(counter, outcome, self.options.allow_loss)?);
        Ok(())
    }
}

impl Gathered<'_> {
    pub fn finish(self) -> Result<Timeline, AnalyzeError> {
        let Self { inputs, options, order, ids, sums, cells, span_ns, .. } = self;
        let begin_ns = self.windows[0].0.saturating_sub(inputs[0].selection.start_ns);
        let name = |[row]: [i64; 1]| ids.name(row, inputs);
        let ranked = rank_series(sums, cells, &order, options.limit, name).map_err(failed)?;
        Ok(Timeline {
            by: options.by,
            traces: inputs.len(),
            period_ns: self.period_ns,
            from_ns: begin_ns,
            to_ns: begin_ns.saturating_add(span_ns),
            keys: ranked.keys,
            others: ranked.others,
            others_count: ranked.others_count,
            trust: Trust::merged(self.trusts),
        })
    }
}

/// Returns the length of the longest trace and the length of a period.
fn span_and_period(windows: &[(i64, i64)], options: &Options) -> (i64, i64) {
    // The longest trace decides; all start at the same time after the start of their trace.
    let span_ns = windows.iter().map(|(from_ns, to_ns)| to_ns.saturating_sub(*from_ns)).max().unwrap_or(0);
    (span_ns, options.period_ns.unwrap_or_else(|| round_period(span_ns)).max(1))
}

/// Returns the length of the periods of the table.
///
/// # Errors
///
/// A trace cannot be read.
pub fn period_ns(inputs: &[Input<'_>], options: &Options) -> Result<i64, AnalyzeError> {
    let windows = inputs.iter().map(window).collect::<Result<Vec<_>, _>>()?;
    Ok(span_and_period(&windows, options).1)
}

/// Returns the start and the end of the selected part, on the clock of the trace.
pub fn window(input: &Input<'_>) -> Result<(i64, i64), AnalyzeError> {
    let Input { trace, names, selection, .. } = input;
    let last_ns = match trace.info().program_ns().1 {
        0 => input.last_event_ns()?,
        // Events recorded after the clocks were read move the end.
        end_ns => end_ns.max(names.locks().iter().map(|lock| lock.last_ns).max().unwrap_or(end_ns)),
    };
    let from_ns = selection.window.from_ns.unwrap_or(selection.start_ns);
    Ok((from_ns, selection.window.to_ns.unwrap_or(last_ns).min(last_ns).max(from_ns)))
}

/// Returns a period of 1, 2 or 5 times a power of ten.
fn round_period(span_ns: i64) -> i64 {
    let mut period_ns: i64 = 1;
    for step in [2, 5, 10].into_iter().cycle() {
        let decade = 10_i64.pow(period_ns.ilog10());
        let next = decade.saturating_mul(step);
        if count(span_ns, next.max(1)) < PERIODS || next == i64::MAX {
            break;
        }
        period_ns = next;
    }
    period_ns
}

impl Table for Timeline {
    type Row = PeriodRow;

    fn columns(&self) -> Vec<Column<PeriodRow>> {
        columns(self.by, self.traces > 1)
    }

    /// Returns the cells in which something happened, by period, and by waiting within a period.
    fn rows(&self) -> impl Iterator<Item = impl Borrow<PeriodRow>> {
        (0..self.periods()).flat_map(|period| {
            let (from_ns, to_ns) = self.period(period);
            let cells = self.series().filter_map(|series| Some((*series.cells.get(&period)?, series)));
            let mut cells: Vec<(Cell, &Series)> = cells.collect();
            cells.sort_by_key(|(cell, _)| std::cmp::Reverse((cell.wait_ns, cell.hold_ns)));
            cells.into_iter().map(move |(cell, series)| PeriodRow::of(series, (from_ns, to_ns), cell))
        })
    }

    /// A key is kept by its sums over all periods. Keys beyond the limit are one; those that are not kept are
    /// left out.
    fn retain(&mut self, keep: &dyn Fn(&PeriodRow) -> bool, limit: Option<usize>) {
        let times = (self.from_ns, self.to_ns);
        self.keys.retain(|series| keep(&PeriodRow::of(series, times, series.total)));
        let Ranking { keys, others, others_count } = Ranking::of(std::mem::take(&mut self.keys), limit);
        (self.keys, self.others, self.others_count) = (keys, others, others_count);
    }

    fn hidden_rows(&self) -> usize {
        0
    }

    fn trust(&self) -> &Trust {
        &self.trust
    }

    fn about(&self) -> About {
        About::Timeline
    }

    fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    fn nothing(&self) -> Option<String> {
        let nothing = "no lock was held or waited for in what was selected";
        self.keys.is_empty().then(|| nothing.to_owned())
    }

    fn write_rows(
        &self,
        _columns: &[Column<PeriodRow>],
        page: &Page,
        out: &mut (dyn Write + Send),
    ) -> io::Result<()> {
        series::write_bars(self, page, out)
    }
}
