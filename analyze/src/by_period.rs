//! Acquisitions by period: who acquired what, how often, and how long that took, in each period of some milliseconds.
//!
//! A trace and [`Options`] enter, [`Periods`] leave: plain data in nanoseconds, and the [`Trust`] block. An acquisition with its whole wait is in
//! the period in which it was done, as in `klock export --format mklockstat`, so the rows add up to all acquisitions and to
//! `wait_total`. They answer what milli-klockstat's notebook asks: the worst periods, how many threads used a lock in each, how its
//! average wait went over time. [`periods`](crate::periods), in contrast, splits what is longer than a period.
//!
//! Memory grows with the rows that are not empty, and the threads in them.

use std::{fmt, io::Write, str::FromStr};

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;
use trace_format::{EventKind, TaskId, Trace};

use crate::{
    choices::choices,
    error::AnalyzeError,
    filter::Filter,
    intervals::Counts,
    layout::{self, Look, Name},
    loss,
    names::Names,
    pass::{Detail, Pass},
    report::{
        By, Key, Trust, json, key,
        rows::{key_cells, key_field},
        text,
        trust::{About, Watch},
    },
    rows::{self, Cell, Field, Format, Value},
    scope::Chosen,
    units,
};

#[cfg(test)]
mod tests;

choices! {
    /// What rows are sorted by.
    Sort, "order" {
        /// Longest average wait first.
        #[default]
        WaitAvg = "wait_avg",
        /// Longest waits together first.
        WaitTotal = "wait_total",
        /// Longest wait first.
        WaitMax = "wait_max",
        /// Most acquisitions first.
        Count = "count",
        /// Most threads first.
        Threads = "threads",
        /// In the order of time.
        Time = "time",
    }
}

/// The period of milli-klockstat, in ns.
pub const PERIOD_NS: i64 = 50_000_000;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// What a row is, in each period.
    pub by: By,
    /// How long a period is, in ns; at least 1. Periods begin at multiples of it on the trace's clock.
    pub period_ns: i64,
    /// The order.
    pub sort: Sort,
    /// At most so many rows; `None` is all.
    pub limit: Option<usize>,
    /// What of the trace.
    pub filter: Filter,
    /// Also if the trace lost too much for the order of rows to mean anything.
    pub allow_loss: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            by: By::Lock,
            period_ns: PERIOD_NS,
            sort: Sort::default(),
            limit: None,
            filter: Filter::default(),
            allow_loss: false,
        }
    }
}

/// The table and what is to be known about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Periods {
    /// What a row is.
    #[serde(serialize_with = "word")]
    pub by: By,
    /// How long a period is, in ns.
    pub period_ns: i64,
    /// The rows, sorted and limited.
    pub rows: Vec<Row>,
    /// How many there were before the limit.
    pub rows_total: usize,
    /// Acquisitions whose wait is not known: they are in `count`, and their time nowhere.
    pub unknown: u64,
    /// What the numbers don't hold.
    pub trust: Trust,
}

fn word<S: serde::Serializer>(by: &By, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(by.as_str())
}

/// One key in one period.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The period's begin, in ns since the begin of the trace; the first may begin before it.
    pub period_ns: i64,
    /// The same in ns of the trace's clock, CLOCK_MONOTONIC.
    pub start_ns: i64,
    /// Threads that acquired.
    pub threads: i64,
    /// Acquisitions.
    pub count: i64,
    /// Their waits together, in ns.
    pub wait_total_ns: i64,
    /// By all acquisitions, not only those that waited, in ns.
    pub wait_avg_ns: i64,
    /// The longest, in ns.
    pub wait_max_ns: i64,
    /// What the row is called; safe to print.
    pub name: String,
    /// What it is about.
    #[serde(flatten)]
    pub key: Key,
}

#[derive(Debug, Default)]
struct Sums {
    tasks: FxHashSet<TaskId>,
    count: i64,
    wait_total_ns: i64,
    wait_max_ns: i64,
}

