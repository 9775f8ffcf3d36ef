//! Tables for people: columns of numbers, then a name, as wide as the terminal.
//!
//! The name is the last column. Where it does not fit into the width, it goes below the numbers of its row, so that a
//! terminal of 80 columns shows all columns and the whole name. Where the headings are what is too wide, they take two
//! lines. Without a width nothing is cut and nothing is moved.

use std::io::{self, Write};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::units;

/// Between two columns; one where that makes them fit.
const GAP: usize = 2;

/// Before a name that stands below its numbers.
const INDENT: usize = 4;

/// What a row is called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name<'a> {
    pub(crate) name: &'a str,
    /// Lines below the row.
    pub(crate) more: &'a [String],
}

impl<'a> From<&'a str> for Name<'a> {
    fn from(name: &'a str) -> Self {
        Self { name, more: &[] }
    }
}

/// Writes the table: of each row the `cells`, right-aligned below `heads`, and its name below `about`. Names must be safe to
/// print.
pub(crate) fn table(
    heads: &[&str],
    cells: &[Vec<String>],
    about: &str,
    names: &[Name<'_>],
    width: Option<usize>,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    let fits = |needed: usize| width.is_none_or(|width| needed <= width);
    let total = |widths: &[usize], gap: usize| {
        (widths.iter().sum::<usize>() + gap * widths.len()).saturating_sub(gap)
    };
    let cell_width = |at: usize| cells.iter().map(|row| row[at].width()).max().unwrap_or(0);
    let one_line: Vec<usize> =
        heads.iter().enumerate().map(|(at, head)| head.len().max(cell_width(at))).collect();
    let split: Vec<(&str, &str)> =
        heads.iter().map(|head| head.rsplit_once('_').unwrap_or(("", head))).collect();
    let two_lines =
        split.iter().enumerate().map(|(at, (up, low))| up.len().max(low.len()).max(cell_width(at)));
    let two_lines: Vec<usize> = two_lines.collect();

    let stacked = !fits(total(&one_line, 1));
    let widths = if stacked { two_lines } else { one_line };
    let gap = if fits(total(&widths, GAP)) { GAP } else { 1 };
    let longest_name = names.iter().map(|name| name.name.width()).max().unwrap_or(0).max(about.len());
    let below = !fits(total(&widths, gap) + GAP + longest_name);

    let about = if below { "" } else { about };
    if stacked {
        line(split.iter().map(|(up, _)| *up), &widths, gap, "", out)?;
        line(split.iter().map(|(_, low)| *low), &widths, gap, about, out)?;
    } else {
        line(heads.iter().copied(), &widths, gap, about, out)?;
    }
    for (cells, name) in cells.iter().zip(names) {
        let cells = cells.iter().map(String::as_str);
        let room = width.unwrap_or(usize::MAX).saturating_sub(INDENT);
        line(cells, &widths, gap, if below { "" } else { name.name }, out)?;
        let below = below.then_some(name.name).into_iter();
        for text in below.chain(name.more.iter().map(String::as_str)) {
            writeln!(out, "{:INDENT$}{}", "", cut(text, room))?;
        }
    }
    Ok(())
}

/// The name of a row, behind an exclamation mark if something of it is missing.
pub(crate) fn marked(name: &str, incomplete: bool) -> String {
    if incomplete { format!("! {name}") } else { name.to_owned() }
}

/// A bar for `value`, where `most` is as long as the room: blocks of an eighth, at least one for anything but 0.
pub(crate) fn bar(value: i64, most: i64, room: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if value <= 0 || most <= 0 {
        return String::new();
    }
    let eighths = (value as f64 / most as f64 * (room * 8) as f64).round().max(1.0) as usize;
    let eighths = eighths.min(room * 8);
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// Says how many rows are not shown, if any.
pub(crate) fn hidden(rows: usize, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    more(rows, "row", out)
}

/// The same of other things.
pub(crate) fn more(count: usize, what: &str, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    if count > 0 {
        let ending = if count == 1 { "" } else { "s" };
        writeln!(out, "... {} more {what}{ending}", units::exact(i64::try_from(count).unwrap_or(i64::MAX)))?;
    }
    Ok(())
}

fn line<'a>(
    cells: impl Iterator<Item = &'a str>,
    widths: &[usize],
    gap: usize,
    name: &str,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    let mut text = String::new();
    let blanks = |n: usize| std::iter::repeat_n(' ', n);
    for (cell, width) in cells.zip(widths) {
        text.extend(blanks(gap + width.saturating_sub(cell.width())));
        text.push_str(cell);
    }
    text.extend(blanks(GAP));
    text.push_str(name);
    // The first column has no gap before it, and a line without a name none after it.
    writeln!(out, "{}", text.get(gap..).unwrap_or_default().trim_end())
}

/// At most `width` columns of the text, the last an ellipsis if something is missing.
pub(crate) fn cut(text: &str, width: usize) -> String {
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
