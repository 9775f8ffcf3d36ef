//! `klock analyze periods`: the acquisitions of each key in each period, with their waits.
//!
//! An acquisition and its whole wait count in the period of the acquisition. Acquisitions are those of the
//! report, so the rows of a key add up to the report's `count` and `wait_total`. They answer the questions of milli-klockstat's notebook: the worst periods, the
//! number of threads that used a lock, the average wait over time. [`timeline`](crate::tables::timeline), in contrast, splits a
//! wait over the periods that it spans.
//!
//! Memory grows with the rows, and the threads in them.

use polars::prelude::{PolarsResult, col, lit, when};
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::io::{self, Write};
use trace_format::{LockId, TaskId, Trace};

use crate::{
    TextStyle,
    engine::{Hold, Outcome, Sink, TryFailure, Wait},
    error::AnalyzeError,
    input::{
        Detail, Input, ReadOutcome,
        filter::Filter,
        names::Names,
        readers,
        selection::Selection,
        trust::{About, Trust, TrustCounter},
    },
    output::{Column, Kind, units},
    tables::{
        Table,
        frame::{self, Lines, failed, sums, sums_of},
        gather::{self, Finish, Gather},
        key::{By, Key, RowKey, Subject},
        key_columns,
        rank::{OrderBy, Ranked, ascending, order_by, rank},
        row_ids::{NamedRow, RowIds},
        spans::{self, LastPeriod},
        table::rows_and_trust,
        trace_column,
    },
};

#[cfg(test)]
mod tests;

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

/// One key in one period.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The start of the period, in ns since the start of the trace; 0 for the first, which may start before it.
    pub from_ns: i64,
    /// The start of the period on the trace's clock, CLOCK_MONOTONIC, in ns.
    pub start_ns: i64,
    /// Threads that acquired.
    pub threads: i64,
    /// Acquisitions.
    pub count: i64,
    /// The sum of their waits, in ns.
    pub wait_total_ns: i64,
    /// The sum divided by all acquisitions, not only those that waited, in ns.
    pub wait_avg_ns: i64,
    /// The longest wait, in ns.
    pub wait_max_ns: i64,
    /// Waits that ended without the lock.
    pub abandoned: i64,
    /// Attempts that found the lock taken and did not wait.
    pub try_failed: i64,
    /// The name; safe to print.
    pub name: String,
    /// The trace, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The key.
    #[serde(flatten)]
    pub key: Key,
}

sums! {
    /// The acquisitions of one task, of a key in a period.
    struct TaskSums {
        /// 1 if it acquired.
        threads: Sum,
        count: Sum,
        wait_total_ns: Sum,
        wait_max_ns: Max,
        /// Acquisitions whose wait is unknown.
        unknown: Sum,
        abandoned: Sum,
        try_failed: Sum,
        /// The start of the period since the start of the trace.
        from_ns: Max,
    }
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

    fn detail(&self) -> Detail {
        Detail::Times
    }

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

/// A task in a period of a key.
type Cell = (RowKey, i64, TaskId);

/// Cells that are found without hashing.
const LAST: usize = 256;

/// Adds up the acquisitions of the holds that a report counts, by key, period and task.
pub(crate) struct Acquisitions<'a> {
    by: By,
    periods: LastPeriod,
    names: &'a Names,
    selection: &'a Selection,
    found: FxHashMap<Cell, u32>,
    /// The sums of each cell in `found`.
    sums: Vec<(Cell, TaskSums)>,
    /// The cells that some tasks last counted in, by task id modulo their number: a task mostly goes on where it was.
    last: Box<[u32; LAST]>,
    /// The starts of the periods in which open holds were acquired again.
    again: FxHashMap<(LockId, TaskId, i64), Vec<i64>>,
    trust: TrustCounter,
}

impl<'a> Acquisitions<'a> {
    fn new(by: By, period_ns: i64, input: &'a Input<'_>) -> Self {
        let (names, selection) = (&input.names, &input.selection);
        let (found, again) = (FxHashMap::default(), FxHashMap::default());
        let (sums, last) = (Vec::new(), Box::new([0; LAST]));
        let periods = LastPeriod::new(spans::Periods { origin_ns: 0, length_ns: period_ns });
        Self { by, periods, names, selection, found, sums, last, again, trust: TrustCounter::default() }
    }

    /// Returns the start of the period that has this time.
    #[inline]
    fn period(&mut self, ns: i64) -> i64 {
        self.periods.start(ns)
    }