/// Makes the table.
///
/// # Errors
///
/// The trace can't be read, holds no events or lost too much, or a filter means nothing in it.
pub fn by_period(trace: &Trace, options: &Options) -> Result<Periods, AnalyzeError> {
    let mut names = Names::read(trace)?;
    if options.by.shows_stacks() {
        names.read_chains(trace, None)?;
    }
    let chosen = Chosen::of(trace, &names, &options.filter)?;
    let length_ns = options.period_ns.max(1);
    let mut found: FxHashMap<(i64, i64), Sums> = FxHashMap::default();
    let mut unknown = 0;
    let walk = Pass { trace, names: &names, chosen: &chosen, detail: Detail::All }.events(|event| {
        let (EventKind::Acquire, Some(lock), Some(task)) = (event.kind, event.lock, event.task) else {
            return;
        };
        let number = key::number((lock, task, event.stack).into(), options.by, &names);
        let start_ns = event.ts_ns.saturating_sub(event.ts_ns.rem_euclid(length_ns));
        let sums = found.entry((start_ns, number)).or_default();
        let wait_ns = event.wait_ns.unwrap_or(0).max(0);
        unknown += u64::from(event.wait_ns.is_none());
        sums.tasks.insert(task);
        sums.count += 1;
        sums.wait_total_ns = sums.wait_total_ns.saturating_add(wait_ns);
        sums.wait_max_ns = sums.wait_max_ns.max(wait_ns);
    })?;
    let trust = Watch::default().block(trace, (&walk, &Counts::default()), &chosen, &names);
    loss::check(trace, &trust, options.allow_loss)?;

    let rows_total = found.len();
    let value = |sums: &Sums| match options.sort {
        Sort::WaitAvg => sums.wait_total_ns / sums.count.max(1),
        Sort::WaitTotal => sums.wait_total_ns,
        Sort::WaitMax => sums.wait_max_ns,
        Sort::Count => sums.count,
        Sort::Threads => sums.tasks.len() as i64,
        Sort::Time => 0,
    };
    let mut found: Vec<((i64, i64), Sums)> = found.into_iter().collect();
    found.sort_by_key(|(key, sums)| (std::cmp::Reverse(value(sums)), *key));
    found.truncate(options.limit.unwrap_or(usize::MAX));
    let row = |((start_ns, number), sums): ((i64, i64), Sums)| {
        let key = Key::of_number(number, options.by, &names);
        Row {
            period_ns: start_ns.saturating_sub(chosen.start_ns),
            start_ns,
            threads: i64::try_from(sums.tasks.len()).unwrap_or(i64::MAX),
            count: sums.count,
            wait_total_ns: sums.wait_total_ns,
            wait_avg_ns: sums.wait_total_ns / sums.count.max(1),
            wait_max_ns: sums.wait_max_ns,
            name: key.label(&names),
            key,
        }
    };
    let rows = found.into_iter().map(row).collect();
    Ok(Periods { by: options.by, period_ns: length_ns, rows, rows_total, unknown, trust })
}

/// Writes the table.
///
/// # Errors
///
/// [`AnalyzeError::Write`] with the cause that `out` gave.
pub fn write(
    periods: &Periods,
    format: Format,
    look: impl Into<Look>,
    out: &mut (dyn Write + Send),
) -> Result<(), AnalyzeError> {
    match format {
        Format::Text => write_text(periods, look.into(), out).map_err(AnalyzeError::Write),
        Format::Json => json::write_value(periods, out),
        format => write_rows(periods, format, out),
    }
}

/// The names of the numbers, and what stands above them for people.
const NUMBERS: [(&str, &str, Value); 7] = [
    ("period_ns", "period", Value::Moment),
    ("start_ns", "", Value::Moment),
    ("threads", "threads", Value::Count),
    ("count", "count", Value::Count),
    ("wait_total_ns", "wait_total", Value::Duration),
    ("wait_avg_ns", "wait_avg", Value::Duration),
    ("wait_max_ns", "wait_max", Value::Duration),
];

impl Row {
    const fn numbers(&self) -> [i64; 7] {
        let Self { period_ns, start_ns, threads, count, wait_total_ns, wait_avg_ns, wait_max_ns, .. } = self;
        [*period_ns, *start_ns, *threads, *count, *wait_total_ns, *wait_avg_ns, *wait_max_ns]
    }
}

fn write_text(periods: &Periods, look: Look, out: &mut (dyn Write + Send)) -> std::io::Result<()> {
    periods.trust.warn(out)?;
    let shown = || NUMBERS.iter().enumerate().filter(|(_, (_, head, _))| !head.is_empty());
    let heads: Vec<&str> = shown().map(|(_, (_, head, _))| *head).collect();
    let row = |row: &Row| -> Vec<String> {
        let numbers = row.numbers();
        let cell = |(at, (_, _, value)): (usize, &(&str, &str, Value))| match value {
            // Whole microseconds tell periods apart.
            Value::Moment => {
                format!("{} s", &units::moment(numbers[at] / 1000 * 1000).trim_end_matches("000"))
            }
            Value::Duration => units::duration(numbers[at]),
            _ => units::count(numbers[at]),
        };
        shown().map(cell).collect()
    };
    let cells: Vec<Vec<String>> = periods.rows.iter().map(row).collect();
    let names: Vec<Name<'_>> = periods.rows.iter().map(|row| row.name.as_str().into()).collect();
    layout::table(&heads, &cells, text::heading(periods.by), &names, look, out)?;
    layout::hidden(periods.rows_total - periods.rows.len(), out)?;
    if periods.unknown > 0 {
        writeln!(
            out,
            "\n{} acquisitions are counted, and their waits are not known",
            units::exact(periods.unknown as i64)
        )?;
    }
    writeln!(out)?;
    periods.trust.write_about(About::Events, look, out)
}

fn write_rows(periods: &Periods, format: Format, out: &mut (dyn Write + Send)) -> Result<(), AnalyzeError> {
    let number = |(name, head, value): &(&'static str, &'static str, Value)| match *head {
        "" => Field::number(*name),
        head => Field::number(*name).shown(head, *value, (0, 0)),
    };
    let mut fields: Vec<Field> = NUMBERS.iter().map(number).collect();
    fields.push(Field::text("name").shown(text::heading(periods.by), Value::Text, (0, 0)));
    fields.extend(Key::column_names(periods.by).iter().map(|name| key_field(name)));
    let mut out = rows::writer(format, &fields, None, out)?;
    for row in &periods.rows {
        let mut cells: Vec<Cell<'_>> = row.numbers().into_iter().map(Cell::from).collect();
        cells.push(row.name.as_str().into());
        cells.extend(key_cells(Some(&row.key), periods.by));
        out.push(&cells)?;
    }
    out.finish()
}
