//! Tables for people: columns of numbers, then a name, as wide as the terminal.
//!
//! The name is the last column. Where it does not fit into the width, it goes below the numbers of its row, so that a
//! terminal of 80 columns shows all columns and the whole name. Where the headings are what is too wide, they take two
//! lines. Names are shortened as people read them, and what is still too wide loses its middle, unless they are wanted in full.
//! Without a width nothing is cut and nothing is moved.

use std::io::{self, Write};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::Order;
use crate::{input::names::short, output::units};

/// The style of a table for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextStyle {
    /// The width of the terminal, in columns; `None` if there is none.
    pub width: Option<usize>,
    /// Whether names are neither shortened nor cut.
    pub full: bool,
    /// Whether a person reads the text on a terminal: the column that rows are sorted by is marked, and hidden rows are explained.
    pub is_terminal: bool,
    /// Whether headings, warnings and notes have colours.
    pub color: bool,
    /// The notes around the rows.
    pub notes: Notes,
}

/// The warnings above the rows and the trust block below them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Notes {
    /// All lines.
    #[default]
    Full,
    /// Warnings, and one line of the trust block.
    Folded,
    /// None: the text has the rows alone.
    None,
}

/// A colour of text on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    /// A heading.
    Bold,
    /// A note.
    Dim,
    /// A warning.
    Yellow,
    /// Anything else.
    Plain,
}

impl From<Option<usize>> for TextStyle {
    fn from(width: Option<usize>) -> Self {
        Self { width, ..Self::default() }
    }
}

impl TextStyle {
    /// These names as they are shown, before they are cut.
    pub(crate) fn names<'a>(self, names: impl Iterator<Item = &'a str>) -> Vec<String> {
        let names: Vec<&str> = names.collect();
        if self.full { names.into_iter().map(str::to_owned).collect() } else { short::all_short(&names) }
    }

    /// Cuts the text to `width` columns, unless full names are asked for.
    pub(crate) fn cut(self, text: &str, width: usize) -> String {
        if self.full || text.width() <= width {
            return text.to_owned();
        }
        // The name of a function is more useful than its namespace.
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

    /// Returns the lines of a name: a stack that is too wide goes on with its callers, another name loses its middle.
    fn folded(self, name: &str, width: usize) -> Vec<String> {
        if self.full || name.width() <= width {
            return vec![name.to_owned()];
        }
        let mut lines: Vec<String> = Vec::new();
        for (at, frame) in name.split(STACK_SEPARATOR).enumerate() {
            let frame = if at == 0 { frame.to_owned() } else { format!("< {frame}") };
            match lines.last_mut() {
                Some(line) if line.width() + 1 + frame.width() <= width => {
                    line.push(' ');
                    line.push_str(&frame);
                }
                _ => lines.push(self.cut(&frame, width)),
            }
        }
        lines
    }

    /// Returns the text in a colour, if the style has colours.
    pub(crate) fn paint(self, paint: Paint, text: &str) -> String {
        let code = match paint {
            Paint::Bold => 1,
            Paint::Dim => 2,
            Paint::Yellow => 33,
            Paint::Plain => return text.to_owned(),
        };
        if self.color && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Returns the heading of a column, with a mark if rows are sorted by it.
    pub(crate) fn heading(self, heading: &str, order: Option<Order>) -> String {
        match order.filter(|_| self.is_terminal) {
            None => heading.to_owned(),
            Some(Order::Descending) => format!("{heading}▼"),
            Some(Order::Ascending) => format!("{heading}▲"),
        }
    }

    /// Writes a warning above the rows, unless the text has the rows alone. The parts of one that is too long begin a line each.
    pub(crate) fn warning(self, warning: &str, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        match self.notes {
            Notes::None => Ok(()),
            Notes::Full | Notes::Folded => {
                let is_long = self.width.is_some_and(|width| warning.width() > width);
                for part in warning.split("; ").filter(|_| is_long) {
                    self.wrapped_in(Paint::Yellow, part, out)?;
                }
                if !is_long {
                    self.wrapped_in(Paint::Yellow, warning, out)?;
                }
                writeln!(out)
            }
        }
    }

    /// The line, on several where it does not fit into the width.
    pub(crate) fn wrapped(self, text: &str, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        self.wrapped_in(Paint::Dim, text, out)
    }

    /// As [`wrapped`](Self::wrapped), in this colour.
    pub(crate) fn wrapped_in(
        self,
        paint: Paint,
        text: &str,
        out: &mut (impl Write + ?Sized),
    ) -> io::Result<()> {
        let paint = |line: &str| self.paint(paint, line);
        const INDENT: &str = "    ";
        let width = self.width.unwrap_or(usize::MAX);
        let begin = text.len() - text.trim_start().len();
        let mut line = text[..begin].to_owned();
        let mut is_empty = true;
        for word in text[begin..].split(' ') {
            if !is_empty && line.width() + 1 + word.width() > width {
                writeln!(out, "{}", paint(&line))?;
                line = INDENT.to_owned();
                is_empty = true;
            }
            if !is_empty {
                line.push(' ');
            }
            line.push_str(word);
            is_empty = false;
        }
        writeln!(out, "{}", paint(&line))
    }

    /// A line of its own.
    pub(crate) fn line(self, text: &str) -> String {
        self.cut(text, self.width.unwrap_or(usize::MAX))
    }
}

/// Between two columns; one where that makes them fit.
pub(super) const GAP: usize = 2;

/// Between a function and its caller.
pub(crate) const STACK_SEPARATOR: &str = " < ";

/// Before a name that stands below its numbers.
const INDENT: usize = 4;

/// The name of a row.
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

/// Writes the number of rows that are not shown, if there are any, and what they have in common, which may be empty.
pub(crate) fn hidden(
    rows: usize,
    attribute: &str,
    style: TextStyle,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    more(rows, "row", attribute, style, out)
}

/// Writes the number of things that are not shown, if there are any, and what they have in common.
pub(crate) fn more(
    count: usize,
    what: &str,
    attribute: &str,
    style: TextStyle,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    if count == 0 || style.notes == Notes::None {
        return Ok(());
    }
    let (ending, them) = if count == 1 { ("", "it") } else { ("s", "them") };
    let count = units::exact(i64::try_from(count).unwrap_or(i64::MAX));
    write_hidden(&format!("... {count} more {what}{ending}{attribute}"), them, style, out)
}

/// Writes that there are more rows, of an unknown number.
pub(crate) fn hidden_somewhere(style: TextStyle, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
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
    write_line(&style.paint(Paint::Dim, &format!("{hidden}{way}")), out)
}

/// Writes the number of columns for which the terminal has no room, if there are any.
pub(crate) fn hidden_columns(
    count: usize,
    style: TextStyle,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    let (ending, them) = if count == 1 { ("", "it") } else { ("s", "them") };
    let text = format!("... {count} more column{ending}; --full or a wider terminal shows {them}");
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

/// Returns at most `width` columns of the text. An ellipsis replaces its middle, because the start and the end of a name identify it
/// best.
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
    fn a_stack_that_is_too_wide_takes_several_lines_and_keeps_its_functions() {
        let style = TextStyle::default();
        let stack = "a.c:1 (first) < b.c:22 (second) < third (mutex:m)";
        assert_eq!(style.folded(stack, 80), [stack]);
        assert_eq!(style.folded(stack, 32), ["a.c:1 (first) < b.c:22 (second)", "< third (mutex:m)"]);
        assert_eq!(style.folded(stack, 20), ["a.c:1 (first)", "< b.c:22 (second)", "< third (mutex:m)"]);
    }

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
