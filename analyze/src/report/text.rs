//! The report for people: the table in aligned columns with units, `-` for what was not measured, then the trust block.
//!
//! The name is the last column. Where it does not fit into the width, it goes below the numbers of its row, so that a
//! terminal of 80 columns shows all columns and the whole name. Without a width nothing is cut.

use std::io::{self, Write};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::{By, Column, Columns, Report, Row};
use crate::{error::AnalyzeError, units};

/// The columns with numbers, in their order.
const NUMBERS: [Column; 9] = [
    Column::Max,
    Column::WaitMax,
    Column::Total,
    Column::WaitTotal,
    Column::Count,
    Column::Avg,
    Column::WaitAvg,
    Column::CntHold,
    Column::CntLock,
];

/// Between two columns; one where that makes them fit.
const GAP: usize = 2;

/// Before a name that stands below its numbers.
const INDENT: usize = 4;

/// Writes the table and the trust block. `width` is that of the terminal, `None` if there is none.
///
/// # Errors
///
/// [`AnalyzeError::Write`] with the cause that `out` gave.
pub fn write(
    report: &Report,
    width: Option<usize>,
    out: &mut (impl Write + ?Sized),
) -> Result<(), AnalyzeError> {
    table(report, width, out).and_then(|()| report.trust.write(out)).map_err(AnalyzeError::Write)
}

fn table(report: &Report, width: Option<usize>, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    if report.rows.is_empty() {
        writeln!(out, "nothing to show: no lock was acquired and released in what was selected\n")?;
        return Ok(());
    }
    let widths = widths(&report.rows);
    let numbers_width = widths.iter().sum::<usize>() + GAP * (widths.len() - 1);
    let names = report.rows.iter().map(|row| row.name.width());
    let longest_name = names.max().unwrap_or(0).max(heading(report.by).len());
    let below = width.is_some_and(|width| numbers_width + GAP + longest_name > width);
    let gap = if width.is_some_and(|width| numbers_width > width) { 1 } else { GAP };

    let heads = NUMBERS.map(|column| column.as_str().to_owned());
    let name = if below { String::new() } else { heading(report.by).to_owned() };
    line(&heads, &widths, gap, &name, out)?;
    for row in &report.rows {
        let cells = NUMBERS.map(|column| cell(&row.columns, column));
        if below {
            line(&cells, &widths, gap, "", out)?;
            let room = width.unwrap_or(usize::MAX).saturating_sub(INDENT);
            writeln!(out, "{:INDENT$}{}", "", cut(&row.name, room))?;
        } else {
            line(&cells, &widths, gap, &row.name, out)?;
        }
    }
    let hidden = report.rows_total - report.rows.len();
    if hidden > 0 {
        let rows = if hidden == 1 { "row" } else { "rows" };
        writeln!(out, "... {} more {rows}", units::exact(i64::try_from(hidden).unwrap_or(i64::MAX)))?;
    }
    writeln!(out)
}

fn heading(by: By) -> &'static str {
    match by {
        By::Lock => "lock",
        By::Site => "acquired at (lock)",
        By::Class => "class",
        By::Kind => "kind",
        By::Task => "task",
        By::Process => "process",
        By::Comm => "command",
    }
}

fn widths(rows: &[Row]) -> [usize; NUMBERS.len()] {
    NUMBERS.map(|column| {
        let cells = rows.iter().map(|row| cell(&row.columns, column).width());
        cells.max().unwrap_or(0).max(column.as_str().len())
    })
}

fn cell(columns: &Columns, column: Column) -> String {
    let Some(value) = columns.get(column) else { return "-".to_owned() };
    match column {
        Column::Count | Column::CntHold | Column::CntLock => units::count(value),
        _ => units::duration(value),
    }
}

fn line(
    cells: &[String],
    widths: &[usize],
    gap: usize,
    name: &str,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    let mut text = String::new();
    let blanks = |n: usize| std::iter::repeat_n(' ', n);
    for (cell, width) in cells.iter().zip(widths) {
        text.extend(blanks(gap + width.saturating_sub(cell.width())));
        text.push_str(cell);
    }
    text.extend(blanks(gap));
    text.push_str(name);
    // The first column has no gap before it, and a line without a name none after it.
    writeln!(out, "{}", text[gap..].trim_end())
}

/// At most `width` columns of the text, the last an ellipsis if something is missing.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut used = 0;
    let mut short: String = text
        .chars()
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used < width
        })
        .collect();
    short.push('…');
    short
}
