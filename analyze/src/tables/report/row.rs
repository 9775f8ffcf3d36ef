//! The report and its rows.

use serde::Serialize;

use super::{Column, Columns, columns::TEXT};
use crate::{
    input::trust::Trust,
    output,
    tables::{
        cut_column,
        key::{By, Key},
        key_columns, trace_column,
    },
};

/// The table and what is to be known about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The key of the rows.
    pub by: By,
    /// The number of traces.
    pub traces: usize,
    /// The rows, sorted and limited.
    pub rows: Vec<Row>,
    /// The number of rows before the limit.
    pub rows_total: usize,
    /// The columns over all rows, also those beyond the limit.
    pub totals: Columns,
    /// Whether the rows are of all locks, tasks and times.
    #[serde(skip)]
    pub is_unfiltered: bool,
    /// Events and intervals that the numbers do not hold.
    pub trust: Trust,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The columns.
    #[serde(flatten)]
    pub columns: Columns,
    /// The row's part of all rows, those beyond the limit too, in the column that is sorted by, in millionths, truncated. `None` if the
    /// column does not add up, if all rows are 0, or if it was not measured here.
    pub pct_ppm: Option<i64>,
    /// The part of this row and all before it.
    pub cum_pct_ppm: Option<i64>,
    /// Holds and waits of the row that are in no column, because events were lost while they lasted.
    pub cut_by_loss: u64,
    /// The name; safe to print.
    pub name: String,
    /// In a report of several traces, which one it is of, if it is of one alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The key.
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

/// Declares the columns; rows of several traces have their trace.
pub fn columns(by: By, several: bool) -> Vec<output::Column<Row>> {
    type Of = output::Column<Row>;
    let numbers = Column::ALL.iter().filter(|column| **column != Column::Name);
    let mut columns: Vec<Of> = numbers.map(|column| number(*column)).collect();
    columns.push(Of::name(by.heading(), |row| row.name.as_str().into()));
    columns.extend(key_columns(by, "", |row: &Row| Some(&row.key)));
    columns.push(cut_column(|row: &Row| row.cut_by_loss));
    columns.extend(trace_column(several, |row: &Row| row.trace.as_deref()));
    columns
}

/// Returns the columns for a terminal: those of text, with the sort column and its share in percent.
pub(super) fn terminal_columns(sort: Column) -> Vec<String> {
    let mut columns = TEXT.to_vec();
    if sort != Column::Name && !columns.contains(&sort) {
        columns.insert(0, sort);
    }
    if sort.adds_up()
        && let Some(at) = columns.iter().position(|column| *column == sort)
    {
        columns.insert(at + 1, Column::Pct);
    }
    columns.iter().map(ToString::to_string).collect()
}

/// Declares a column of numbers.
fn number(column: Column) -> output::Column<Row> {
    let declared = output::Column::new(
        column.as_str(),
        column.kind(),
        move |row: &Row| row.get(column).into(),
        column.doc(),
    );
    if column.group().is_some() {
        declared.on_request()
    } else if TEXT.contains(&column) {
        declared
    } else {
        declared.programs()
    }
}
