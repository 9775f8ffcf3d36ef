//! `klock analyze periods`: the acquisitions of each key in each period, with their waits.
//!
//! An acquisition and its whole wait count in the period of the acquisition. Acquisitions are those of the
//! report, so the rows of a key add up to the report's `count` and `wait_total`. They answer the questions of milli-klockstat's notebook: the worst periods, the
//! number of threads that used a lock, the average wait over time. [`timeline`](crate::tables::timeline), in contrast, splits a
//! wait over the periods that it spans.
//!
//! Memory grows with the rows, and the threads in them.

use std::io::{self, Write};

use polars::prelude::{PolarsResult, col, lit, when};
use serde::Serialize;
use trace_format::Trace;

use crate::{
    TextStyle,
    error::AnalyzeError,
    input::{
        Input, ReadOutcome,
        filter::Filter,
        readers,
        trust::{About, Trust, TrustCounter},
    },
    output::{Column, units},
    tables::{
        Table,
        frame::{self, Lines, failed, sums_of},
        gather::{self, Finish, Gather},
        key::By,
        rank::{OrderBy, Ranked, ascending, order_by, rank},
        row_ids::{NamedRow, RowIds},
        table::rows_and_trust,
    },
};

mod acquisitions;
mod row;
#[cfg(test)]
mod tests;

pub use row::{Row, columns};

use acquisitions::{Acquisitions, TaskSums};

/// Options of the table.
#[derive(Clone, Debug)]
pub struct Options {
    /// The key of a row, in each period.
    pub by: By,
    /// The length of a period in ns, at least 1. Periods start at multiples of it on the trace's clock.
    pub period_ns: i64,
    /// The column that rows are sorted by, or `time`; empty for the longest average wait first.
    pub sort: String,
    /// The number of rows; `None` is all.
    pub limit: Option<usize>,
    /// The part of the traces to read.
    pub filter: Filter,
    /// Whether to rank a trace that lost too many events for the order of rows to mean anything.
    pub allow_loss: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            by: By::Lock,
            // The period of milli-klockstat.
            period_ns: 50_000_000,
            sort: String::new(),
            limit: None,
            filter: Filter::default(),
            allow_loss: false,
        }
    }
}

/// The table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Periods {
    /// The key of a row.
    pub by: By,
    /// The number of traces.
    #[serde(skip)]
    pub traces: usize,
    /// The length of a period, in ns.
    pub period_ns: i64,
    /// The rows, sorted and limited.
    pub rows: Vec<Row>,
    /// The number of rows before the limit.
    pub rows_total: usize,
    /// Acquisitions whose wait is unknown: counted in `count`, their wait in no column.
    pub unknown: u64,
    /// The sum of the column that rows are sorted by, over all rows.
    #[serde(skip)]
    pub sorted_sum: Option<i64>,
    /// Events and intervals that the numbers do not hold.
    pub trust: Trust,
}

/// Computes the table of one trace or several. Each trace has rows of its own.
///
/// # Errors
///
/// A trace cannot be read, holds no events or lost too much, or a filter finds nothing in any of them.
pub fn periods(traces: &[Trace], options: &Options) -> Result<Periods, AnalyzeError> {
    of_inputs(&Input::open_all(traces, options.by.frames(None), &options.filter)?, options, readers())
}

/// Computes the table with this number of readers, which changes nothing in it.
pub(crate) fn of_inputs(
    inputs: &[Input<'_>],
    options: &Options,
    readers: usize,
) -> Result<Periods, AnalyzeError> {
    gather::table(inputs, readers, gather(inputs, options)?)
}

/// Gathers the acquisitions of all traces.
pub(crate) struct Gathered<'a> {
    inputs: &'a [Input<'a>],
    options: &'a Options,
    order: Vec<OrderBy>,
    ids: RowIds,
    lines: Lines<TaskSums, 2>,
    unknown: u64,
    trusts: Vec<Trust>,
}

