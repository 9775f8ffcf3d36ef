//! The report byte for byte as FreeBSD prints `debug.lock.prof.stats`, for scripts that read that. One row
//! per acquisition point and class of locks, times in microseconds.
//!
//! The words of the header are wider than the columns below them; that is how it is printed there. A program
//! splits a row into nine integers and the rest of the line.

use std::io::Write;

use super::{Report, Row};
use intervals::input::names::{UNKNOWN, printable};
use output::error::AnalyzeError;

/// Writes the table. The report should be by [`By::Site`](crate::key::By::Site); other rows go by their
/// names.
///
/// # Errors
///
/// [`AnalyzeError::Write`] with the cause that `out` gave.
pub fn write(report: &Report, out: &mut (impl Write + ?Sized)) -> Result<(), AnalyzeError> {
    write_rows(&report.rows, out).map_err(AnalyzeError::Write)
}

fn write_rows(rows: &[Row], out: &mut (impl Write + ?Sized)) -> std::io::Result<()> {
    writeln!(
        out,
        "\n{:>8} {:>9} {:>11} {:>11} {:>11} {:>6} {:>6} {:>2} {:>6} name",
        "max", "wait_max", "total", "wait_total", "count", "avg", "wait_avg", "cnt_hold", "cnt_lock"
    )?;
    for row in rows {
        // A column that was not measured is 0, because the format has no other word. floor(floor(t / n)
        // / 1000) = floor(t / (1000 n)), so the averages are FreeBSD's own.
        let us = |column: &str| row.get(column).unwrap_or(0) / 1000;
        let [max, wait_max, total, wait_total, avg, wait_avg] =
            ["max_ns", "wait_max_ns", "total_ns", "wait_total_ns", "avg_ns", "wait_avg_ns"].map(us);
        let (count, cnt_hold, cnt_lock) = (row["count"], row.get("cnt_hold").unwrap_or(0), row["cnt_lock"]);
        writeln!(
            out,
            "{max:>8} {wait_max:>9} {total:>11} {wait_total:>11} {count:>11} {avg:>6} {wait_avg:>6} {cnt_hold:>2} {cnt_lock:>6} {}",
            name(row)
        )?;
    }
    Ok(())
}

/// `file:line (class:lockname)`.
fn name(row: &Row) -> String {
    let key = &row.key;
    let Some(place) = key.text("place") else { return row.name.clone() };
    let file = match key.text("file") {
        Some(file) if !file.is_empty() => printable(file),
        // Without a source file, the place says more than FreeBSD could.
        None if place != UNKNOWN => place.into(),
        _ => UNKNOWN.into(),
    };
    let class = key.kind().map_or(UNKNOWN, |kind| kind.as_str());
    let lock_name = printable(key.text("lock_name").unwrap_or_default());
    format!("{file}:{} ({class}:{lock_name})", key.number("line").unwrap_or(0))
}
