//! The report as CSV: integers with the unit in the column's name, empty for what was not measured, then the name and
//! what identifies the row. For programs; the trust block is not in it.

use std::io::{self, Write};

use super::{Key, Report};
use crate::error::AnalyzeError;

/// The columns that every report has, in their order.
const COLUMNS: [&str; 10] = [
    "max_ns",
    "wait_max_ns",
    "total_ns",
    "wait_total_ns",
    "count",
    "avg_ns",
    "wait_avg_ns",
    "cnt_hold",
    "cnt_lock",
    "name",
];

/// Writes the report.
///
/// # Errors
///
/// [`AnalyzeError::Write`] with the cause that `out` gave.
pub fn write(report: &Report, out: &mut (impl Write + ?Sized)) -> Result<(), AnalyzeError> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(COLUMNS.iter().chain(Key::column_names(report.by))).map_err(cause)?;
    for row in &report.rows {
        let c = &row.columns;
        let numbers = [
            c.max_ns,
            c.wait_max_ns,
            c.total_ns,
            c.wait_total_ns,
            Some(c.count),
            c.avg_ns,
            c.wait_avg_ns,
            c.cnt_hold,
            Some(c.cnt_lock),
        ];
        let mut fields: Vec<String> =
            numbers.iter().map(|n| n.map_or_else(String::new, |n| n.to_string())).collect();
        fields.push(row.name.clone());
        fields.extend(row.key.column_values());
        csv.write_record(&fields).map_err(cause)?;
    }
    csv.flush().map_err(AnalyzeError::Write)
}

fn cause(error: csv::Error) -> AnalyzeError {
    AnalyzeError::Write(match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    })
}
