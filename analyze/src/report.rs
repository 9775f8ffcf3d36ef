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
    intervals::{Hold, HoldState, Outcome, Sink, Wait},
    loss,
    scope::Pass,
};

pub mod columns;
pub mod json;
pub mod lockprof;
pub mod rows;
pub mod text;

pub(crate) mod key;
mod parts;
mod pick;
pub(crate) mod spread;
mod table;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod trust;

pub use columns::{Column, Columns, Extra, Freebsd, Unit};
pub use key::Key;
pub use pick::Pick;
pub use trust::Trust;

use parts::{Numbers, Part};
use pick::Picker;
use spread::Spreads;
use table::{HoldTable, Sums};

/// How many keys are kept before their sums are set aside.
const CHUNK_KEYS: usize = 256 * 1024;

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What a row is.
    pub by: By,
    /// Descending by which column; equal rows by name.
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

/// Makes the report.
///
/// # Errors
///
/// The trace can't be read or holds no events, or a filter means no lock or task of it. A filter that leaves no rows
/// is no error: the report is empty.
pub fn report(trace: &Trace, options: &Options) -> Result<Report, AnalyzeError> {
    report_in_chunks(&[trace], options, CHUNK_KEYS)
}

/// Makes one report of several traces, at least one: of other machines or times. Rows of the same place, class or name are one row.
///
/// # Errors
///
/// As [`report`]; but a trace without events, or in which a filter means nothing, is passed over if there is another.
pub fn report_of(traces: &[Trace], options: &Options) -> Result<Report, AnalyzeError> {
    report_in_chunks(&traces.iter().collect::<Vec<_>>(), options, CHUNK_KEYS)
}

fn report_in_chunks(traces: &[&Trace], options: &Options, chunk_keys: usize) -> Result<Report, AnalyzeError> {
    let parts = parts::of(traces, options)?;
    let is_extra = options.columns.iter().chain([&options.sort]).any(|column| column.is_extra());
    let mut numbers = Numbers::new(parts.len());
    let mut table = HoldTable::new(chunk_keys);
    let mut spreads = is_extra.then(Spreads::default);
    let (mut cut, mut trust): (FxHashMap<i64, u64>, Option<Trust>) = (FxHashMap::default(), None);
    for (at, part) in parts.iter().enumerate() {
        let watch = trust::Watch::default();
        let (table, spreads, cut) = (&mut table, spreads.as_mut(), &mut cut);
        let numbering = Numbering { numbers: &mut numbers, part, at, by: options.by };
        let picker = Picker::new(options.pick);
        let mut sums = Summing { numbering, table, spreads, cut, trust: watch, picker };
        let (events, counts) = part.pass().run(&mut sums)?;
        let of_part = sums.trust.block(part.trace, (&events, &counts), &part.chosen, &part.names);
        loss::check(part.trace, &of_part, options.allow_loss)?;
        trust = Some(match trust {
            Some(trust) => trust.and(of_part),
            None => of_part,
        });
    }
    let table = table.finish().map_err(|cause| AnalyzeError::Compute(cause.into()))?;
    if let Some(spreads) = &mut spreads {
        spreads.begin_second_pass();
        for (at, part) in parts.iter().enumerate() {
            let numbering = Numbering { numbers: &mut numbers, part, at, by: options.by };
            let picker = Picker::new(options.pick);
            part.pass().run(&mut Spreading { numbering, spreads, picker })?;
        }
    }

    let totals = table.iter().fold(Sums::default(), |sum, (_, sums)| sum.plus(sums));
    let rows_total = table.len();
    let name = |number| numbers.name(number, &parts, options.by);
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
        Row { columns, cut_by_loss, name, trace, key }
    };
    let mut rows: Vec<Row> = table.into_iter().map(row).collect();
    sort(&mut rows, options.sort);
    rows.truncate(limit);
    rows
}

/// Descending, what was not measured last, equal rows by name. Names ascend.
fn sort(rows: &mut [Row], column: Column) {
    rows.sort_by(|a, b| {
        let by_value = b.columns.get(column).cmp(&a.columns.get(column));
        by_value.then_with(|| a.name.cmp(&b.name)).then_with(|| a.key.cmp(&b.key))
    });
}

impl Part<'_> {
    fn pass(&self) -> Pass<'_> {
        Pass { trace: self.trace, names: &self.names, chosen: &self.chosen }
    }
}

pub(crate) fn is_credited(hold: &Hold) -> bool {
    matches!(hold.state, HoldState::Complete | HoldState::AcquisitionOnly)
}

/// Numbers the rows of one trace.
struct Numbering<'a> {
    numbers: &'a mut Numbers,
    part: &'a Part<'a>,
    at: usize,
    by: By,
}

impl Numbering<'_> {
    fn row(&mut self, subject: impl Into<key::Subject>) -> i64 {
        self.numbers.row(subject.into(), self.at, &self.part.names, self.by)
    }
}

/// Takes intervals: credited ones to the table, the others to the trust block.
struct Summing<'a> {
    numbering: Numbering<'a>,
    table: &'a mut HoldTable,
    spreads: Option<&'a mut Spreads>,
    /// By row: what is missing from it.
    cut: &'a mut FxHashMap<i64, u64>,
    trust: trust::Watch,
    picker: Option<Picker>,
}

impl Sink for Summing<'_> {
    fn acquired(&mut self, hold: &Hold) {
        if let Some(picker) = &mut self.picker {
            acquired(picker, hold, self.numbering.part);
        }
    }

    fn hold(&mut self, hold: &Hold) {
        let is_picked = self.picker.as_mut().is_none_or(|picker| picker.takes(hold));
        if !is_picked || !self.numbering.part.chosen.wants_hold(hold) {
            return;
        }
        self.trust.hold(hold);
        if is_credited(hold) {
            let number = self.numbering.row(hold);
            self.table.push(number, hold);
            if let Some(spreads) = &mut self.spreads {
                spreads.push(number, hold);
            }
        } else if hold.state == HoldState::CutByLoss {
            *self.cut.entry(self.numbering.row(hold)).or_default() += 1;
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if self.numbering.part.chosen.wants_wait(wait) {
            self.trust.wait(wait);
            if wait.outcome == Outcome::CutByLoss {
                *self.cut.entry(self.numbering.row(wait)).or_default() += 1;
            }
        }
    }
}

/// Takes the same holds once more.
struct Spreading<'a> {
    numbering: Numbering<'a>,
    spreads: &'a mut Spreads,
    picker: Option<Picker>,
}

/// Lets an acquisition of the table count, whenever its hold ends.
fn acquired(picker: &mut Picker, hold: &Hold, part: &Part<'_>) {
    if part.chosen.wants_any_time(hold) {
        picker.acquired(hold, &part.names);
    }
}

impl Sink for Spreading<'_> {
    fn acquired(&mut self, hold: &Hold) {
        if let Some(picker) = &mut self.picker {
            acquired(picker, hold, self.numbering.part);
        }
    }

    fn hold(&mut self, hold: &Hold) {
        let is_picked = self.picker.as_mut().is_none_or(|picker| picker.takes(hold));
        if is_picked && is_credited(hold) && self.numbering.part.chosen.wants_hold(hold) {
            self.spreads.push(self.numbering.row(hold), hold);
        }
    }

    fn wait(&mut self, _: &Wait) {}
}
