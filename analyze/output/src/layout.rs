//! Tables for people: columns of numbers, then a name, as wide as the terminal.
//!
//! The name is the last column. Where it does not fit into the width, it goes below the numbers of its row,
//! so that a terminal of 80 columns shows all columns and the whole name. Where the headings are what is too
//! wide, they take two lines. Names are shortened as people read them, and what is still too wide loses its
//! middle, unless they are wanted in full. Without a width nothing is cut and nothing is moved.

use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;

use crate::units;

mod style;

pub use style::{Notes, TextStyle};
pub use style::{Paint, STACK_SEPARATOR};

/// Between two columns; one where that makes them fit.
pub(super) const GAP: usize = 2;

/// Before a name that stands below its numbers.
const INDENT: usize = 4;

/// The name of a row.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a> {
    pub name: &'a str,
    /// Lines below the row.
    pub more: &'a [String],
}

impl<'a> From<&'a str> for Name<'a> {
    fn from(name: &'a str) -> Self {
        Self { name, more: &[] }
    }
}

/// Writes the table: of each row the `cells`, right-aligned below `heads`, and its name below `about`. Names
/// must be safe to print, and as long as they are.
pub fn table(
    heads: &[&str],
    cells: &[Vec<String>],
    about: &str,
    names: &[Name<'_>],
    look: TextStyle,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    let width = look.width;
    let shown = look.names(names.iter().map(|name| name.name));
    let fits = |needed: usize| width.is_none_or(|width| needed <= width);
    let total = |widths: &[usize], gap: usize| {
        (widths.iter().sum::<usize>() + gap * widths.len()).saturating_sub(gap)
    };
    let cell_width = |at: usize| cells.iter().map(|row| row[at].width()).max().unwrap_or(0);
    let one_line: Vec<usize> =
        heads.iter().enumerate().map(|(at, head)| head.width().max(cell_width(at))).collect();
    let split: Vec<(&str, &str)> =
        heads.iter().map(|head| head.rsplit_once('_').unwrap_or(("", head))).collect();
    let two_lines =
        split.iter().enumerate().map(|(at, (up, low))| up.width().max(low.width()).max(cell_width(at)));
    let two_lines: Vec<usize> = two_lines.collect();

    let stacked = !fits(total(&one_line, 1));
    let widths = if stacked { two_lines } else { one_line };
    let gap = if fits(total(&widths, GAP)) { GAP } else { 1 };
    let longest_name = shown.iter().map(|name| name.width()).max().unwrap_or(0).max(about.width());
    let below = !fits(total(&widths, gap) + GAP + longest_name);

    let beside = if below { "" } else { about };
    let heading = |text: String, out: &mut _| write_line(&look.paint(Paint::Bold, &text), out);
    if stacked {
        heading(line(split.iter().map(|(up, _)| *up), &widths, gap, ""), out)?;
        heading(line(split.iter().map(|(_, low)| *low), &widths, gap, beside), out)?;
    } else {
        heading(line(heads.iter().copied(), &widths, gap, beside), out)?;
    }
    if below {
        heading(format!("{:INDENT$}{about}", ""), out)?;
    }
    let room = width.unwrap_or(usize::MAX).saturating_sub(INDENT);
    for ((cells, shown), name) in cells.iter().zip(&shown).zip(names) {
        let cells = cells.iter().map(String::as_str);
        write_line(&line(cells, &widths, gap, if below { "" } else { shown }), out)?;
        if below {
            for line in look.folded(shown, room) {
                writeln!(out, "{:INDENT$}{line}", "")?;
            }
        }
        for text in name.more {
            match text.strip_prefix("  ") {
                // A sentence goes on in the next line; a stack loses its end.
                Some(sentence) => look.labelled(&format!("{:INDENT$}  ", ""), sentence, out)?,
                None if look.full => writeln!(out, "{:INDENT$}{text}", "")?,
                None => writeln!(out, "{:INDENT$}{}", "", look.stack(text, room))?,
            }
        }
    }
    Ok(())
}

/// The name of a row, behind an exclamation mark if something of it is missing.
pub fn marked(name: &str, incomplete: bool) -> String {
    if incomplete { format!("! {name}") } else { name.to_owned() }
}

/// A bar for `value`, where `most` is as long as the room: blocks of an eighth, at least one for anything
/// but 0.
pub fn bar(value: i64, most: i64, room: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if value <= 0 || most <= 0 {
        return String::new();
    }
    let eighths = (value as f64 / most as f64 * (room * 8) as f64).round().max(1.0) as usize;
    let eighths = eighths.min(room * 8);
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// Writes the number of rows that are not shown, if there are any, and what they have in common, which may be
/// empty.
pub fn hidden(
    rows: usize,
    attribute: &str,
    style: TextStyle,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    more(rows, "row", attribute, style, out)
}

/// Writes the number of things that are not shown, if there are any, and what they have in common.
pub fn more(
    count: usize,
    what: &str,
    attribute: &str,
    style: TextStyle,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    if count == 0 || style.notes == Notes::None {
        return Ok(());
    }
    let them = if count == 1 { "it" } else { "them" };
    let more = units::counted(count, &format!("more {what}"));
    write_hidden(&format!("... {more}{attribute}"), them, style, out)
}

/// Writes that there are more rows, of an unknown number.
pub fn hidden_somewhere(style: TextStyle, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    if style.notes == Notes::None { Ok(()) } else { write_hidden("... more rows", "them", style, out) }
}

/// Writes what is hidden, and on a terminal the way to see it.
fn write_hidden(
    hidden: &str,
    them: &str,
    style: TextStyle,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    let way = if style.is_terminal { format!("; --all shows {them}") } else { String::new() };
    style.wrapped(&format!("{hidden}{way}"), out)
}

/// Writes the number of columns for which the terminal has no room, if there are any.
pub fn hidden_columns(count: usize, style: TextStyle, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let them = if count == 1 { "it" } else { "them" };
    let text =
        format!("... {}; --full or a wider terminal shows {them}", units::counted(count, "more column"));
    if count == 0 { Ok(()) } else { write_line(&style.paint(Paint::Dim, &text), out) }
}

fn write_line(line: &str, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    writeln!(out, "{line}")
}

fn line<'a>(cells: impl Iterator<Item = &'a str>, widths: &[usize], gap: usize, name: &str) -> String {
    let mut text = String::new();
    let blanks = |n: usize| std::iter::repeat_n(' ', n);
    for (cell, width) in cells.zip(widths) {
        text.extend(blanks(gap + width.saturating_sub(cell.width())));
        text.push_str(cell);
    }
    text.extend(blanks(GAP));
    text.push_str(name);
    // The first column has no gap before it, and a line without a name none after it.
    text.get(gap..).unwrap_or_default().trim_end().to_owned()
}
