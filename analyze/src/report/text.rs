//! The report for people: the table in aligned columns with units, `-` for what was not measured, then the trust block.
//!
//! Where what goes is decided in [`layout`].

use std::io::{self, Write};

use super::{About, By, Column, Report, Row, Unit};
use crate::{
    error::AnalyzeError,
    layout::{self, Look, Name},
    units,
};

/// The columns with numbers that are shown where nobody chose any.
pub(super) const NUMBERS: [Column; 10] = [
    Column::Max,
    Column::WaitMax,
    Column::Total,
    Column::WaitTotal,
    Column::WaitCaused,
    Column::Count,
    Column::Avg,
    Column::WaitAvg,
    Column::CntHold,
    Column::CntLock,
];

/// Writes these columns of the table, by default those of LOCK_PROFILING(9) and `wait_caused`, and the trust block.
/// ///
/// # Errors
///
/// [`AnalyzeError::Write`] with the cause that `out` gave.
pub fn write(
    report: &Report,
    columns: &[Column],
    look: impl Into<Look>,
    out: &mut (impl Write + ?Sized),
) -> Result<(), AnalyzeError> {
    let look = look.into();
    let written = report.trust.warn(out).and_then(|()| table(report, columns, look, out));
    written.and_then(|()| report.trust.write_about(About::Report, look, out)).map_err(AnalyzeError::Write)
}

fn table(report: &Report, columns: &[Column], look: Look, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    if report.rows.is_empty() {
        writeln!(out, "nothing to show: no lock was acquired and released in what was selected\n")?;
        return Ok(());
    }
    let columns: &[Column] = if columns.is_empty() { &NUMBERS } else { columns };
    let numbers = columns.iter().copied().filter(|column| *column != Column::Name);
    let numbers: Vec<Column> = numbers.collect();
    let cells: Vec<Vec<String>> =
        report.rows.iter().map(|row| numbers.iter().map(|column| cell(row, *column)).collect()).collect();
    let heads: Vec<&str> = numbers.iter().map(|column| column.as_str()).collect();
    let names: Vec<String> =
        report.rows.iter().map(|row| layout::marked(&row.name, row.cut_by_loss > 0)).collect();
    let names: Vec<Name<'_>> = names.iter().map(|name| name.as_str().into()).collect();
    layout::table(&heads, &cells, heading(report.by), &names, look, out)?;
    layout::hidden(report.rows_total - report.rows.len(), out)?;
    writeln!(out)
}

pub(crate) fn heading(by: By) -> &'static str {
    match by {
        By::Lock => "lock",
        By::Site => "acquired at (lock)",
        By::Class => "class",
        By::Kind => "kind",
        By::Task => "task",
        By::TaskLock => "task: lock",
        By::Process => "process",
        By::Comm => "command",
        By::Stack => "acquired at < called by (lock)",
        By::Cgroup => "control group",
        By::Host => "host",
    }
}

fn cell(row: &Row, column: Column) -> String {
    let Some(value) = row.get(column) else { return "-".to_owned() };
    match column.unit() {
        Unit::Ns => units::duration(value),
        Unit::Ppm => format!("{:.1} %", value as f64 / 1e4),
        Unit::Count | Unit::Text => units::count(value),
    }
}
