//! `klock analyze events`, `waits` and `holds`: the rows of a trace with names, for an analysis of one's own.
//!
//! Rows go into a [`Rows`] as the trace is read, so memory does not grow with the trace; sorted rows go there at the end. Events come in the order of the file, waits
//! and holds in the order in which they end, several traces one after the other.

use std::{
    io::{self, Write},
    ops::ControlFlow,
};

use trace_format::{Event, Trace};

use crate::{
    choices::choices,
    engine::{Hold, Sink, Wait},
    error::AnalyzeError,
    input::{
        Detail, Input, ReadOutcome,
        filter::Filter,
        selection::Selection,
        trust::{About, Trust, TrustCounter},
    },
    output::{
        self, Cell, Column, Field, Having, Kind, RowTest, Rows,
        column::{select, sort_key},
        layout::{self, TextStyle},
    },
};

mod events;
mod holds;
mod ranking;
mod row;
#[cfg(test)]
mod tests;
mod waits;

use ranking::Ranking;
use row::Row;

choices! {
    /// The kind of rows.
    RowKind, "kind of row" {
        /// One event.
        #[default]
        Events = "events",
        /// One task's wait for one lock.
        Waits = "waits",
        /// One task's hold of one lock.
        Holds = "holds",
    }
}

impl RowKind {
    /// Returns the table that the trust block is written below.
    pub const fn about(self) -> About {
        match self {
            Self::Events => About::Events,
            Self::Waits => About::Waits,
            Self::Holds => About::Holds,
        }
    }
}

/// The least width of a terminal that shows when each of the longest intervals began.
const WIDE: usize = 100;

/// Options of the rows.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The kind of rows.
    pub what: RowKind,
    /// The part of the traces to read. The least wait and the window also select events.
    pub filter: Filter,
    /// The conditions on rows.
    pub having: Vec<Having>,
    /// The number of rows; `None` is all.
    pub limit: Option<u64>,
    /// The column to sort by; `None` for the order of the trace. Sorted rows are kept in memory, at most twice the limit.
    pub sort: Option<String>,
    /// The columns of text to write, by heading or name; empty for the default ones.
    pub columns: Vec<String>,
}

/// The rows that were written, and the events and intervals that they do not hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The number of rows.
    pub rows: u64,
    /// The number of rows beyond the limit; `None` if reading stopped there.
    pub hidden: Option<u64>,
    /// Events and intervals that the rows do not hold.
    pub trust: Trust,
}

impl Written {
    /// Writes the sentence that stands for rows of this kind, if there are none.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_nothing(
        &self,
        what: RowKind,
        style: TextStyle,
        out: &mut (dyn Write + Send),
    ) -> io::Result<()> {
        if self.rows > 0 {
            return Ok(());
        }
        let row = match what {
            RowKind::Events => "event is",
            RowKind::Waits => "wait ended",
            RowKind::Holds => "hold ended",
        };
        let nothing =
            format!("nothing to show: no {row} in what was selected; `klock info` shows what was recorded");
        style.wrapped(&nothing, out)
    }

    /// Writes that there are more rows than the limit, if there are.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_hidden(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        match self.hidden {
            Some(rows) => layout::hidden(usize::try_from(rows).unwrap_or(usize::MAX), "", style, out),
            None => layout::hidden_somewhere(style, out),
        }
    }
}

/// Returns the default columns as the formats see them. Rows of several traces start with their trace.
pub fn fields(what: RowKind, several: bool) -> Vec<Field> {
    fn of<T: 'static>(columns: Vec<Column<Row<T>>>, several: bool) -> Vec<Field> {
        with_trace(columns, several).into_iter().map(|column| column.field).collect()
    }
    match what {
        RowKind::Events => of(events::columns(), several),
        RowKind::Waits => of(waits::columns(), several),
        RowKind::Holds => of(holds::columns(), several),
    }
}

