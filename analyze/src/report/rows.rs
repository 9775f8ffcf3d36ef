//! The report as rows: integers with the unit in the column's name, null for what was not measured, then the name, what identifies
//! the row, and what loss took from it. For programs and documents; the trust block is not in it.

use std::io::Write;

use super::{By, Column, Key, Report, Unit, text::NUMBERS};
use crate::{
    error::AnalyzeError,
    rows::{self, Cell, Field, Format, Value},
};

/// Writes these columns of the report; without any, all that every report has.
///
/// # Errors
///
/// [`AnalyzeError::Write`] with the cause that `out` gave.
pub fn write(
    report: &Report,
    columns: &[Column],
    format: Format,
    out: &mut (dyn Write + Send),
) -> Result<(), AnalyzeError> {
    let all: Vec<Column> = Column::ALL.iter().copied().filter(|column| !column.is_extra()).collect();
    let wanted = if columns.is_empty() { &all } else { columns };
    let numbers: Vec<Column> = wanted.iter().copied().filter(|column| *column != Column::Name).collect();
    let seen = if columns.is_empty() { &NUMBERS[..] } else { columns };

    let mut fields: Vec<Field> = numbers.iter().map(|column| field(*column, seen.contains(column))).collect();
    fields.push(Field::text("name").shown(super::text::heading(report.by), Value::Text, (0, 0)));
    fields.extend(Key::column_names(report.by).iter().map(|name| key_field(name)));
    fields.push(Field::number("cut_by_loss"));
    if report.traces > 1 {
        fields.push(Field::text("trace"));
    }
    let mut out = rows::writer(format, &fields, None, out)?;
    for row in &report.rows {
        let mut cells: Vec<Cell<'_>> = numbers.iter().map(|column| row.get(*column).into()).collect();
        cells.push(row.name.as_str().into());
        cells.extend(key_cells(Some(&row.key), report.by));
        cells.push(i64::try_from(row.cut_by_loss).unwrap_or(i64::MAX).into());
        if report.traces > 1 {
            cells.push(row.trace.as_deref().into());
        }
        out.push(&cells)?;
    }
    out.finish()
}

fn field(column: Column, seen: bool) -> Field {
    let (unit, value) = match column.unit() {
        Unit::Ns => ("_ns", Value::Duration),
        Unit::Ppm => ("_ppm", Value::Ppm),
        Unit::Count | Unit::Text => ("", Value::Count),
    };
    let field = Field::number(format!("{column}{unit}"));
    if seen { field.shown(column.as_str(), value, (0, 0)) } else { field }
}

/// The column of a part of a key.
pub(crate) fn key_field(name: &str) -> Field {
    let part = name.trim_start_matches("holder_").trim_start_matches("waiter_");
    if matches!(part, "lock_id" | "pid" | "tid" | "task_id" | "line") {
        Field::number(name.to_owned())
    } else {
        Field::text(name.to_owned())
    }
}

/// The values of a key in the columns of another, wider one: null where it has none.
pub(crate) fn key_cells(key: Option<&Key>, by: By) -> Vec<Cell<'static>> {
    let names = Key::column_names(by);
    let mut values = key.map_or_else(Vec::new, Key::column_values);
    // The last columns of a site are those of its class.
    let missing = names.len().saturating_sub(values.len());
    values.splice(0..0, std::iter::repeat_n(String::new(), missing));
    let cell = |(name, value): (&&str, String)| match value {
        value if value.is_empty() => Cell::Null,
        value if !key_field(name).is_text => value.parse().map_or(Cell::Null, Cell::Int),
        value => value.into(),
    };
    names.iter().zip(values).map(cell).collect()
}
