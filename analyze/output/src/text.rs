//! Writes rows as text while they are read. The first rows decide how wide each column is, and the last
//! column takes the rest.

use std::io::Write;

use unicode_width::UnicodeWidthStr;

use super::{Cell, Field, Kind, Rows};
use crate::{
    error::AnalyzeError,
    layout::{Paint, TextStyle},
    short::short,
};

/// Spaces between two columns.
const GAP: usize = 2;

/// The least width of the last column.
const LAST: usize = 18;

/// The number of rows that decide about widths.
const SAMPLE: usize = 64;

pub(super) struct TextRows<'w> {
    /// The fields that are shown.
    fields: Vec<Field>,
    /// For each field, whether it is shown.
    are_shown: Vec<bool>,
    style: TextStyle,
    /// The first rows, until the widths are known.
    held: Vec<Vec<String>>,
    /// The width of each column, when known.
    widths: Option<Vec<usize>>,
    line: String,
    out: &'w mut (dyn Write + Send),
}

impl<'w> TextRows<'w> {
    pub(super) fn new(fields: &[Field], style: TextStyle, out: &'w mut (dyn Write + Send)) -> Self {
        let are_shown = fields.iter().map(|field| field.is_shown).collect();
        let fields = fields.iter().filter(|field| field.is_shown).cloned().collect();
        Self { fields, are_shown, style, held: Vec::new(), widths: None, line: String::new(), out }
    }

    /// Fixes the widths, and writes the headings and the rows so far.
    fn start(&mut self) -> Result<(), AnalyzeError> {
        let needed = |at: usize| {
            let cells = self.held.iter().map(|row| row[at].width());
            cells.max().unwrap_or(0).max(self.fields[at].heading.width())
        };
        let needed: Vec<usize> = (0..self.fields.len()).map(needed).collect();
        // Without a terminal, rows that come later may be wider than the first ones.
        let needed = if self.style.is_terminal { needed } else { vec![usize::MAX; needed.len()] };
        let mut widths = widths(&self.fields, &needed, self.style.width);
        if let Some((last, others)) = widths.split_last_mut() {
            let before: usize = others.iter().map(|width| width + GAP).sum();
            *last = self.style.width.map_or(usize::MAX, |width| width.saturating_sub(before).max(8));
        }
        self.widths = Some(widths);
        let headings: Vec<String> =
            self.fields.iter().map(|field| field.heading.clone().into_owned()).collect();
        self.write(&headings, true)?;
        std::mem::take(&mut self.held).iter().try_for_each(|row| self.write(row, false))
    }

    fn write(&mut self, cells: &[String], is_heading: bool) -> Result<(), AnalyzeError> {
        self.line.clear();
        let widths = self.widths.as_deref().unwrap_or_default();
        for (at, ((cell, width), field)) in cells.iter().zip(widths).zip(&self.fields).enumerate() {
            let cell = self.style.cut(without_function(cell, field.kind, *width), *width);
            let is_last = at + 1 == widths.len();
            let room = if is_last { 0 } else { width.saturating_sub(cell.width()) };
            let (before, after) = if field.kind.is_text() { (0, room) } else { (room, 0) };
            self.line.extend(std::iter::repeat_n(' ', before));
            self.line.push_str(&cell);
            self.line.extend(std::iter::repeat_n(' ', if is_last { 0 } else { after + GAP }));
        }
        let line = self.line.trim_end();
        let line = if is_heading { self.style.paint(Paint::Bold, line) } else { line.to_owned() };
        writeln!(self.out, "{line}").map_err(AnalyzeError::Write)
    }
}

/// Returns the file and line of `main.rs:7 (run)` where both do not fit: the line leads to the function.
fn without_function(cell: &str, kind: Kind, width: usize) -> &str {
    match cell.split_once(" (") {
        Some((line, _)) if kind == Kind::Site && cell.width() > width && line.contains(':') => line,
        _ => cell,
    }
}

/// Returns the widths of the columns: at most as wide as `needed`. Room beyond their least widths is shared
/// among those that are not yet at their greatest.
fn widths(columns: &[Field], needed: &[usize], width: Option<usize>) -> Vec<usize> {
    let but_last = columns.len().saturating_sub(1);
    let mut widths: Vec<usize> =
        columns.iter().zip(needed).map(|(field, needed)| field.width.0.min(*needed)).collect();
    let greatest: Vec<usize> =
        columns.iter().zip(needed).map(|(field, needed)| field.width.1.min(*needed)).collect();
    let least: usize = widths[..but_last].iter().map(|width| width + GAP).sum();
    let mut spare = width.map_or(usize::MAX, |width| width.saturating_sub(least + LAST));
    while spare > 0 {
        let before = spare;
        for (width, greatest) in widths[..but_last].iter_mut().zip(&greatest) {
            if *width < *greatest && spare > 0 {
                *width += 1;
                spare -= 1;
            }
        }
        if spare == before {
            break;
        }
    }
    widths
}

impl Rows for TextRows<'_> {
    fn push(&mut self, cells: &[Cell<'_>]) -> Result<(), AnalyzeError> {
        let shown = cells.iter().zip(&self.are_shown).filter(|(_, is_shown)| **is_shown);
        let show = |((cell, _), field): ((&Cell<'_>, _), &Field)| {
            let text = cell.show(field.kind);
            if field.kind.is_text() && !self.style.full { short(&text) } else { text }
        };
        let row: Vec<String> = shown.zip(&self.fields).map(show).collect();
        if self.widths.is_some() {
            return self.write(&row, false);
        }
        self.held.push(row);
        // A pipe gets each row at once.
        if self.style.is_terminal && self.held.len() < SAMPLE { Ok(()) } else { self.start() }
    }

    fn finish(&mut self) -> Result<(), AnalyzeError> {
        if self.widths.is_none() {
            self.start()?;
        }
        self.out.flush().map_err(AnalyzeError::Write)
    }
}
