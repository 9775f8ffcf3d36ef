//! Rows as a table of GitHub's Markdown: what people see, columns of numbers to the right.

use std::io::{self, Write};

use super::{Cell, Field, Rows, Shown, Value, shown};
use crate::error::AnalyzeError;

pub(super) struct MarkdownRows<'w> {
    shown: Vec<Option<Shown>>,
    out: &'w mut (dyn Write + Send),
}

impl<'w> MarkdownRows<'w> {
    pub(super) fn new(fields: &[Field], out: &'w mut (dyn Write + Send)) -> Result<Self, AnalyzeError> {
        let shown: Vec<Option<Shown>> = fields.iter().map(|field| field.shown.clone()).collect();
        let heads = shown.iter().flatten().map(|shown| escaped(&shown.head));
        line(heads, out).map_err(AnalyzeError::Write)?;
        let rule =
            |shown: &Shown| if matches!(shown.value, Value::Text | Value::Place) { "---" } else { "---:" };
        line(shown.iter().flatten().map(|shown| rule(shown).to_owned()), out).map_err(AnalyzeError::Write)?;
        Ok(Self { shown, out })
    }
}

impl Rows for MarkdownRows<'_> {
    fn push(&mut self, cells: &[Cell<'_>]) -> Result<(), AnalyzeError> {
        let cells = cells.iter().zip(&self.shown);
        let cells = cells.filter_map(|(cell, how)| Some(escaped(&shown(cell, how.as_ref()?.value))));
        line(cells, self.out).map_err(AnalyzeError::Write)
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

/// A bar would end the cell, and the rest would become markup.
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