/// Returns the columns as the formats see them: the `chosen` ones, or the default ones. Rows of several traces start with their
/// trace. The heading of the column that rows are sorted by has a mark on a terminal.
///
/// # Errors
///
/// A chosen word is not a column, or rows cannot be sorted by `sort`.
pub fn chosen_fields(
    what: RowKind,
    several: bool,
    chosen: &[String],
    sort: Option<&str>,
    style: TextStyle,
) -> Result<Vec<Field>, AnalyzeError> {
    fn of<T: 'static>(
        declared: Vec<Column<Row<T>>>,
        several: bool,
        chosen: &[String],
        sort: Option<&str>,
        style: TextStyle,
    ) -> Result<Vec<Field>, AnalyzeError> {
        let all = with_trace(declared.clone(), several);
        let key = sort.map(|word| sort_key(&all, word)).transpose()?;
        let columns = columns(declared, several, chosen)?;
        let sorted = key.map(|key| (key.field.name.clone(), key.order));
        let field = |column: Column<Row<T>>| {
            let order =
                sorted.as_ref().filter(|(name, _)| *name == column.field.name).and_then(|(_, order)| *order);
            let heading = style.heading(&column.field.heading, order);
            // On a narrow terminal, names need the room more than the times of rows that are not in the order of time.
            let is_narrow = style.is_terminal && !style.full && style.width.is_some_and(|width| width < WIDE);
            let is_left_out = is_narrow
                && chosen.is_empty()
                && column.field.kind == Kind::Timestamp
                && sorted.as_ref().is_some_and(|(name, _)| *name != column.field.name);
            let is_shown = column.field.is_shown && !is_left_out;
            Field { heading: heading.into(), is_shown, ..column.field }
        };
        Ok(columns.into_iter().map(field).collect())
    }
    match what {
        RowKind::Events => of(events::columns(), several, chosen, sort, style),
        RowKind::Waits => of(waits::columns(), several, chosen, sort, style),
        RowKind::Holds => of(holds::columns(), several, chosen, sort, style),
    }
}

/// Returns the columns to write, in their order.
fn columns<T: 'static>(
    declared: Vec<Column<Row<T>>>,
    several: bool,
    chosen: &[String],
) -> Result<Vec<Column<Row<T>>>, AnalyzeError> {
    let all = with_trace(declared, several);
    if chosen.is_empty() {
        return Ok(all);
    }
    let with_width = |mut column: Column<Row<T>>| {
        if column.field.width == (0, 0) {
            column.field.width = if column.field.kind.is_text() { (8, 24) } else { (8, 12) };
        }
        column
    };
    Ok(select(all, chosen)?.into_iter().map(with_width).collect())
}

/// Returns the list of columns for `--help`.
pub fn help(what: RowKind) -> String {
    match what {
        RowKind::Events => output::help(&events::columns(), true),
        RowKind::Waits => output::help(&waits::columns(), true),
        RowKind::Holds => output::help(&holds::columns(), true),
    }
}

fn with_trace<T: 'static>(columns: Vec<Column<Row<T>>>, several: bool) -> Vec<Column<Row<T>>> {
    let of_trace = if several { row::trace_columns() } else { Vec::new() };
    of_trace.into_iter().chain(columns).collect()
}

/// Returns the warning before the first row: loss, as far as the footers report it.
pub fn warning(traces: &[Trace]) -> Option<String> {
    let of = |trace: &Trace| Trust {
        lost: trace.info().loss.events(),
        recorded: trace.event_count(),
        ..Trust::default()
    };
    Trust::merged(traces.iter().map(of)).warning()
}

/// Writes the rows of one trace or several, one after the other; times are since the start of each. Returns the number of rows, and
/// what they do not hold.
///
/// # Errors
///
/// A trace cannot be read or holds no events, a filter finds nothing in any of them, or `rows` fails.
pub fn write(traces: &[Trace], options: &Options, rows: &mut dyn Rows) -> Result<Written, AnalyzeError> {
    let inputs = Input::open_all(traces, 0, &options.filter)?;
    of_inputs(&inputs, traces.len() > 1, options, rows)
}

