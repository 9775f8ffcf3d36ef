//! Rows as JSON lines: an object each, with every field.

use std::io::Write;

use super::{Cell, Field, Rows};
use crate::{error::AnalyzeError, report::json::write_safe};

pub(super) struct JsonLines<'w> {
    /// `{"first":`, `,"second":`, ...
    names: Vec<String>,
    line: String,
    out: &'w mut (dyn Write + Send),
}

impl<'w> JsonLines<'w> {
    pub(super) fn new(fields: &[Field], out: &'w mut (dyn Write + Send)) -> Self {
        let name = |(at, field): (usize, &Field)| {
            let sign = if at == 0 { '{' } else { ',' };
            format!("{sign}\"{}\":", field.name)
        };
        Self { names: fields.iter().enumerate().map(name).collect(), line: String::new(), out }
    }
}

impl Rows for JsonLines<'_> {
    fn push(&mut self, cells: &[Cell<'_>]) -> Result<(), AnalyzeError> {
        self.line.clear();
        for (name, cell) in self.names.iter().zip(cells) {
            self.line.push_str(name);
            match cell {
                Cell::Null => self.line.push_str("null"),
                Cell::Int(number) => self.line.push_str(&number.to_string()),
                Cell::Text(text) => {
                    let text = serde_json::to_string(text).map_err(|e| AnalyzeError::Compute(e.into()))?;
                    write_safe(&text, &mut self.line);
                }
            }
        }
        self.line.push_str("}\n");
        self.out.write_all(self.line.as_bytes()).map_err(AnalyzeError::Write)
    }

    fn finish(&mut self) -> Result<(), AnalyzeError> {
        self.out.flush().map_err(AnalyzeError::Write)
    }
}