/// Gathers the rows of the table.
///
/// # Errors
///
/// The table has no such column to sort by.
pub(crate) fn gather<'a>(
    inputs: &'a [Input<'a>],
    options: &'a Options,
) -> Result<Gathered<'a>, AnalyzeError> {
    let sort = match options.sort.as_str() {
        "" => "wait_avg",
        "time" | "period" => "from",
        word => word,
    };
    let mut order = order_by(&columns(options.by, false), sort, &[])?;
    // Then by name and key: the ids of rows depend on the number of readers.
    order.push(ascending("start_ns"));
    let (ids, lines) = (RowIds::apart(inputs.len()), Lines::new(["start_ns", "row"]));
    Ok(Gathered { inputs, options, order, ids, lines, unknown: 0, trusts: Vec::new() })
}

impl<'a> Gather for Gathered<'a> {
    type Sink = Acquisitions<'a>;

    fn sink(&self, at: usize) -> Acquisitions<'a> {
        Acquisitions::new(self.options.by, self.options.period_ns.max(1), &self.inputs[at])
    }

    fn add(
        &mut self,
        at: usize,
        sinks: Vec<Acquisitions<'a>>,
        outcome: &ReadOutcome,
    ) -> Result<(), AnalyzeError> {
        let mut counter = TrustCounter::default();
        for Acquisitions { found, sums, trust, .. } in sinks {
            for ((key, start_ns, _), number) in found {
                let (_, sums) = &sums[number as usize];
                self.unknown += sums.unknown.unsigned_abs();
                self.lines.push([start_ns, self.ids.id(at, key, self.inputs)], sums);
            }
            counter.merge(trust);
        }
        self.trusts.push(self.inputs[at].trust(counter, outcome, self.options.allow_loss)?);
        Ok(())
    }
}

impl Finish for Gathered<'_> {
    type Table = Periods;

    fn finish(self) -> Result<Periods, AnalyzeError> {
        let Self { inputs, options, order, ids, lines, unknown, trusts } = self;
        let name = |[row]: [i64; 1]| ids.name(row, inputs);
        let (rows, rows_total, sorted_sum) = rows(lines, &order, options.limit, name).map_err(failed)?;
        let (by, traces, period_ns) = (options.by, inputs.len(), options.period_ns.max(1));
        let trust = Trust::merged(trusts);
        Ok(Periods { by, traces, period_ns, rows, rows_total, unknown, sorted_sum, trust })
    }
}

/// Merges the lines of all tasks. Returns the rows that are shown, the number of all, and the sum of the column that they are sorted by.
fn rows(
    lines: Lines<TaskSums, 2>,
    order: &[OrderBy],
    limit: Option<usize>,
    name: impl Fn([i64; 1]) -> NamedRow,
) -> PolarsResult<(Vec<Row>, usize, Option<i64>)> {
    let average = when(col("count").eq(lit(0))).then(lit(0)).otherwise(col("wait_total_ns") / col("count"));
    let average = average.alias("wait_avg_ns");
    let rows = lines.merge()?.with_columns([average]).collect()?;
    let total = rows.height();
    let Ranked { frame, names, sum } = rank(rows, ["row"], order, limit, name)?;
    let sums = sums_of(&frame)?.into_iter().zip(frame::lines(&frame, ["start_ns", "wait_avg_ns"])?);
    let row = |(NamedRow { key, name, trace }, (sums, [start_ns, wait_avg_ns])): (_, (_, [i64; 2]))| {
        let TaskSums { threads, count, wait_total_ns, wait_max_ns, from_ns, abandoned, try_failed, .. } =
            sums;
        Row {
            abandoned,
            try_failed,
            from_ns,
            start_ns,
            threads,
            count,
            wait_total_ns,
            wait_avg_ns,
            wait_max_ns,
            name,
            trace,
            key,
        }
    };
    Ok((names.into_iter().zip(sums).map(row).collect(), total, sum))
}

impl Table for Periods {
    rows_and_trust!(Row);

    fn columns(&self) -> Vec<Column<Row>> {
        columns(self.by, self.traces > 1)
    }

    fn dispensable(&self) -> &'static [&'static str] {
        &["threads", "wait_max", "count"]
    }

    fn sorted_sum(&self) -> Option<i64> {
        self.sorted_sum
    }

    fn about(&self) -> About {
        About::Report
    }

    fn write_totals(&self, _style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        if self.unknown == 0 {
            return Ok(());
        }
        let unknown = units::exact(self.unknown);
        writeln!(out, "\n{unknown} acquisitions are counted, and their waits are not known")
    }
}
