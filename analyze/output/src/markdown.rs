//! Writes rows as a table in GitHub's Markdown: the columns that people see, numbers aligned to the right.

use std::io::{self, Write};

use super::{Cell, Field, Kind, Rows};
use crate::error::AnalyzeError;

pub(super) struct MarkdownRows<'w> {
    /// The kinds of the columns that people see; `None` for others.
    kinds: Vec<Option<Kind>>,
    out: &'w mut (dyn Write + Send),
}

impl<'w> MarkdownRows<'w> {
    pub(super) fn new(fields: &[Field], out: &'w mut (dyn Write + Send)) -> Result<Self, AnalyzeError> {
        let shown = || fields.iter().filter(|field| field.is_shown);
        line(shown().map(|field| escaped(&field.heading)), out).map_err(AnalyzeError::Write)?;
        let rule = |field: &Field| if field.kind.is_text() { "---" } else { "---:" };
        line(shown().map(|field| rule(field).to_owned()), out).map_err(AnalyzeError::Write)?;
        Ok(Self { kinds: fields.iter().map(|field| field.is_shown.then_some(field.kind)).collect(), out })
    }
}

impl Rows for MarkdownRows<'_> {
    fn push(&mut self, cells: &[Cell<'_>]) -> Result<(), AnalyzeError> {
        let cells = cells.iter().zip(&self.kinds);
        line(cells.filter_map(|(cell, kind)| Some(escaped(&cell.show((*kind)?)))), self.out)
            .map_err(AnalyzeError::Write)
    }

    fn finish(&mut self) -> Result<(), AnalyzeError> {
        self.out.flush().map_err(AnalyzeError::Write)
    }
}

fn line(cells: impl Iterator<Item = String>, out: &mut (dyn Write + Send)) -> io::Result<()> {
    for cell in cells {
        write!(out, "| {cell} ")?;
    }
    writeln!(out, "|")
}

/// Escapes the characters that would end the cell or become markup.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '|' | '\\' | '`' | '*' | '_' | '<' | '>' | '[' | ']' | '#') {
            safe.push('\\');
        }
        safe.push(c);
    }
    safe
}
