//! `klock timeline --worst`: the acquisitions of each key in each period with their waits, the worst average
//! first.
//!
//! An acquisition and its whole wait count in the period of the acquisition: a wait from 40 ms to 110 ms
//! counts 70 ms in the period that starts at 100 ms, where the [timeline](super) splits it over three.
//! The report counts the same acquisitions, so the rows of a key add up to the report's `count` and
//! `wait_total`. They answer the questions of milli-klockstat's notebook: the worst periods, the number of
//! threads that used a lock, the average wait over time. Periods start at multiples of their length on the
//! trace's clock. Memory grows with the rows, and the threads in them.

use std::io::{self, Write};

use polars::prelude::{col, lit, when};
use rustc_hash::FxHashMap;
use serde::Serialize;
use trace_format::{LockId, TaskId, Trace};

use crate::options::TimelineOptions as Options;
use crate::{
    Table,
    cells::Cells,
    frame::{Lines, failed, sums},
    gather::{self, Gather},
    key::{By, Key, RowKey, Subject},
    key_columns,
    rank::{self, OrderBy, Rows, ascending, count, duration, measure, order_by},
    row_ids::RowIds,
    spans::{LastPeriod, Periods},
    table::rows_and_trust,
    trace_column,
};
use intervals::{
    input::names::Names,
    input::selection::Selection,
    input::trust::{About, Trust, TrustCounter},
    input::{Input, ReadOutcome, readers},
    items::{Columns, Hold, Item, Needs, Outcome, Sink, Wait},
};
use output::{Column, Kind, error::AnalyzeError, layout::TextStyle, units};

/// The length of a period if the options give none, in ns: milli-klockstat has the same.
const PERIOD_NS: i64 = 50_000_000;

/// The table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorstPeriods {
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
pub type Row = rank::Row<Key>;

/// Computes the table of one trace or several, with periods of 50 ms unless the options give another length.
/// Each trace has rows of its own.
///
/// # Errors
///
/// A trace cannot be read, holds no events or lost too much, or a filter finds nothing in any of them.
pub fn worst(traces: &[Trace], options: &Options) -> Result<WorstPeriods, AnalyzeError> {
    let inputs = Input::open_all(traces, options.by.frames(options.depth), &options.filter)?;
    worst_of_inputs(&inputs, options, readers())
}

/// Computes the table with this number of readers, which changes nothing in it.
pub(crate) fn worst_of_inputs(
    inputs: &[Input<'_>],
    options: &Options,
    readers: usize,
) -> Result<WorstPeriods, AnalyzeError> {
    let mut gathered = gather_worst(inputs, options)?;
    gather::read(inputs, readers, &mut gathered)?;
    gathered.finish()
}

/// Gathers the acquisitions of all traces.
pub struct GatheredWorst<'a> {
    inputs: &'a [Input<'a>],
    options: &'a Options,
    period_ns: i64,
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
pub fn gather_worst<'a>(
    inputs: &'a [Input<'a>],
    options: &'a Options,
) -> Result<GatheredWorst<'a>, AnalyzeError> {
    let sort = match options.sort.as_str() {
        "" => "wait_avg",
        "time" | "period" => "from",
        word => word,
    };
    let mut order = order_by(&worst_columns(options.by, false), sort, &[])?;
    // Then by name and key: the ids of rows depend on the number of readers.
    order.push(ascending("start_ns"));
    let (ids, lines) = (RowIds::apart(inputs.len()), Lines::new(["start_ns", "row"]));
    let period_ns = options.period_ns.unwrap_or(PERIOD_NS).max(1);
    Ok(GatheredWorst { inputs, options, period_ns, order, ids, lines, unknown: 0, trusts: Vec::new() })
}

impl<'a> Gather for GatheredWorst<'a> {
    type Sink = Acquisitions<'a>;

    fn sink(&self, at: usize) -> Acquisitions<'a> {
        Acquisitions::new(self.options.by, self.period_ns, &self.inputs[at])
    }

    fn add(
        &mut self,
        at: usize,
        sinks: Vec<Acquisitions<'a>>,
        outcome: &ReadOutcome,
    ) -> Result<(), AnalyzeError> {
        let mut counter = TrustCounter::default();
        for Acquisitions { rows, sums, trust, .. } in sinks {
            let rows = rows.into_values().into_iter().map(|(key, ())| self.ids.id(at, key, self.inputs));
            let rows: Vec<i64> = rows.collect();
            for ((row, start_ns, _), sums) in sums {
                self.unknown += sums.unknown.unsigned_abs();
                self.lines.push([start_ns, rows[row as usize]], &sums);
            }
            counter.merge(trust);
        }
        self.trusts.push(self.inputs[at].trust(counter, outcome, self.options.allow_loss)?);
        Ok(())
    }
}

