//! Tables for people: columns of numbers, then a name, as wide as the terminal.
//!
//! The name is the last column. Where it does not fit into the width, it goes below the numbers of its row, so that a
//! terminal of 80 columns shows all columns and the whole name. Where the headings are what is too wide, they take two
//! lines. Names are shortened as people read them, and what is still too wide loses its middle, unless they are wanted in full.
//! Without a width nothing is cut and nothing is moved.

use std::io::{self, Write};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::{names::short, units};

/// How a table for people looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// The width of the terminal, in columns; `None` if there is none.
    pub width: Option<usize>,
    /// Whether names are neither shortened nor cut.
    pub full: bool,
}

impl From<Option<usize>> for Look {
    fn from(width: Option<usize>) -> Self {
        Self { width, full: false }
    }
}

impl Look {
    /// These names as they are shown, before they are cut.
    pub(crate) fn names<'a>(self, names: impl Iterator<Item = &'a str>) -> Vec<String> {
        let names: Vec<&str> = names.collect();
        if self.full { names.into_iter().map(str::to_owned).collect() } else { short::all_short(&names) }
    }

    /// At most so many columns of the text, unless all of it is wanted.
    pub(crate) fn cut(self, text: &str, width: usize) -> String {
        if self.full || text.width() <= width {
            return text.to_owned();
        }
        // What a function is called says more than where it is from.
        let mut shorter = (1..=3).rev().map(|parts| short::without_namespaces(text, parts));
        shorter
            .find(|text| text.width() <= width)
            .unwrap_or_else(|| cut_middle(&short::without_namespaces(text, 1), width))
    }

    /// A stack, innermost function first: what is too wide loses its end.
    fn stack(self, text: &str, width: usize) -> String {
        let text = short::short(text);
        if text.width() <= width { text } else { cut(&short::without_namespaces(&text, 2), width) }
    }

    /// The line, on several where it does not fit into the width.
    pub(crate) fn wrapped(self, text: &str, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        const INDENT: &str = "    ";
        let width = self.width.unwrap_or(usize::MAX);
        let begin = text.len() - text.trim_start().len();
        let mut line = text[..begin].to_owned();
        let mut is_empty = true;
        for word in text[begin..].split(' ') {
            if !is_empty && line.width() + 1 + word.width() > width {
                writeln!(out, "{line}")?;
                line = INDENT.to_owned();
                is_empty = true;
            }
            if !is_empty {
                line.push(' ');
            }
            line.push_str(word);
            is_empty = false;
        }
        writeln!(out, "{line}")
    }

    /// A line of its own.
    pub(crate) fn line(self, text: &str) -> String {
        self.cut(text, self.width.unwrap_or(usize::MAX))
    }
}

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
/// print, and as long as they are.
pub(crate) fn table(
    heads: &[&str],
    cells: &[Vec<String>],
    about: &str,
    names: &[Name<'_>],
    look: Look,
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
        heads.iter().enumerate().map(|(at, head)| head.len().max(cell_width(at))).collect();
    let split: Vec<(&str, &str)> =
        heads.iter().map(|head| head.rsplit_once('_').unwrap_or(("", head))).collect();
    let two_lines =
        split.iter().enumerate().map(|(at, (up, low))| up.len().max(low.len()).max(cell_width(at)));
    let two_lines: Vec<usize> = two_lines.collect();

    let stacked = !fits(total(&one_line, 1));
    let widths = if stacked { two_lines } else { one_line };
    let gap = if fits(total(&widths, GAP)) { GAP } else { 1 };
    let longest_name = shown.iter().map(|name| name.width()).max().unwrap_or(0).max(about.len());
    let below = !fits(total(&widths, gap) + GAP + longest_name);

    let beside = if below { "" } else { about };
    if stacked {
        line(split.iter().map(|(up, _)| *up), &widths, gap, "", out)?;
        line(split.iter().map(|(_, low)| *low), &widths, gap, beside, out)?;
    } else {
        line(heads.iter().copied(), &widths, gap, beside, out)?;
    }
    if below {
        writeln!(out, "{:INDENT$}{about}", "")?;
    }
    let room = width.unwrap_or(usize::MAX).saturating_sub(INDENT);
    for ((cells, shown), name) in cells.iter().zip(&shown).zip(names) {
        let cells = cells.iter().map(String::as_str);
        line(cells, &widths, gap, if below { "" } else { shown }, out)?;
        if below {
            writeln!(out, "{:INDENT$}{}", "", look.cut(shown, room))?;
        }
        for text in name.more {
            let text = if look.full { text.clone() } else { look.stack(text, room) };
            writeln!(out, "{:INDENT$}{text}", "")?;
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

/// At most `width` columns of the text; if something is missing, an ellipsis stands for it where it was: what a name begins and
/// ends with says most.
pub(crate) fn cut_middle(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let first = cut(text, room.div_ceil(2) + 1);
    let first = first.trim_end_matches('…');
    let (mut last, mut used) = (text.len(), first.width());
    for (at, c) in text.char_indices().rev() {
        used += c.width().unwrap_or(0);
        if used > room {
            break;
        }
        last = at;
    }
    format!("{first}…{}", &text[last..])
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_wide_loses_its_middle_and_never_more_than_it_must() {
        assert_eq!(cut_middle("pthread_mutex", 13), "pthread_mutex");
        assert_eq!(cut_middle("pthread_mutex", 9), "pthr…utex");
        assert_eq!(cut_middle("pthread_mutex", 8), "pthr…tex");
        assert_eq!(cut_middle("鎖の名前はとても長い", 9), "鎖の…長い");
        for (text, width) in
            [("鎖の名前はとても長い", 8), ("工🧵é🧵工🧵", 5), ("abc", 1), ("abc", 0), ("é́é́é́", 2)]
        {
            assert!(cut_middle(text, width).width() <= width.max(1), "{text} {width}");
        }
    }
}
