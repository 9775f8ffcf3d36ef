//! Rows for people, as they come: each column has its width from the start, and the last one takes what is left.

use std::io::Write;

use unicode_width::UnicodeWidthStr;

use super::{Cell, Field, Rows, Shown, Value, shown};
use crate::{error::AnalyzeError, layout::cut};

/// Between two columns.
const GAP: usize = 2;

/// What the last column should have at least.
const LAST: usize = 24;

pub(super) struct TextRows<'w> {
    columns: Vec<Option<Shown>>,
    widths: Vec<usize>,
    line: String,
    out: &'w mut (dyn Write + Send),
}

impl<'w> TextRows<'w> {
    pub(super) fn new(
        fields: &[Field],
        width: Option<usize>,
        out: &'w mut (dyn Write + Send),
    ) -> Result<Self, AnalyzeError> {
        let columns: Vec<Option<Shown>> = fields.iter().map(|field| field.shown.clone()).collect();
        let seen: Vec<&Shown> = columns.iter().flatten().collect();
        let but_last = seen.len().saturating_sub(1);
        let total = |wide: bool| -> usize {
            let of = |shown: &&Shown| if wide { shown.width.1 } else { shown.width.0 };
            seen[..but_last].iter().map(|shown| of(shown) + GAP).sum()
        };
        let wide = width.is_none_or(|width| total(true) + LAST <= width);
        let mut widths: Vec<usize> =
            seen.iter().map(|shown| if wide { shown.width.1 } else { shown.width.0 }).collect();
        if let Some(last) = widths.last_mut() {
            *last = width.map_or(usize::MAX, |width| width.saturating_sub(total(wide)).max(8));
        }
        let heads: Vec<String> = seen.iter().map(|shown| shown.head.clone().into_owned()).collect();
        let mut rows = Self { columns, widths, line: String::new(), out };
        rows.write(&heads)?;
        Ok(rows)
    }

    fn write(&mut self, cells: &[String]) -> Result<(), AnalyzeError> {
        self.line.clear();
        let values = self.columns.iter().flatten().map(|shown| shown.value);
        for (at, ((cell, width), value)) in cells.iter().zip(&self.widths).zip(values).enumerate() {
            let cell = cut(cell, *width);
            let is_last = at + 1 == self.widths.len();
            let room = if is_last { 0 } else { width.saturating_sub(cell.width()) };
            let is_text = matches!(value, Value::Text | Value::Place);
            let (before, after) = if is_text { (0, room) } else { (room, 0) };
            self.line.extend(std::iter::repeat_n(' ', before));
            self.line.push_str(&cell);
            self.line.extend(std::iter::repeat_n(' ', if is_last { 0 } else { after + GAP }));
        }
        let line = self.line.trim_end();
        writeln!(self.out, "{line}").map_err(AnalyzeError::Write)
    }
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
