//! `klock events`, `waits` and `holds`: the rows of a trace with names, for an analysis of one's own.
//!
//! Rows go into a [`Rows`] as the trace is read, so memory does not grow with the trace; sorted rows go there
//! at the end. Events come in the order of the file, waits and holds in the order in which they end, several
//! traces one after the other.

use std::{
    io::{self, Write},
    ops::ControlFlow,
};

use trace_format::Trace;

use crate::table::NONE_SATISFIES;
use intervals::{
    causes,
    input::Input,
    input::filter::Filter,
    input::selection::Selection,
    input::trust::{Trust, TrustCounter},
    items::{self, ByState, Columns, Hold, Needs, Sink, Wait},
};
use output::{
    Cell, Column, Having, RowTest, Rows,
    column::{Visibility, sort_key},
    error::AnalyzeError,
    layout::{self, TextStyle},
};

mod columns;
mod ranking;
mod row;
#[cfg(test)]
mod tests;

pub use columns::{chosen_fields, fields, help};

pub use row::RowKind;

use ranking::Ranking;
use row::{Names, Record, Row};

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
    /// The column to sort by; `None` for the order of the trace. Sorted rows are kept in memory, at most
    /// twice the limit.
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
    /// Whether only rows that satisfy conditions were written.
    pub has_conditions: bool,
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
        let row = match what {
            _ if self.rows > 0 => return Ok(()),
            RowKind::Events => "event is",
            RowKind::Waits => "wait ended",
            RowKind::Holds => "hold ended",
        };
        let nothing =
            format!("nothing to show: no {row} in what was selected; `klock info` shows what was recorded");
        style.wrapped(if self.has_conditions { NONE_SATISFIES } else { &nothing }, out)
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

/// Returns the warning before the first row: loss, as far as the footers report it.
pub fn warning(traces: &[Trace]) -> Option<String> {
    let of = |trace: &Trace| Trust {
        lost: trace.info().loss.events(),
        recorded: trace.event_count(),
        ..Trust::default()
    };
    Trust::merged(traces.iter().map(of)).warning()
}

/// Writes the rows of one trace or several, one after the other; times are since the start of each. Returns
/// the number of rows, and what they do not hold.
///
/// # Errors
///
/// A trace cannot be read or holds no events, a filter finds nothing in any of them, or `rows` fails.
pub fn write(traces: &[Trace], options: &Options, rows: &mut dyn Rows) -> Result<Written, AnalyzeError> {
    let inputs = Input::open_all(traces, 0, &options.filter)?;
    of_inputs(&inputs, traces.len() > 1, options, rows)
}

