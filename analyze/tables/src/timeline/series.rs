//! The timeline: the series of each key and its cells, the rows of both, and the text of one line per period
//! with a bar for waiting.
//!
//! A series is made of the lines of a key from all readers and traces. Series are sorted; those beyond the
//! limit are added up to one.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use polars::{
    frame::DataFrame,
    prelude::{IntoLazy, PolarsResult, SortMultipleOptions, col},
};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::filling::{CellSums, KeySums};
use crate::{
    frame::{Lines, known, lines, merged, values},
    key::{By, Key},
    key_columns,
    rank::{OrderBy, Ranked, rank},
    row_ids::NamedRow,
    table::{is_noise, noise_attribute},
    trace_column,
};
use intervals::input::trust::Trust;
use output::{
    Column, Page,
    layout::{self, bar},
    units,
};

/// The table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Timeline {
    /// The key of a row.
    pub by: By,
    /// The number of traces.
    pub traces: usize,
    /// The length of a period, in ns.
    pub period_ns: i64,
    /// The start of the first period, in ns since the start of the trace.
    pub from_ns: i64,
    /// The end of the last period, which may be shorter, in ns since the start of the trace.
    pub to_ns: i64,
    /// The keys, the one with the most waiting first.
    pub keys: Vec<Series>,
    /// All other keys as one, if there are others.
    pub others: Option<Series>,
    /// The number of other keys.
    pub others_count: usize,
    /// Events and intervals that the numbers do not hold.
    pub trust: Trust,
}

/// One key through time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// The name; safe to print.
    pub name: String,
    /// The key; `None` for several keys.
    pub key: Option<Key>,
    /// The trace, if there are several and the key belongs to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The sum over all periods.
    pub total: Cell,
    /// Holds and waits that are in no cell, because events were lost while they lasted.
    pub cut_by_loss: u64,
    /// The cells by index of the period. Empty ones are left out.
    pub cells: BTreeMap<i64, Cell>,
}

/// One key in one period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// The time that tasks waited, in ns: twice the period if two did all the time.
    pub wait_ns: i64,
    /// The time that tasks held it, in ns; `None` if holds are not recorded.
    pub hold_ns: Option<i64>,
    /// Waits that started.
    pub waits: i64,
    /// Holds that started.
    pub holds: i64,
}

impl Cell {
    /// Returns whether nothing happened.
    pub(super) fn is_empty(&self) -> bool {
        self.wait_ns == 0 && self.hold_ns.unwrap_or(0) == 0 && self.waits == 0 && self.holds == 0
    }

    pub fn merge(self, other: Self) -> Self {
        Self {
            wait_ns: self.wait_ns.saturating_add(other.wait_ns),
            hold_ns: match (self.hold_ns, other.hold_ns) {
                (Some(ns), Some(more)) => Some(ns.saturating_add(more)),
                (known, None) | (None, known) => known,
            },
            waits: self.waits + other.waits,
            holds: self.holds + other.holds,
        }
    }
}

impl Timeline {
    /// Returns the start and the end of a period, in ns since the start of the trace.
    pub fn period(&self, number: i64) -> (i64, i64) {
        let from_ns = self.from_ns.saturating_add(number.saturating_mul(self.period_ns));
        (from_ns, from_ns.saturating_add(self.period_ns).min(self.to_ns))
    }

    /// Returns the number of periods.
    pub fn periods(&self) -> i64 {
        count(self.to_ns.saturating_sub(self.from_ns), self.period_ns)
    }

    /// Returns the keys that are shown, then the others as one.
    pub fn series(&self) -> impl Iterator<Item = &Series> {
        self.keys.iter().chain(&self.others)
    }
}

/// Returns the number of periods in a span.
pub(super) fn count(span_ns: i64, period_ns: i64) -> i64 {
    (span_ns / period_ns + i64::from(span_ns % period_ns != 0)).max(1)
}

/// The keys that are shown, and the others as one.
pub(super) struct Ranking {
    pub(super) keys: Vec<Series>,
    pub(super) others: Option<Series>,
    pub(super) others_count: usize,
}

