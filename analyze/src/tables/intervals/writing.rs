//! The writing of rows: events and intervals enter, rows that meet the conditions leave, until the limit or ranked at the end.

use std::ops::ControlFlow;

use trace_format::Event;

use super::{
    columns::{columns, with_trace},
    events, holds,
    options::{Options, RowKind},
    ranking::Ranking,
    row::{self, Row},
    waits,
};
use crate::{
    error::AnalyzeError,
    input::{Input, ReadOutcome, selection::Selection, trust::TrustCounter},
    items::{Hold, Item, Sink, Wait},
    output::{Cell, Column, RowTest, Rows, column::sort_key},
};

/// The rows to write, with their columns.
pub(super) enum What {
    Events(Selected<Event>),
    Waits(Selected<Wait>),
    Holds(Selected<Hold>),
}

impl What {
    /// Returns the rows that the options ask for, and their ranking if they are sorted.
    pub(super) fn new(several: bool, options: &Options) -> Result<(Self, Option<Ranking>), AnalyzeError> {
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
pub(super) struct Selected<T> {
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
pub(super) struct Out<'a> {
    pub(super) rows: row::Rows<'a>,
    pub(super) selection: &'a Selection,
    pub(super) limit: Option<u64>,
    pub(super) out: &'a mut dyn Rows,
    /// `None` if rows have the order of the trace.
    pub(super) ranking: Option<&'a mut Ranking>,
    pub(super) written: u64,
    /// Whether there is a row beyond the limit.
    pub(super) has_more: bool,
    pub(super) failed: Result<(), AnalyzeError>,
}

impl Out<'_> {
    pub(super) fn is_full(&self) -> bool {
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

    pub(super) fn events(
        &mut self,
        columns: &Selected<Event>,
        input: &Input<'_>,
    ) -> Result<ReadOutcome, AnalyzeError> {
        input.events_until(|event| {
            let row = events::row(event, &mut self.rows);
            self.write(columns, &row);
            if self.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }
}

/// Writes the intervals of the requested kind.
pub(super) struct Intervals<'a, 'b> {
    pub(super) out: &'a mut Out<'b>,
    pub(super) what: &'a What,
    pub(super) trust: &'a mut TrustCounter,
}

impl Sink for Intervals<'_, '_> {
    fn push(&mut self, item: Item<'_>) {
        match item {
            Item::Hold(hold) => self.hold(hold),
            Item::Wait(wait) => self.wait(wait),
            _ => {}
        }
    }

    fn is_full(&self) -> bool {
        self.out.is_full()
    }
}

impl Intervals<'_, '_> {
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
}
