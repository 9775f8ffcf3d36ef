//! The columns of FreeBSD's LOCK_PROFILING(9) and who made others wait, by lock, by acquisition point, or by other keys.
//!
//! A trace and [`Options`] enter, a [`Report`] leaves: plain data in nanoseconds, and the [`Trust`] block that says
//! what the numbers don't hold. Nothing is formatted here; `text`, `csv`, `json` and `lockprof` are skins.
//!
//! The way: events, through the interval engine, to columns of holds, in chunks; polars sums each chunk up by key, and
//! the sums at the end. So memory grows with the number of rows of the report, not with the trace. Every column is
//! credited at the release, to the point of the acquisition, as FreeBSD does it.

use std::{fmt, ops::ControlFlow, str::FromStr};

use rustc_hash::FxHashSet;
use serde::Serialize;
use trace_format::{LockKind, TaskId, Trace};

use crate::{
    choices::choices,
    error::AnalyzeError,
    intervals::{Engine, Hold, HoldState, Sink, Wait},
    names::Names,
    scope::{Chosen, Walk, Wanted, Window},
    select::{LockSelector, TaskSelector},
    source,
};

pub mod csv;
pub mod json;
pub mod lockprof;
pub mod text;

pub(crate) mod key;
mod table;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod trust;

pub use key::Key;
pub use trust::Trust;

use table::{HoldTable, Sums};

/// How many holds are kept before they are summed up.
const CHUNK_ROWS: usize = 256 * 1024;

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What a row is.
    pub by: By,
    /// Descending by which column; equal rows by name.
    pub sort: Column,
    /// At most so many rows; `None` is all.
    pub limit: Option<usize>,
    /// Only these locks.
    pub lock: Option<LockSelector>,
    /// Only the holds of these tasks.
    pub task: Option<TaskSelector>,
    /// Only locks of these kinds; empty is all but those that tasks wait for idly.
    pub kinds: Vec<LockKind>,
    /// Condition variables, semaphores and barriers too.
    pub include_idle: bool,
    /// Only what was released at or after this time, in ns since the begin of the trace.
    pub from_ns: Option<i64>,
    /// Only what was released before this time, in ns since the begin of the trace.
    pub to_ns: Option<i64>,
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
    }
}

choices! {
    /// A column of the report.
    Column, "column" {
        /// Longest hold.
        Max = "max",
        /// Longest wait.
        WaitMax = "wait_max",
        /// Sum of holds.
        Total = "total",
        /// Sum of waits.
        #[default]
        WaitTotal = "wait_total",
        /// Acquisitions.
        Count = "count",
        /// Average hold.
        Avg = "avg",
        /// Average wait.
        WaitAvg = "wait_avg",
        /// Waits that began while it was held.
        CntHold = "cnt_hold",
        /// Acquisitions that had to wait.
        CntLock = "cnt_lock",
        /// Time that others waited for its holds.
        WaitCaused = "wait_caused",
        /// Holds in which somebody began to wait.
        HoldsContended = "holds_contended",
        /// Of the waits: while nobody held the lock.
        Gap = "gap",
        /// The row's name, ascending.
        Name = "name",
    }
}

/// The table and what is to be known about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// What a row is.
    #[serde(serialize_with = "word")]
    pub by: By,
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
    /// What the row is called; safe to print.
    pub name: String,
    /// What the row is about.
    #[serde(flatten)]
    pub key: Key,
}

/// The columns of LOCK_PROFILING(9), and three that say who made others wait. Times are in nanoseconds; what was not
/// measured is `None`, never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Columns {
    /// Longest hold.
    pub max_ns: Option<i64>,
    /// Longest wait that ended in a hold.
    pub wait_max_ns: Option<i64>,
    /// Sum of holds.
    pub total_ns: Option<i64>,
    /// Sum of waits.
    pub wait_total_ns: Option<i64>,
    /// Acquisitions.
    pub count: i64,
    /// `total_ns` by the acquisitions whose hold was measured; 0 if there are none.
    pub avg_ns: Option<i64>,
    /// `wait_total_ns` by all acquisitions, not only those that waited; 0 if there are none.
    pub wait_avg_ns: Option<i64>,
    /// Waits of others that began while it was held, abandoned ones too.
    pub cnt_hold: Option<i64>,
    /// Acquisitions that had to wait.
    pub cnt_lock: i64,
    /// How long others waited while this was the oldest hold, abandoned waits too.
    pub wait_caused_ns: Option<i64>,
    /// Holds in which at least one wait of another task began.
    pub holds_contended: Option<i64>,
    /// Of `wait_total_ns`: while no other task's hold was open. The rest is in somebody's `wait_caused_ns`.
    pub gap_ns: Option<i64>,
}

