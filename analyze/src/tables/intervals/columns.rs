//! The columns of each kind of rows: the chosen words enter, declared columns leave, or their fields as the formats see them.

use super::{
    events, holds,
    options::RowKind,
    row::{self, Row},
    waits,
};
use crate::{
    error::AnalyzeError,
    output::{
        self, Column, Field, Kind,
        column::{select, sort_key},
        layout::TextStyle,
    },
};

/// The least width of a terminal that shows when each of the longest intervals began.
const WIDE: usize = 100;

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
pub(super) fn columns<T: 'static>(
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

pub(super) fn with_trace<T: 'static>(columns: Vec<Column<Row<T>>>, several: bool) -> Vec<Column<Row<T>>> {
    let of_trace = if several { row::trace_columns() } else { Vec::new() };
    of_trace.into_iter().chain(columns).collect()
}