/// Writes the rows of these inputs; with `several`, each with its trace.
pub fn of_inputs(
    inputs: &[Input<'_>],
    several: bool,
    options: &Options,
    rows: &mut dyn Rows,
) -> Result<Written, AnalyzeError> {
    let all = columns::all(options.what, several);
    let key = options.sort.as_deref().map(|word| sort_key(&all, word)).transpose()?;
    let ranking = key.and_then(|key| Some(Ranking::new(key.order?, options.limit)));
    let tests = options.having.iter().map(|having| having.on(&all)).collect::<Result<_, _>>()?;
    let columns = columns::chosen(all.clone(), &options.columns)?;
    let (what, limit) = (options.what, options.limit);
    let words = options.columns.iter().map(String::as_str).chain(options.sort.as_deref());
    let mut words = words.chain(options.having.iter().map(Having::column));
    let has_states =
        what == RowKind::Holds && words.any(|word| all.iter().any(|column| is_state(column, word)));
    let mut out = Out { what, columns, key, tests, limit, rows, ranking, written: 0, stop: Ok(false) };
    let mut trusts = Vec::new();
    for input in inputs {
        let mut trust = TrustCounter::default();
        let (names, selection) = (Names::new(input), &input.selection);
        let mut reading = Reading { names, selection, out: &mut out, trust: &mut trust, has_states };
        let outcome = match what {
            RowKind::Events => input.events_until(|event| {
                reading.write(Record::Event(*event));
                if reading.out.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?,
            RowKind::Holds if has_states => causes::of_all_waits(input, &mut reading)?.1,
            RowKind::Waits | RowKind::Holds => input.run(&mut reading)?,
        };
        // Rows that are not ranked are never refused.
        trusts.push(input.trust(trust, &outcome, true)?);
    }
    let Out { ranking, rows, mut written, stop, .. } = out;
    let mut hidden = (!stop?).then_some(0);
    if let Some(ranking) = ranking {
        let all = ranking.count();
        let ranked = ranking.into_rows();
        written = ranked.len() as u64;
        hidden = Some(all - written);
        ranked.iter().try_for_each(|cells| rows.push(cells))?;
    }
    rows.finish()?;
    let has_conditions = !options.having.is_empty();
    Ok(Written { rows: written, hidden, has_conditions, trust: Trust::merged(trusts) })
}

/// Whether this word names the time of a hold in a state.
fn is_state(column: &Column<Row>, word: &str) -> bool {
    column.visibility == Visibility::OnRequest && column.is_called(word)
}

/// Writes rows until the limit, or ranks all of them.
struct Out<'a> {
    what: RowKind,
    columns: Vec<Column<Row>>,
    /// The column that rows are sorted by.
    key: Option<&'a Column<Row>>,
    tests: Vec<RowTest<Row>>,
    limit: Option<u64>,
    rows: &'a mut dyn Rows,
    /// `None` if rows have the order of the trace.
    ranking: Option<Ranking>,
    written: u64,
    /// Whether there is a row beyond the limit, or the error of the rows.
    stop: Result<bool, AnalyzeError>,
}

impl Out<'_> {
    fn is_full(&self) -> bool {
        !matches!(self.stop, Ok(false))
    }

    fn write(&mut self, row: &Row) {
        if self.is_full() || !self.tests.iter().all(|test| test.holds(row)) {
            return;
        }
        let cells = || self.columns.iter().map(|column| column.cell(row)).collect::<Vec<Cell<'_>>>();
        match (&mut self.ranking, self.key) {
            (Some(ranking), Some(key)) => ranking.push(&key.cell(row), cells),
            _ if self.limit.is_some_and(|limit| self.written >= limit) => self.stop = Ok(true),
            _ => {
                self.written += 1;
                self.stop = self.rows.push(&cells()).map(|()| false);
            }
        }
    }
}

/// Makes rows of the events or intervals of one trace.
struct Reading<'a, 'b> {
    names: Names<'a>,
    selection: &'a Selection,
    out: &'a mut Out<'b>,
    trust: &'a mut TrustCounter,
    /// Whether holds are written with the states of their tasks.
    has_states: bool,
}

impl Reading<'_, '_> {
    fn write(&mut self, record: Record) {
        let row = self.names.row(record);
        self.out.write(&row);
    }
}

impl Sink for Reading<'_, '_> {
    fn needs(&self) -> Needs {
        let columns = if self.has_states { Columns::CausesAndPeers } else { Columns::All };
        Needs { held: self.has_states, ..Needs::columns(columns) }
    }

    fn push(&mut self, item: items::Item<'_>) {
        match item {
            items::Item::Hold(hold) if !self.has_states => self.hold(hold, None),
            items::Item::Held(hold, states) => self.hold(hold, Some(*states)),
            items::Item::Wait(wait) => self.wait(wait),
            _ => {}
        }
    }

    fn is_full(&self) -> bool {
        self.out.is_full()
    }
}

impl Reading<'_, '_> {
    fn hold(&mut self, hold: &Hold, states: Option<ByState>) {
        // An interval that is open only because reading stops is not a row.
        if !self.out.is_full() && self.selection.selects_hold(hold) {
            self.trust.hold(hold);
            if self.out.what == RowKind::Holds {
                self.write(Record::Hold(*hold, states));
            }
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if !self.out.is_full() && self.selection.selects_wait(wait) {
            self.trust.wait(wait);
            if self.out.what == RowKind::Waits {
                self.write(Record::Wait(*wait));
            }
        }
    }
}