/// The columns as FreeBSD prints them: whole microseconds, truncated, nothing missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freebsd {
    /// Longest hold, µs.
    pub max: i64,
    /// Longest wait, µs.
    pub wait_max: i64,
    /// Sum of holds, µs.
    pub total: i64,
    /// Sum of waits, µs.
    pub wait_total: i64,
    /// Acquisitions.
    pub count: i64,
    /// Average hold, µs.
    pub avg: i64,
    /// Average wait, µs.
    pub wait_avg: i64,
    /// Waits that began while it was held.
    pub cnt_hold: i64,
    /// Acquisitions that had to wait.
    pub cnt_lock: i64,
}

impl Columns {
    fn of(sums: &Sums) -> Self {
        let measured = sums.measured > 0;
        let waits_known = sums.waits_known > 0 || sums.count == 0;
        Self {
            max_ns: measured.then_some(sums.max_ns),
            wait_max_ns: waits_known.then_some(sums.wait_max_ns),
            total_ns: measured.then_some(sums.total_ns),
            wait_total_ns: waits_known.then_some(sums.wait_total_ns),
            count: sums.count,
            avg_ns: measured.then(|| divide(sums.total_ns, sums.measured)),
            wait_avg_ns: waits_known.then(|| divide(sums.wait_total_ns, sums.count)),
            cnt_hold: measured.then_some(sums.cnt_hold),
            cnt_lock: sums.cnt_lock,
            wait_caused_ns: measured.then_some(sums.wait_caused_ns),
            holds_contended: measured.then_some(sums.holds_contended),
            gap_ns: (sums.gaps_known > 0 || sums.count == 0).then_some(sums.gap_ns),
        }
    }

    /// The columns as FreeBSD prints them. What was not measured is 0 there, because its format knows no other word.
    pub fn freebsd(&self) -> Freebsd {
        let us = |ns: Option<i64>| ns.unwrap_or(0) / 1000;
        Freebsd {
            max: us(self.max_ns),
            wait_max: us(self.wait_max_ns),
            total: us(self.total_ns),
            wait_total: us(self.wait_total_ns),
            count: self.count,
            // floor(floor(t / n) / 1000) = floor(t / (1000 n)), so the averages are FreeBSD's own.
            avg: us(self.avg_ns),
            wait_avg: us(self.wait_avg_ns),
            cnt_hold: self.cnt_hold.unwrap_or(0),
            cnt_lock: self.cnt_lock,
        }
    }

    /// The value of a column; `None` where it was not measured, and for the name.
    pub fn get(&self, column: Column) -> Option<i64> {
        match column {
            Column::Max => self.max_ns,
            Column::WaitMax => self.wait_max_ns,
            Column::Total => self.total_ns,
            Column::WaitTotal => self.wait_total_ns,
            Column::Count => Some(self.count),
            Column::Avg => self.avg_ns,
            Column::WaitAvg => self.wait_avg_ns,
            Column::CntHold => self.cnt_hold,
            Column::CntLock => Some(self.cnt_lock),
            Column::WaitCaused => self.wait_caused_ns,
            Column::HoldsContended => self.holds_contended,
            Column::Gap => self.gap_ns,
            Column::Name => None,
        }
    }
}

impl Column {
    /// Whether it is a time, and not a count.
    pub const fn is_time(self) -> bool {
        !matches!(self, Self::Count | Self::CntHold | Self::CntLock | Self::HoldsContended | Self::Name)
    }
}

fn divide(sum: i64, count: i64) -> i64 {
    if count == 0 { 0 } else { sum / count }
}

/// Makes the report.
///
/// # Errors
///
/// The trace can't be read or holds no events, or a filter means no lock or task of it. A filter that leaves no rows
/// is no error: the report is empty.
pub fn report(trace: &Trace, options: &Options) -> Result<Report, AnalyzeError> {
    report_in_chunks(trace, options, CHUNK_ROWS)
}

