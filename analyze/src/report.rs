//! The columns of FreeBSD's LOCK_PROFILING(9) and who made others wait, by lock, by acquisition point, or by other keys.
//!
//! A trace and [`Options`] enter, a [`Report`] leaves: plain data in nanoseconds, and the [`Trust`] block that says
//! what the numbers don't hold. Nothing is formatted here; `text`, `rows`, `json` and `lockprof` are skins.
//!
//! The way: events, through the interval engine, to sums by key; polars combines them where keys are many. So memory grows
//! with the number of rows of the report, not with the trace. Every column is credited at the release, to the point of the
//! acquisition, as FreeBSD does it.

use std::{fmt, str::FromStr};

use rustc_hash::FxHashMap;
use serde::Serialize;
use trace_format::Trace;

use crate::{
    choices::choices,
    error::AnalyzeError,
    filter::Filter,
    intervals::{Hold, HoldState},
    loss,
    parts::{self, Keys, Numbers, Part},
    pass,
};

pub mod columns;
pub mod json;
pub mod lockprof;
pub mod rows;
pub mod text;

pub(crate) mod key;
mod pick;
mod reading;
pub(crate) mod spread;
mod table;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod trust;

pub use columns::{Column, Columns, Extra, Freebsd, Unit};
pub use key::Key;
pub use pick::Pick;
pub use trust::{About, Trust};

use reading::{Found, Reading};
use spread::Spreads;
use table::Sums;

/// How many keys are kept before their sums are set aside.
const CHUNK_KEYS: usize = 256 * 1024;

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What a row is.
    pub by: By,
    /// Descending by which column; equal rows by name. By a part of another column ([`Column::is_part`]) is by name.
    pub sort: Column,
    /// Which columns will be looked at: [`Extra`] ones are made only if they are here or what is sorted by.
    pub columns: Vec<Column>,
    /// At most so many rows; `None` is all.
    pub limit: Option<usize>,
    /// What of the trace.
    pub filter: Filter,
    /// With [`By::Stack`]: so many frames, from the acquisition point outwards; `None` is all.
    pub depth: Option<usize>,
    /// Also if the trace lost too much for the order of rows to mean anything.
    pub allow_loss: bool,
    /// Which acquisitions, by the controls of FreeBSD's profiler.
    pub pick: Pick,
}

choices! {
    /// What a row of the report is.
    By, "key" {
        /// One lock.
        #[default]
        Lock = "lock",
        /// One acquisition point and class of locks.
        Site = "site",
        /// All locks of one kind and name.
        Class = "class",
        /// All locks of one kind.
        Kind = "kind",
        /// One thread.
        Task = "task",
        /// One process.
        Process = "process",
        /// One thread and one lock.
        TaskLock = "task,lock",
        /// All threads of one name.
        Comm = "comm",
        /// One stack from the acquisition point outwards, or a part of it, and class of locks.
        Stack = "stack",
        /// All tasks of one control group.
        Cgroup = "cgroup",
        /// One machine.
        Host = "host",
    }
}

impl By {
    /// Whether its rows show whole stacks, which are read only then.
    pub(crate) const fn shows_stacks(self) -> bool {
        matches!(self, Self::Stack | Self::TaskLock)
    }
}

/// The table and what is to be known about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// What a row is.
    #[serde(serialize_with = "word")]
    pub by: By,
    /// Of how many traces it is.
    pub traces: usize,
    /// The rows, sorted and limited.
    pub rows: Vec<Row>,
    /// How many rows there were before the limit.
    pub rows_total: usize,
    /// The columns over all rows, also those beyond the limit.
    pub totals: Columns,
    /// What the numbers don't hold.
    pub trust: Trust,
}

fn word<S: serde::Serializer>(by: &By, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(by.as_str())
}

/// One row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The columns.
    #[serde(flatten)]
    pub columns: Columns,
    /// Of the column that is sorted by: the row's part of all rows, those beyond the limit too, in millionths, truncated. `None` if the
    /// column does not add up, if all rows are 0, or if it was not measured here.
    pub pct_ppm: Option<i64>,
    /// The same of this row and all before it.
    pub cum_pct_ppm: Option<i64>,
    /// Holds and waits of the row that are in no column, because events were lost while they lasted.
    pub cut_by_loss: u64,
    /// What the row is called; safe to print.
    pub name: String,
    /// In a report of several traces, which one it is of, if it is of one alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// What the row is about.
    #[serde(flatten)]
    pub key: Key,
}

impl Row {
    /// The value of a column; `None` where it was not measured, and for the name.
    pub fn get(&self, column: Column) -> Option<i64> {
        match column {
            Column::Pct => self.pct_ppm,
            Column::CumPct => self.cum_pct_ppm,
            column => self.columns.get(column),
        }
    }
}

/// Makes the report.
///
/// # Errors
///
/// The trace can't be read or holds no events, or a filter means no lock or task of it. A filter that leaves no rows
/// is no error: the report is empty.
pub fn report(trace: &Trace, options: &Options) -> Result<Report, AnalyzeError> {
    report_with(&[trace], options, CHUNK_KEYS, pass::readers())
}