impl GatheredWorst<'_> {
    pub fn finish(self) -> Result<WorstPeriods, AnalyzeError> {
        let Self { inputs, options, period_ns, order, ids, lines, unknown, trusts } = self;
        let average = col("wait_total_ns") / col("count");
        let average = when(col("count").eq(lit(0))).then(lit(0)).otherwise(average).alias("wait_avg_ns");
        let lines =
            lines.merge().and_then(|lines| lines.with_columns([average]).collect()).map_err(failed)?;
        let (by, name) = (options.by, |[row]: [i64; 1]| ids.name(row, inputs));
        let declared = worst_columns(by, false);
        let Rows { rows, total: rows_total, sum: sorted_sum } =
            rank::rows(rank::declared(&declared), lines, ["row"], &order, options.limit, name)?;
        let (traces, trust) = (inputs.len(), Trust::merged(trusts));
        Ok(WorstPeriods { by, traces, period_ns, rows, rows_total, unknown, sorted_sum, trust })
    }
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

/// A task in a period of the row with this index.
type Cell = (u32, i64, TaskId);

/// Cells that are found without hashing.
const LAST: usize = 256;

/// Adds up the acquisitions of the holds that a report counts, by key, period and task.
pub struct Acquisitions<'a> {
    by: By,
    periods: LastPeriod,
    names: &'a Names,
    selection: &'a Selection,
    rows: Cells<()>,
    found: FxHashMap<Cell, u32>,
    /// The sums of each cell in `found`.
    sums: Vec<(Cell, TaskSums)>,
    /// The cells that some tasks last counted in, by task id modulo their number: a task mostly goes on where
    /// it was.
    last: Box<[u32; LAST]>,
    /// The starts of the periods in which open holds were acquired again.
    again: FxHashMap<(LockId, TaskId, i64), Vec<i64>>,
    trust: TrustCounter,
}

impl<'a> Acquisitions<'a> {
    fn new(by: By, period_ns: i64, input: &'a Input<'_>) -> Self {
        let (names, selection) = (&input.names, &input.selection);
        let (found, again) = (FxHashMap::default(), FxHashMap::default());
        let (rows, sums, last) = (Cells::new(by.ids(), names), Vec::new(), Box::new([0; LAST]));
        let periods = LastPeriod::new(Periods { origin_ns: 0, length_ns: period_ns });
        Self { by, periods, names, selection, rows, found, sums, last, again, trust: TrustCounter::default() }
    }

    /// Returns the start of the period that has this time.
    #[inline]
    fn period(&mut self, ns: i64) -> i64 {
        self.periods.start(ns)
    }

    /// Returns the sums of a subject and its task in the period with this start.
    fn sums(&mut self, subject: impl Into<Subject>, task: TaskId, start_ns: i64) -> &mut TaskSums {
        let row = self.rows.index(subject, |subject| RowKey::of(subject, self.by, self.names));
        let cell = (row, start_ns, task);
        let last = &mut self.last[task.0 as usize % LAST];
        if self.sums.get(*last as usize).is_none_or(|(of, _)| *of != cell) {
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
    fn needs(&self) -> Needs {
        Needs { acquired: true, ..Needs::columns(Columns::Times) }
    }

    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Acquired(hold) if hold.acquisitions > 1 => {
                let start_ns = self.period(hold.end_ns);
                self.again.entry((hold.lock, hold.task, hold.start_ns)).or_default().push(start_ns);
            }
            Item::Hold(hold) => self.hold(hold),
            Item::Wait(wait) => self.wait(wait),
            Item::TryFailed(failure) if self.selection.selects_try_failure(failure) => {
                let start_ns = self.period(failure.ts_ns);
                self.sums(failure, failure.task, start_ns).try_failed += 1;
            }
            _ => {}
        }
    }
}

impl Acquisitions<'_> {
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

    fn wait(&mut self, wait: &Wait) {
        if self.selection.selects_wait(wait) {
            self.trust.wait(wait);
            if matches!(wait.outcome, Outcome::Abandoned(_)) {
                let start_ns = self.period(wait.end_ns);
                self.sums(wait, wait.task, start_ns).abandoned += 1;
            }
        }
    }
}

/// Declares the columns; rows of several traces have their trace.
pub fn worst_columns(by: By, several: bool) -> Vec<Column<Row>> {
    let from = "Start of the period since the start of the trace, at least 0.";
    let tried = "Attempts that found the lock taken and did not wait.";
    let mut columns = vec![
        measure("from", Kind::PeriodStart, from).ascending(),
        measure("start", Kind::Timestamp, "Start of the period on CLOCK_MONOTONIC.").ascending().programs(),
        count("threads", "Threads that acquired."),
        count("count", "Acquisitions.").sum(),
        duration("wait_total", "All waits.").sum(),
        duration("wait_avg", "wait_total divided by count."),
        duration("wait_max", "The longest wait."),
        count("abandoned", "Waits that ended without the lock, by their end.").programs(),
        count("try_failed", tried).programs(),
        Column::name(by.heading(), |row: &Row| row.name.as_str().into()),
    ];
    columns.extend(key_columns(by, "", |row: &Row| Some(&row.key)));
    columns.extend(trace_column(several, |row: &Row| row.trace.as_deref()));
    columns
}

impl Table for WorstPeriods {
    rows_and_trust!(Row);

    fn columns(&self) -> Vec<Column<Row>> {
        worst_columns(self.by, self.traces > 1)
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