fn report_in_chunks(trace: &Trace, options: &Options, chunk_rows: usize) -> Result<Report, AnalyzeError> {
    if trace.event_count() == 0 {
        return Err(AnalyzeError::Empty { path: trace.paths().events.clone() });
    }
    let names = Names::read(trace)?;
    let wanted = Wanted {
        lock: options.lock.as_ref(),
        task: options.task.as_ref(),
        kinds: &options.kinds,
        include_idle: options.include_idle,
    };
    let chosen = Chosen::of(trace, &names, wanted)?;
    let start_ns = match (trace.info().clocks_start.monotonic_ns, options.from_ns.or(options.to_ns)) {
        // Only a window needs to know where the trace begins, before its first event is read.
        (0, Some(_)) => first_time(trace)?,
        (start_ns, _) => start_ns,
    };
    let window = Window {
        from_ns: options.from_ns.map(|ns| start_ns.saturating_add(ns)),
        to_ns: options.to_ns.map(|ns| start_ns.saturating_add(ns)),
    };

    let mut engine = Engine::new(names.rules(trace));
    let mut trust = trust::Watch::default();
    let mut sums = Summing {
        names: &names,
        by: options.by,
        tasks: chosen.tasks.as_ref(),
        window,
        table: HoldTable::new(chunk_rows),
        trust: &mut trust,
    };
    let mut events = Walk::default();
    source::for_each(trace, |event| {
        if window.to_ns.is_some_and(|to_ns| event.ts_ns >= to_ns) {
            events.cut_short = true;
            return ControlFlow::Break(());
        }
        if events.see(event, &chosen) {
            engine.push(event, &mut sums);
        }
        ControlFlow::Continue(())
    })?;
    let end_ns = match window.to_ns {
        Some(to_ns) if events.cut_short => to_ns,
        _ => events.last_ns.max(trace.info().clocks_end.monotonic_ns),
    };
    let counts = engine.finish(end_ns, &mut sums);
    let table = sums.table.finish().map_err(|cause| AnalyzeError::Compute(cause.into()))?;

    let totals = table.iter().fold(Sums::default(), |sum, (_, sums)| sum.plus(sums));
    let rows_total = table.len();
    let rows = rows(table, options, &names);
    Ok(Report {
        by: options.by,
        rows,
        rows_total,
        totals: Columns::of(&totals),
        trust: trust.block(trace, &events, &counts, &chosen.kinds(&names)),
    })
}

/// The rows that are shown. Only those get names: a report by site can have as many rows as there are locks times
/// places.
fn rows(table: Vec<(i64, Sums)>, options: &Options, names: &Names) -> Vec<Row> {
    let limit = options.limit.unwrap_or(usize::MAX);
    let mut table: Vec<(i64, Columns)> =
        table.into_iter().map(|(number, sums)| (number, Columns::of(&sums))).collect();
    if limit < table.len() && options.sort != Column::Name {
        let value = |row: &(i64, Columns)| std::cmp::Reverse(row.1.get(options.sort));
        table.sort_by_key(value);
        // Rows that equal the last one compete with it by name.
        let last = limit.checked_sub(1).map(|at| value(&table[at]));
        let end = table.partition_point(|row| last.is_some_and(|last| value(row) <= last));
        table.truncate(end);
    }
    let row = |(number, columns)| {
        let key = Key::of_number(number, options.by, names);
        Row { columns, name: key.label(names), key }
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

fn first_time(trace: &Trace) -> Result<i64, AnalyzeError> {
    let mut first_ns = 0;
    source::for_each(trace, |event| {
        first_ns = event.ts_ns;
        ControlFlow::Break(())
    })?;
    Ok(first_ns)
}

/// Takes intervals: credited ones to the table, the others to the trust block.
struct Summing<'a> {
    names: &'a Names,
    by: By,
    tasks: Option<&'a FxHashSet<TaskId>>,
    window: Window,
    table: HoldTable,
    trust: &'a mut trust::Watch,
}

impl Summing<'_> {
    fn wants(&self, task: TaskId, end_ns: i64) -> bool {
        self.window.holds(end_ns) && self.tasks.is_none_or(|tasks| tasks.contains(&task))
    }
}

impl Sink for Summing<'_> {
    fn hold(&mut self, hold: &Hold) {
        if !self.wants(hold.task, hold.end_ns) {
            return;
        }
        self.trust.hold(hold);
        if matches!(hold.state, HoldState::Complete | HoldState::AcquisitionOnly) {
            self.table.push(key::number(hold, self.by, self.names), hold);
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if self.wants(wait.task, wait.end_ns) {
            self.trust.wait(wait);
        }
    }
}