/// Makes one report of several traces, at least one: of other machines or times. Rows of the same place, class or name are one row.
///
/// # Errors
///
/// As [`report`]; but a trace without events, or in which a filter means nothing, is passed over if there is another.
pub fn report_of(traces: &[Trace], options: &Options) -> Result<Report, AnalyzeError> {
    report_with(&traces.iter().collect::<Vec<_>>(), options, CHUNK_KEYS, pass::readers())
}

/// The same with so many keys kept at a time and so many readers, on neither of which anything depends.
fn report_with(
    traces: &[&Trace],
    options: &Options,
    chunk_keys: usize,
    readers: usize,
) -> Result<Report, AnalyzeError> {
    let keys = Keys { by: Some(options.by), depth: options.depth };
    let parts = parts::of(traces, keys, &options.filter)?;
    report_of_parts(&parts, options, chunk_keys, readers)
}

pub(crate) fn report_of_parts(
    parts: &[Part<'_>],
    options: &Options,
    chunk_keys: usize,
    readers: usize,
) -> Result<Report, AnalyzeError> {
    let is_extra = options.columns.iter().chain([&options.sort]).any(|column| column.is_extra());
    let reading = Reading::of(options, is_extra, chunk_keys, readers);
    let mut numbers = Numbers::new(parts.len());
    let mut found = Found::new(&reading);
    let mut trust: Option<Trust> = None;
    for (at, part) in parts.iter().enumerate() {
        let of_part =
            reading.sum((at, part), &mut found, |local| numbers.row(local, at, &part.names, options.by))?;
        loss::check(part.trace, &of_part, options.allow_loss)?;
        trust = Some(match trust {
            Some(trust) => trust.and(of_part),
            None => of_part,
        });
    }
    let Found { table, mut spreads, cut } = found;
    let table = table.finish().map_err(|cause| AnalyzeError::Compute(cause.into()))?;
    if let Some(spreads) = &mut spreads {
        spreads.begin_second_pass();
        for (at, part) in parts.iter().enumerate() {
            reading.spread(part, spreads, |local| numbers.known(local, at))?;
        }
    }

    let totals = table.iter().fold(Sums::default(), |sum, (_, sums)| sum.plus(sums));
    let rows_total = table.len();
    let name = |number| numbers.name(number, parts, options.by);
    let rows = shown_rows(table, (spreads.as_ref(), &cut), options, name);
    let trust = trust.unwrap_or_default();
    Ok(Report { by: options.by, traces: parts.len(), rows, rows_total, totals: Columns::of(&totals), trust })
}

/// The rows that are shown. Only those get names: a report by site can have as many rows as there are locks times
/// places.
fn shown_rows(
    table: Vec<(i64, Sums)>,
    (spreads, cut): (Option<&Spreads>, &FxHashMap<i64, u64>),
    options: &Options,
    name: impl Fn(i64) -> (Key, String, Option<String>),
) -> Vec<Row> {
    let limit = options.limit.unwrap_or(usize::MAX);
    let columns = |number: i64, sums: &Sums| Columns {
        extra: spreads.map(|spreads| spreads.extra(number)),
        ..Columns::of(sums)
    };
    let mut table: Vec<(i64, Columns)> =
        table.into_iter().map(|(number, sums)| (number, columns(number, &sums))).collect();
    let all = table.iter().filter_map(|(_, columns)| columns.get(options.sort)).map(i128::from).sum();
    if limit < table.len() && options.sort != Column::Name {
        let value = |row: &(i64, Columns)| std::cmp::Reverse(row.1.get(options.sort));
        table.sort_by_key(value);
        // Rows that equal the last one compete with it by name.
        let last = limit.checked_sub(1).map(|at| value(&table[at]));
        let end = table.partition_point(|row| last.is_some_and(|last| value(row) <= last));
        table.truncate(end);
    }
    let row = |(number, columns)| {
        let (key, name, trace) = name(number);
        let cut_by_loss = cut.get(&number).copied().unwrap_or(0);
        Row { columns, pct_ppm: None, cum_pct_ppm: None, cut_by_loss, name, trace, key }
    };
    let mut rows: Vec<Row> = table.into_iter().map(row).collect();
    sort(&mut rows, options.sort);
    rows.truncate(limit);
    if options.sort.adds_up() {
        add_parts(&mut rows, options.sort, all);
    }
    rows
}

/// Which part of `all` each row has, and all rows up to it.
fn add_parts(rows: &mut [Row], column: Column, all: i128) {
    let part = |of: i128| (of * 1_000_000).checked_div(all).and_then(|ppm| i64::try_from(ppm).ok());
    let mut before = 0;
    for row in rows {
        let Some(value) = row.columns.get(column).map(i128::from) else { continue };
        before += value;
        (row.pct_ppm, row.cum_pct_ppm) = (part(value), part(before));
    }
}

/// Descending, what was not measured last, equal rows by name. Names ascend.
fn sort(rows: &mut [Row], column: Column) {
    rows.sort_by(|a, b| {
        let by_value = b.columns.get(column).cmp(&a.columns.get(column));
        by_value.then_with(|| a.name.cmp(&b.name)).then_with(|| a.key.cmp(&b.key))
    });
}

pub(crate) fn is_credited(hold: &Hold) -> bool {
    matches!(hold.state, HoldState::Complete | HoldState::AcquisitionOnly)
}
