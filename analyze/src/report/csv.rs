//! The report as CSV: integers with the unit in the column's name, empty for what was not measured, then the name and
//! what identifies the row. For programs; the trust block is not in it.

use std::io::{self, Write};

use super::{Column, Key, Report, Unit};
use crate::error::AnalyzeError;

/// Writes these columns of the report; without any, all that every report has.
///
/// # Errors
///
/// [`AnalyzeError::Write`] with the cause that `out` gave.
pub fn write(
    report: &Report,
    columns: &[Column],
    out: &mut (impl Write + ?Sized),
) -> Result<(), AnalyzeError> {
    let all: Vec<Column> = Column::ALL.iter().copied().filter(|column| !column.is_extra()).collect();
    let wanted = if columns.is_empty() { &all } else { columns };
    let numbers: Vec<Column> = wanted.iter().copied().filter(|column| *column != Column::Name).collect();
    let mut csv = csv::Writer::from_writer(out);
    let heads = numbers.iter().map(|column| {
        let unit = match column.unit() {
            Unit::Ns => "_ns",
            Unit::Ppm => "_ppm",
            Unit::Count | Unit::Text => "",
        };
        format!("{column}{unit}")
    });
    let about = ["name"].iter().chain(Key::column_names(report.by)).map(|name| (*name).to_owned());
    csv.write_record(heads.chain(about)).map_err(cause)?;
    for row in &report.rows {
        let number = |column: &Column| row.columns.get(*column).map_or_else(String::new, |n| n.to_string());
        let mut fields: Vec<String> = numbers.iter().map(number).collect();
        fields.push(row.name.clone());
        fields.extend(row.key.column_values());
        csv.write_record(&fields).map_err(cause)?;
    }
    csv.flush().map_err(AnalyzeError::Write)
}

pub(crate) fn cause(error: csv::Error) -> AnalyzeError {
    AnalyzeError::Write(match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    })
}