/// Writes the rows of these inputs; with `several`, each with its trace.
pub(crate) fn of_inputs(
    inputs: &[Input<'_>],
    several: bool,
    options: &Options,
    rows: &mut dyn Rows,
) -> Result<Written, AnalyzeError> {
    let (what, mut ranking) = What::new(several, options)?;
    let (mut trusts, mut written) = (Vec::new(), 0);
    let mut stopped = false;
    for input in inputs {
        let mut out = Out {
            rows: row::Rows::new(input),
            selection: &input.selection,
            limit: options.limit,
            out: &mut *rows,
            ranking: ranking.as_mut(),
            written,
            has_more: false,
            failed: Ok(()),
        };
        let mut trust = TrustCounter::default();
        let outcome = match &what {
            What::Events(columns) => out.events(columns, input)?,
            what => input.run(Detail::All, &mut Intervals { out: &mut out, what, trust: &mut trust })?,
        };
        stopped |= out.is_full();
        out.failed?;
        written = out.written;
        // Rows that are not ranked are never refused.
        trusts.push(input.trust(trust, &outcome, true)?);
    }
    let mut hidden = (!stopped).then_some(0);
    if let Some(ranking) = ranking {
        let all = ranking.count();
        let ranked = ranking.into_rows();
        written = ranked.len() as u64;
        hidden = Some(all - written);
        ranked.iter().try_for_each(|cells| rows.push(cells))?;
    }
    rows.finish()?;
    Ok(Written { rows: written, hidden, trust: Trust::merged(trusts) })
}

/// The rows to write, with their columns.
enum What {
    Events(Selected<Event>),
    Waits(Selected<Wait>),
    Holds(Selected<Hold>),
}

impl What {
    /// Returns the rows that the options ask for, and their ranking if they are sorted.
    fn new(several: bool, options: &Options) -> Result<(Self, Option<Ranking>), AnalyzeError> {
        Ok(match options.what {
            RowKind::Events => {
                let (selected, ranking) = Selected::new(events::columns(), several, options)?;
                (Self::Events(selected), ranking)
            }
            RowKind::Waits => {
                let (selected, ranking) = Selected::new(waits::columns(), several, options)?;
                (Self::Waits(selected), ranking)
            }
            RowKind::Holds => {
                let (selected, ranking) = Selected::new(holds::columns(), several, options)?;
                (Self::Holds(selected), ranking)
            }
        })
    }
}

/// The columns to write, and the one that rows are sorted by.
struct Selected<T> {
    columns: Vec<Column<Row<T>>>,
    key: Option<Column<Row<T>>>,
    /// The conditions on rows.
    tests: Vec<RowTest<Row<T>>>,
}

impl<T: 'static> Selected<T> {
    fn new(
        declared: Vec<Column<Row<T>>>,
        several: bool,
        options: &Options,
    ) -> Result<(Self, Option<Ranking>), AnalyzeError> {
        let all = with_trace(declared.clone(), several);
        let key = options.sort.as_deref().map(|word| sort_key(&all, word)).transpose()?.cloned();
        let order = key.as_ref().and_then(|key| key.order);
        let ranking = order.map(|order| Ranking::new(order, options.limit));
        let tests = options.having.iter().map(|having| having.on(&all)).collect::<Result<_, _>>()?;
        Ok((Self { columns: columns(declared, several, &options.columns)?, key, tests }, ranking))
    }
}

/// Writes rows until the limit, or ranks all of them.
struct Out<'a> {
    rows: row::Rows<'a>,
    selection: &'a Selection,
    limit: Option<u64>,
    out: &'a mut dyn Rows,
    /// `None` if rows have the order of the trace.
    ranking: Option<&'a mut Ranking>,
    written: u64,
    /// Whether there is a row beyond the limit.
    has_more: bool,
    failed: Result<(), AnalyzeError>,
}

impl Out<'_> {
    fn is_full(&self) -> bool {
        self.failed.is_err() || self.has_more
    }

    /// Returns whether the limit leaves room for a row that was found.
    fn has_room(&mut self) -> bool {
        self.has_more |= self.ranking.is_none() && self.limit.is_some_and(|limit| self.written >= limit);
        !self.is_full()
    }

    fn write<T>(&mut self, Selected { columns, key, tests }: &Selected<T>, row: &Row<T>) {
        if !tests.iter().all(|test| test.holds(row)) {
            return;
        }
        if !self.has_room() {
            return;
        }
        let cells = || columns.iter().map(|column| column.cell(row)).collect::<Vec<Cell<'_>>>();
        self.written += 1;
        if let (Some(ranking), Some(key)) = (&mut self.ranking, key) {
            ranking.push(&key.cell(row), cells);
            return;
        }
        let cells = cells();
        self.failed = self.out.push(&cells);
    }

    fn events(&mut self, columns: &Selected<Event>, input: &Input<'_>) -> Result<ReadOutcome, AnalyzeError> {
        input.events_until(|event| {
            let row = events::row(event, &mut self.rows);
            self.write(columns, &row);
            if self.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }
}

/// Writes the intervals of the requested kind.
struct Intervals<'a, 'b> {
    out: &'a mut Out<'b>,
    what: &'a What,
    trust: &'a mut TrustCounter,
}

impl Sink for Intervals<'_, '_> {
    fn hold(&mut self, hold: &Hold) {
        // An interval that is open only because reading stops is not a row.
        if self.out.is_full() || !self.out.selection.selects_hold(hold) {
            return;
        }
        self.trust.hold(hold);
        if let What::Holds(columns) = self.what {
            let row = holds::row(hold, &mut self.out.rows);
            self.out.write(columns, &row);
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if self.out.is_full() || !self.out.selection.selects_wait(wait) {
            return;
        }
        self.trust.wait(wait);
        if let What::Waits(columns) = self.what {
            let row = waits::row(wait, &mut self.out.rows);
            self.out.write(columns, &row);
        }
    }

    fn has_enough(&self) -> bool {
        self.out.is_full()
    }
}
