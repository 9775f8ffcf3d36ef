//! The columns of FreeBSD's LOCK_PROFILING(9) and who made others wait, by lock, by acquisition point, or by other keys.
//!
//! A trace and [`Options`] enter, a [`Report`] leaves: plain data in nanoseconds, and the [`Trust`] block that says
//! what the numbers don't hold. Nothing is formatted here; `text`, `csv`, `json` and `lockprof` are skins.
//!
//! The way: events, through the interval engine, to sums by key; polars combines them where keys are many. So memory grows
//! with the number of rows of the report, not with the trace. Every column is credited at the release, to the point of the
//! acquisition, as FreeBSD does it.

use std::{fmt, ops::ControlFlow, str::FromStr};

use rustc_hash::FxHashSet;
use serde::Serialize;
use trace_format::{LockKind, TaskId, Trace};

use crate::{
    choices::choices,
    error::AnalyzeError,
    intervals::{Counts, Engine, Hold, HoldState, Sink, Wait},
    names::Names,
    scope::{Chosen, Walk, Wanted, Window},
    select::{LockSelector, TaskSelector},
    source,
};

pub mod columns;
pub mod csv;
pub mod json;
pub mod lockprof;
pub mod text;

pub(crate) mod key;
mod spread;
mod table;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod trust;

pub use columns::{Column, Columns, Extra, Freebsd, Unit};
pub use key::Key;
pub use trust::Trust;

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

/// Makes the report.
///
/// # Errors
///
/// The trace can't be read or holds no events, or a filter means no lock or task of it. A filter that leaves no rows
/// is no error: the report is empty.
pub fn report(trace: &Trace, options: &Options) -> Result<Report, AnalyzeError> {
    report_in_chunks(trace, options, CHUNK_KEYS)
}

fn report_in_chunks(trace: &Trace, options: &Options, chunk_keys: usize) -> Result<Report, AnalyzeError> {
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

    let is_extra = options.columns.iter().chain([&options.sort]).any(|column| column.is_extra());
    let mut trust = trust::Watch::default();
    let mut sums = Summing {
        names: &names,
        by: options.by,
        tasks: chosen.tasks.as_ref(),
        window,
        table: HoldTable::new(chunk_keys),
        spreads: is_extra.then(Spreads::default),
        trust: &mut trust,
    };
    let pass = Pass { trace, names: &names, chosen: &chosen, window };
    let (events, counts) = pass.run(&mut sums)?;
    let Summing { table, mut spreads, .. } = sums;
    let table = table.finish().map_err(|cause| AnalyzeError::Compute(cause.into()))?;
    if let Some(spreads) = &mut spreads {
        spreads.begin_second_pass();
        pass.run(&mut Spreading {
            names: &names,
            by: options.by,
            wanted: (chosen.tasks.as_ref(), window),
            spreads,
        })?;
    }

    let totals = table.iter().fold(Sums::default(), |sum, (_, sums)| sum.plus(sums));
    let rows_total = table.len();
    let rows = rows(table, spreads.as_ref(), options, &names);
    Ok(Report {
        by: options.by,
        rows,
        rows_total,
        totals: Columns::of(&totals),
        trust: trust.block(trace, &events, &counts, &chosen.kinds(&names)),
    })
}

/// One reading of the events that the report is about.
struct Pass<'a> {
    trace: &'a Trace,
    names: &'a Names,
    chosen: &'a Chosen,
    window: Window,
}

impl Pass<'_> {
    fn run(&self, sink: &mut impl Sink) -> Result<(Walk, Counts), AnalyzeError> {
        let mut engine = Engine::new(self.names.rules(self.trace));
        let mut events = Walk::default();
        source::for_each(self.trace, |event| {
            if self.window.to_ns.is_some_and(|to_ns| event.ts_ns >= to_ns) {
                events.cut_short = true;
                return ControlFlow::Break(());
            }
            if events.see(event, self.chosen) {
                engine.push(event, sink);
            }
            ControlFlow::Continue(())
        })?;
        let end_ns = match self.window.to_ns {
            Some(to_ns) if events.cut_short => to_ns,
            _ => events.last_ns.max(self.trace.info().clocks_end.monotonic_ns),
        };
        let counts = engine.finish(end_ns, sink);
        Ok((events, counts))
    }
}

/// The rows that are shown. Only those get names: a report by site can have as many rows as there are locks times
/// places.
fn rows(table: Vec<(i64, Sums)>, spreads: Option<&Spreads>, options: &Options, names: &Names) -> Vec<Row> {
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
    spreads: Option<Spreads>,
    trust: &'a mut trust::Watch,
}

/// Which intervals are wanted: those of some tasks, if not of all, that ended in the window.
type WantedIntervals<'a> = (Option<&'a FxHashSet<TaskId>>, Window);

fn wants((tasks, window): WantedIntervals<'_>, task: TaskId, end_ns: i64) -> bool {
    window.holds(end_ns) && tasks.is_none_or(|tasks| tasks.contains(&task))
}

fn is_credited(hold: &Hold) -> bool {
    matches!(hold.state, HoldState::Complete | HoldState::AcquisitionOnly)
}

impl Sink for Summing<'_> {
    fn hold(&mut self, hold: &Hold) {
        if !wants((self.tasks, self.window), hold.task, hold.end_ns) {
            return;
        }
        self.trust.hold(hold);
        if is_credited(hold) {
            let number = key::number(hold, self.by, self.names);
            self.table.push(number, hold);
            if let Some(spreads) = &mut self.spreads {
                spreads.push(number, hold);
            }
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if wants((self.tasks, self.window), wait.task, wait.end_ns) {
            self.trust.wait(wait);
        }
    }
}

/// Takes the same holds once more.
struct Spreading<'a> {
    names: &'a Names,
    by: By,
    wanted: WantedIntervals<'a>,
    spreads: &'a mut Spreads,
}

impl Sink for Spreading<'_> {
    fn hold(&mut self, hold: &Hold) {
        if is_credited(hold) && wants(self.wanted, hold.task, hold.end_ns) {
            self.spreads.push(key::number(hold, self.by, self.names), hold);
        }
    }

    fn wait(&mut self, _: &Wait) {}
}