impl Ranking {
    /// Keeps the first keys, and merges the others into one.
    pub(super) fn of(mut keys: Vec<Series>, limit: Option<usize>) -> Self {
        let others = keys.split_off(limit.unwrap_or(usize::MAX).min(keys.len()));
        Self { others_count: others.len(), others: others.into_iter().reduce(merge), keys }
    }
}

/// Merges the lines of all readers and traces, and sorts the keys.
pub(super) fn rank_series(
    sums: Lines<KeySums, 1>,
    cells: Lines<CellSums, 2>,
    order: &[OrderBy],
    limit: Option<usize>,
    name: impl Fn([i64; 1]) -> NamedRow,
) -> PolarsResult<Ranking> {
    // Where holds are recorded and there is none, the time is 0; where they are not, it is null.
    let measured = || known(col("hold_ns"), col("measured"));
    let cells = cells
        .merge()?
        .inner_join(sums.merge()?, col("row"), col("row"))
        .with_columns([measured()])
        .sort(["row", "period"], SortMultipleOptions::default())
        .collect()?;
    let totals = [merged::<CellSums>(), vec![col("cut_by_loss").first(), col("measured").first()]].concat();
    let rows =
        cells.clone().lazy().group_by([col("row")]).agg(totals).with_columns([measured()]).collect()?;
    let Ranked { frame: rows, names, .. } = rank(rows, ["row"], order, None, name)?;
    let mut of_row: FxHashMap<i64, BTreeMap<i64, Cell>> = FxHashMap::default();
    for ([row, period], cell) in lines(&cells, ["row", "period"])?.into_iter().zip(cells_of(&cells)?) {
        of_row.entry(row).or_default().insert(period, cell);
    }
    let totals = lines(&rows, ["row", "cut_by_loss"])?.into_iter().zip(cells_of(&rows)?);
    let series = |(NamedRow { key, name, trace }, ([row, cut], total)): (_, ([i64; 2], _))| Series {
        name,
        key: Some(key),
        trace,
        total,
        cut_by_loss: cut.unsigned_abs(),
        cells: of_row.remove(&row).unwrap_or_default(),
    };
    Ok(Ranking::of(names.into_iter().zip(totals).map(series).collect(), limit))
}

/// Returns the cell of each line of a frame.
fn cells_of(frame: &DataFrame) -> PolarsResult<Vec<Cell>> {
    let cell = |([wait_ns, waits, holds], hold_ns): ([i64; 3], _)| Cell { wait_ns, hold_ns, waits, holds };
    let cells = lines(frame, ["wait_ns", "waits", "holds"])?.into_iter().zip(values(frame, "hold_ns")?);
    Ok(cells.map(cell).collect())
}

/// Merges two keys into one.
fn merge(mut all: Series, other: Series) -> Series {
    for (period, cell) in other.cells {
        let sum = all.cells.entry(period).or_default();
        *sum = sum.merge(cell);
    }
    let total = all.total.merge(other.total);
    let cut_by_loss = all.cut_by_loss + other.cut_by_loss;
    Series { name: "(others)".to_owned(), key: None, trace: None, total, cut_by_loss, cells: all.cells }
}

/// A cell of a key.
#[derive(Clone, Debug)]
pub struct PeriodRow {
    /// The start of the period, in ns since the start of the trace.
    pub from_ns: i64,
    /// The end of the period.
    pub to_ns: i64,
    /// The sums.
    pub cell: Cell,
    /// The name of the key.
    pub name: String,
    /// The key; `None` for several keys.
    pub key: Option<Key>,
    /// The trace, if there are several and the key belongs to one.
    pub trace: Option<String>,
}

impl PeriodRow {
    /// Returns a row of a key, of the time from `from_ns` to `to_ns`.
    pub(super) fn of(series: &Series, (from_ns, to_ns): (i64, i64), cell: Cell) -> Self {
        let Series { name, key, trace, .. } = series;
        Self { from_ns, to_ns, cell, name: name.clone(), key: key.clone(), trace: trace.clone() }
    }
}