    /// Returns the sums of a subject and its task in the period with this start.
    fn sums(&mut self, subject: impl Into<Subject>, task: TaskId, start_ns: i64) -> &mut TaskSums {
        let subject = subject.into();
        let key = || RowKey::of(subject, self.by, self.names);
        let last = &mut self.last[task.0 as usize % LAST];
        // Keys take longest to make and to compare.
        let is_it = |((of_key, ns, of), _): &(Cell, TaskSums)| {
            (*of, *ns) == (task, start_ns) && (self.by == By::Host || *of_key == key())
        };
        if !self.sums.get(*last as usize).is_some_and(is_it) {
            let cell = (key(), start_ns, task);
            let next = self.sums.len() as u32;
            *last = *self.found.entry(cell).or_insert(next);
            if *last == next {
                let from_ns = start_ns.saturating_sub(self.selection.start_ns).max(0);
                self.sums.push((cell, TaskSums { from_ns, ..TaskSums::default() }));
            }
        }
        &mut self.sums[*last as usize].1
    }
}

impl Sink for Acquisitions<'_> {
    fn acquired(&mut self, hold: &Hold) {
        if hold.acquisitions > 1 {
            let start_ns = self.period(hold.end_ns);
            self.again.entry((hold.lock, hold.task, hold.start_ns)).or_default().push(start_ns);
        }
    }

    fn hold(&mut self, hold: &Hold) {
        let again = if hold.acquisitions > 1 {
            self.again.remove(&(hold.lock, hold.task, hold.start_ns))
        } else {
            None
        };
        if !self.selection.selects_hold(hold) {
            return;
        }
        self.trust.hold(hold);
        if !hold.is_credited() {
            return;
        }
        let start_ns = self.period(hold.start_ns);
        let sums = self.sums(hold, hold.task, start_ns);
        let wait_ns = hold.wait_ns.unwrap_or(0);
        sums.threads = 1;
        sums.count += 1;
        sums.unknown += i64::from(hold.wait_ns.is_none());
        sums.wait_total_ns = sums.wait_total_ns.saturating_add(wait_ns);
        sums.wait_max_ns = sums.wait_max_ns.max(wait_ns);
        for start_ns in again.into_iter().flatten() {
            let sums = self.sums(hold, hold.task, start_ns);
            (sums.threads, sums.count) = (1, sums.count + 1);
        }
    }

    fn plain_holds(&mut self, holds: &[Hold]) {
        if !self.selection.selects_all_holds() {
            return holds.iter().for_each(|hold| self.hold(hold));
        }
        for hold in holds {
            let start_ns = self.period(hold.start_ns);
            let sums = self.sums(hold, hold.task, start_ns);
            (sums.threads, sums.count) = (1, sums.count + 1);
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if self.selection.selects_wait(wait) {
            self.trust.wait(wait);
            if matches!(wait.outcome, Outcome::Abandoned(_)) {
                let start_ns = self.period(wait.end_ns);
                self.sums(wait, wait.task, start_ns).abandoned += 1;
            }
        }
    }

    fn try_failed(&mut self, failure: &TryFailure) {
        if self.selection.selects_try_failure(failure) {
            let start_ns = self.period(failure.ts_ns);
            self.sums(failure, failure.task, start_ns).try_failed += 1;
        }
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

/// Declares the columns; rows of several traces have their trace.
pub fn columns(by: By, several: bool) -> Vec<Column<Row>> {
    type Of = Column<Row>;
    let mut columns = vec![
        Of::timestamp(
            "from",
            |row| row.from_ns,
            "Start of the period since the start of the trace, at least 0.",
        )
        .kind(Kind::PeriodStart)
        .ascending(),
        Of::timestamp("start", |row| row.start_ns, "Start of the period on CLOCK_MONOTONIC.")
            .ascending()
            .programs(),
        Of::count("threads", |row| row.threads, "Threads that acquired."),
        Of::count("count", |row| row.count, "Acquisitions.").sum(),
        Of::duration("wait_total", |row| row.wait_total_ns, "All waits.").sum(),
        Of::duration("wait_avg", |row| row.wait_avg_ns, "wait_total divided by count."),
        Of::duration("wait_max", |row| row.wait_max_ns, "The longest wait."),
        Of::count("abandoned", |row| row.abandoned, "Waits that ended without the lock, by their end.")
            .programs(),
        Of::count("try_failed", |row| row.try_failed, "Attempts that found the lock taken and did not wait.")
            .programs(),
        Of::name(by.heading(), |row| row.name.as_str().into()),
    ];
    columns.extend(key_columns(by, "", |row: &Row| Some(&row.key)));
    columns.extend(trace_column(several, |row: &Row| row.trace.as_deref()));
    columns
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
        let unknown = units::exact(i64::try_from(self.unknown).unwrap_or(i64::MAX));
        writeln!(out, "\n{unknown} acquisitions are counted, and their waits are not known")
    }
}
