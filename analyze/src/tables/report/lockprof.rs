//! The report byte for byte as FreeBSD prints `debug.lock.prof.stats`, for scripts that read that. One row per acquisition point and
//! class of locks, times in microseconds.
//!
//! The words of the header are wider than the columns below them; that is how it is printed there. A program splits a
//! row into nine integers (eight in FreeBSD 7.0) and the rest of the line.

use std::io::Write;

use super::{Freebsd, Report, Row};
use crate::tables::key::Key;
use crate::{
    choices::choices,
    error::AnalyzeError,
    input::names::{UNKNOWN, printable},
};

choices! {
    /// The FreeBSD release whose table is written.
    Compat, "FreeBSD release" {
        /// The table of FreeBSD 7.1 and later, with `cnt_hold` counted as 7.0 did. Later releases print the column, and count nothing in it.
        #[default]
        Seven = "7",
        /// The table of FreeBSD 8 and later, in which `cnt_hold` is always 0.
        EightOrLater = "8+",
        /// The table of FreeBSD 7.0: without `wait_max`, and with other widths.
        SevenZero = "7.0",
    }
}

/// Writes the table. The report should be by [`By::Site`](crate::tables::key::By::Site); other rows go by their names. `comment` stands in the first
/// line, which is empty there.
///
/// # Errors
///
/// [`AnalyzeError::Write`] with the cause that `out` gave.
pub fn write(
    report: &Report,
    compat: Compat,
    comment: Option<&str>,
    out: &mut (impl Write + ?Sized),
) -> Result<(), AnalyzeError> {
    write_rows(&report.rows, compat, comment.unwrap_or(""), out).map_err(AnalyzeError::Write)
}

fn write_rows(
    rows: &[Row],
    compat: Compat,
    comment: &str,
    out: &mut (impl Write + ?Sized),
) -> std::io::Result<()> {
    writeln!(out, "{comment}")?;
    match compat {
        Compat::SevenZero => writeln!(
            out,
            "{:>6} {:>12} {:>12} {:>11} {:>5} {:>5} {:>12} {:>12} name",
            "max", "total", "wait_total", "count", "avg", "wait_avg", "cnt_hold", "cnt_lock"
        )?,
        _ => writeln!(
            out,
            "{:>8} {:>9} {:>11} {:>11} {:>11} {:>6} {:>6} {:>2} {:>6} name",
            "max", "wait_max", "total", "wait_total", "count", "avg", "wait_avg", "cnt_hold", "cnt_lock"
        )?,
    }
    for row in rows {
        let Freebsd { max, wait_max, total, wait_total, count, avg, wait_avg, cnt_hold, cnt_lock } =
            row.columns.freebsd();
        let cnt_hold = if compat == Compat::EightOrLater { 0 } else { cnt_hold };
        let name = name(row);
        match compat {
            Compat::SevenZero => writeln!(
                out,
                "{max:>6} {total:>12} {wait_total:>12} {count:>11} {avg:>5} {wait_avg:>5} {cnt_hold:>12} {cnt_lock:>12} {name}"
            )?,
            _ => writeln!(
                out,
                "{max:>8} {wait_max:>9} {total:>11} {wait_total:>11} {count:>11} {avg:>6} {wait_avg:>6} {cnt_hold:>2} {cnt_lock:>6} {name}"
            )?,
        }
    }
    Ok(())
}

/// `file:line (class:lockname)`.
fn name(row: &Row) -> String {
    let Key::Site { file, line, place, kind, lock_name, .. } = &row.key else { return row.name.clone() };
    let file = match file.as_deref() {
        Some(file) if !file.is_empty() => printable(file).into_owned(),
        // Without a source file, the place says more than FreeBSD could.
        None if place != UNKNOWN => place.clone(),
        _ => UNKNOWN.to_owned(),
    };
    let class = kind.map_or(UNKNOWN, |kind| kind.as_str());
    format!("{file}:{} ({class}:{})", line.unwrap_or(0), printable(lock_name.as_deref().unwrap_or("")))
}
