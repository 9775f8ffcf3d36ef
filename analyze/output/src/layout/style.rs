//! The style of text for people: shortens, cuts, folds, wraps and colours texts as the reader's terminal asks
//! for.

use std::io::{self, Write};

use trace_format::text::words;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::{Order, short};

/// Between a function and its caller.
pub const STACK_SEPARATOR: &str = " < ";

/// The style of a table for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextStyle {
    /// The width of the terminal, in columns; `None` if there is none.
    pub width: Option<usize>,
    /// Whether names are neither shortened nor cut.
    pub full: bool,
    /// Whether a person reads the text on a terminal: the column that rows are sorted by is marked, and
    /// hidden rows are explained.
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
pub enum Paint {
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
    pub fn names<'a>(self, names: impl Iterator<Item = &'a str>) -> Vec<String> {
        let names: Vec<&str> = names.collect();
        if self.full { names.into_iter().map(str::to_owned).collect() } else { short::all_short(&names) }
    }

    /// Cuts the text to `width` columns, unless full names are asked for.
    pub fn cut(self, text: &str, width: usize) -> String {
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
    pub(super) fn stack(self, text: &str, width: usize) -> String {
        let text = short::short(text);
        if text.width() <= width { text } else { cut(&short::without_namespaces(&text, 2), width) }
    }

    /// Returns the lines of a name: a stack that is too wide goes on with its callers, another name loses its
    /// middle.
    pub(super) fn folded(self, name: &str, width: usize) -> Vec<String> {
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
    pub fn paint(self, paint: Paint, text: &str) -> String {
        let code = match paint {
            Paint::Bold => 1,
            Paint::Dim => 2,
            Paint::Yellow => 33,
            Paint::Plain => return text.to_owned(),
        };
        if self.color && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Returns the heading of a column, with a mark if rows are sorted by it.
    pub fn heading(self, heading: &str, order: Option<Order>) -> String {
        match order.filter(|_| self.is_terminal) {
            None => heading.to_owned(),
            Some(Order::Descending) => format!("{heading}▼"),
            Some(Order::Ascending) => format!("{heading}▲"),
        }
    }

    /// Writes a warning above the rows, unless the text has the rows alone. The parts of one that is too long
    /// begin a line each.
    pub fn warning(self, warning: &str, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
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
    pub fn wrapped(self, text: &str, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        self.wrapped_in(Paint::Dim, text, out)
    }

    /// As [`wrapped`](Self::wrapped), in this colour.
    pub fn wrapped_in(self, paint: Paint, text: &str, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        let begin = text.len() - text.trim_start().len();
        self.fold(paint, &text[..begin], &text[begin..], 4, out)
    }

    /// Writes a text after a label, on several lines where it does not fit into the width. All lines of the
    /// text begin in the same column.
    pub fn labelled(self, label: &str, text: &str, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        self.fold(Paint::Plain, label, text, label.width(), out)
    }

    /// Breaks a text between words, and never a command in backquotes.
    fn fold(
        self,
        paint: Paint,
        label: &str,
        text: &str,
        indent: usize,
        out: &mut (impl Write + ?Sized),
    ) -> io::Result<()> {
        let paint = |line: &str| self.paint(paint, line);
        let width = self.width.unwrap_or(usize::MAX);
        let mut line = label.to_owned();
        let mut is_empty = true;
        for word in words(text) {
            if !is_empty && line.width() + 1 + word.width() > width {
                writeln!(out, "{}", paint(&line))?;
                line = " ".repeat(indent);
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
    pub fn line(self, text: &str) -> String {
        self.cut(text, self.width.unwrap_or(usize::MAX))
    }
}

/// Returns at most `width` columns of the text. An ellipsis replaces its middle, because the start and the
/// end of a name identify it best.
fn cut_middle(text: &str, width: usize) -> String {
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
    fn a_labelled_text_keeps_its_column_and_its_commands_whole() {
        let mut out = Vec::new();
        let style = TextStyle { width: Some(24), ..TextStyle::default() };
        style.labelled("1. ", "record it again: `klock record ./prog`, as root", &mut out).unwrap();
        let lines = "1. record it again:\n   `klock record ./prog`,\n   as root\n";
        assert_eq!(String::from_utf8(out).unwrap(), lines);
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
