//! Rows for people, as they come: each column has its width from the start, and the last one takes what is left.

use std::io::Write;

use unicode_width::UnicodeWidthStr;

use super::{Cell, Field, Rows, Shown, Value, shown};
use crate::{error::AnalyzeError, layout::Look, names::short::short};

/// Between two columns.
const GAP: usize = 2;

/// What the last column should have at least.
const LAST: usize = 24;

pub(super) struct TextRows<'w> {
    columns: Vec<Option<Shown>>,
    widths: Vec<usize>,
    look: Look,
    line: String,
    out: &'w mut (dyn Write + Send),
}

impl<'w> TextRows<'w> {
    pub(super) fn new(
        fields: &[Field],
        look: Look,
        out: &'w mut (dyn Write + Send),
    ) -> Result<Self, AnalyzeError> {
        let width = look.width;
        let columns: Vec<Option<Shown>> = fields.iter().map(|field| field.shown.clone()).collect();
        let seen: Vec<&Shown> = columns.iter().flatten().collect();
        let mut widths = widths(&seen, width);
        if let Some((last, others)) = widths.split_last_mut() {
            let before: usize = others.iter().map(|width| width + GAP).sum();
            *last = width.map_or(usize::MAX, |width| width.saturating_sub(before).max(8));
        }
        let heads: Vec<String> = seen.iter().map(|shown| shown.head.clone().into_owned()).collect();
        let mut rows = Self { columns, widths, look, line: String::new(), out };
        rows.write(&heads)?;
        Ok(rows)
    }

    fn write(&mut self, cells: &[String]) -> Result<(), AnalyzeError> {
        self.line.clear();
        let values = self.columns.iter().flatten().map(|shown| shown.value);
        for (at, ((cell, width), value)) in cells.iter().zip(&self.widths).zip(values).enumerate() {
            let is_text = matches!(value, Value::Text | Value::Place);
            let cell = if is_text && !self.look.full { short(cell) } else { cell.clone() };
            let cell = self.look.cut(&cell, *width);
            let is_last = at + 1 == self.widths.len();
            let room = if is_last { 0 } else { width.saturating_sub(cell.width()) };
            let (before, after) = if is_text { (0, room) } else { (room, 0) };
            self.line.extend(std::iter::repeat_n(' ', before));
            self.line.push_str(&cell);
            self.line.extend(std::iter::repeat_n(' ', if is_last { 0 } else { after + GAP }));
        }
        let line = self.line.trim_end();
        writeln!(self.out, "{line}").map_err(AnalyzeError::Write)
    }
}

/// How wide columns are: what the terminal has beyond their least widths and what the last one should have goes to those that
/// gain by it.
fn widths(columns: &[&Shown], width: Option<usize>) -> Vec<usize> {
    let but_last = &columns[..columns.len().saturating_sub(1)];
    let least: usize = but_last.iter().map(|shown| shown.width.0 + GAP).sum();
    let mut spare = width.map_or(usize::MAX, |width| width.saturating_sub(least + LAST));
    let mut widths: Vec<usize> = columns.iter().map(|shown| shown.width.0).collect();
    while spare > 0 {
        let before = spare;
        for (shown, width) in but_last.iter().zip(&mut widths) {
            if *width < shown.width.1 && spare > 0 {
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
        let seen = cells.iter().zip(&self.columns);
        let seen: Vec<String> =
            seen.filter_map(|(cell, how)| Some(shown(cell, how.as_ref()?.value))).collect();
        self.write(&seen)
    }

    fn finish(&mut self) -> Result<(), AnalyzeError> {
        self.out.flush().map_err(AnalyzeError::Write)
    }
}