/// Declares the columns; rows of several traces have their trace.
pub fn columns(by: By, several: bool) -> Vec<Column<PeriodRow>> {
    type Of = Column<PeriodRow>;
    let mut columns = vec![
        Of::timestamp("from", |row| row.from_ns, "Start of the period since the start of the trace.")
            .not_sortable(),
        Of::timestamp("to", |row| row.to_ns, "End of the period.").programs().not_sortable(),
        Of::duration("wait", |row| row.cell.wait_ns, "Time that tasks waited.").sum(),
        Of::duration("hold", |row| row.cell.hold_ns, "Time that tasks held the lock.").sum(),
        Of::count("waits", |row| row.cell.waits, "Waits that started.").sum(),
        Of::count("holds", |row| row.cell.holds, "Holds that started.").sum(),
        Of::name(by.to_string(), |row| row.name.as_str().into()),
    ];
    columns.extend(key_columns(by, "", |row: &PeriodRow| row.key.as_ref()));
    columns.extend(trace_column(several, |row: &PeriodRow| row.trace.as_deref()));
    columns
}

/// The width without a terminal.
const WIDTH: usize = 100;

/// Columns before a bar: the time, four numbers, and the gaps.
const BEFORE: usize = 49;

/// Writes the bars of the keys: a block per key, all bars to one scale. A terminal shows no locks of the
/// kernel that hardly anybody waited for.
pub(super) fn write_bars(
    timeline: &Timeline,
    Page { style, hides_zeros, .. }: &Page,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    let of = |series: &Series| (series.key.as_ref().and_then(Key::kind), series.total.wait_ns);
    let is_noise = is_noise(&timeline.keys, of);
    let is_hidden = |series: &&Series| *hides_zeros && style.is_terminal && is_noise(series);
    let shown = || timeline.series().filter(|series| !is_hidden(series));
    let room = style.width.unwrap_or(WIDTH).saturating_sub(BEFORE);
    let most = shown().flat_map(|series| series.cells.values()).map(|cell| cell.wait_ns).max();
    let most_ns = most.unwrap_or(0);
    writeln!(out, "periods of {}; bars are waiting, all to one scale", units::duration(timeline.period_ns))?;
    let names = style.names(shown().map(|series| series.name.as_str()));
    for (series, name) in shown().zip(names) {
        let name = match series.key {
            None => format!("{} other keys", units::exact(timeline.others_count as i64)),
            Some(_) => layout::marked(&name, series.cut_by_loss > 0),
        };
        writeln!(out, "\n{}", style.line(&name))?;
        block(timeline, series, most_ns, room, out)?;
    }
    layout::more(timeline.keys.iter().filter(is_hidden).count(), "key", &noise_attribute(), *style, out)
}

fn block(
    timeline: &Timeline,
    series: &Series,
    most_ns: i64,
    room: usize,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    writeln!(out, "{:>9}  {:>8}  {:>8}  {:>7}  {:>7}", "from", "wait", "hold", "waits", "holds")?;
    let none = Cell::default();
    let mut quiet = 0;
    for number in 0..timeline.periods() {
        let cell = series.cells.get(&number).unwrap_or(&none);
        if cell.is_empty() {
            quiet += 1;
            continue;
        }
        skipped(&mut quiet, out)?;
        let from = units::duration(timeline.period(number).0);
        let bar = bar(cell.wait_ns, most_ns, room);
        writeln!(out, "{}", format!("{from:>9}  {}  {bar}", numbers(cell)).trim_end())?;
    }
    skipped(&mut quiet, out)?;
    writeln!(out, "{:>9}  {}", "all", numbers(&series.total))
}

fn skipped(quiet: &mut i64, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    match std::mem::take(quiet) {
        0 => Ok(()),
        1 => writeln!(out, "{:>9}", "-"),
        periods => writeln!(out, "{:>9}  nothing in {} periods", "-", units::exact(periods)),
    }
}

fn numbers(cell: &Cell) -> String {
    let wait = units::duration(cell.wait_ns);
    let hold = cell.hold_ns.map_or_else(|| "-".to_owned(), units::duration);
    format!("{wait:>8}  {hold:>8}  {:>7}  {:>7}", units::count(cell.waits), units::count(cell.holds))
}
