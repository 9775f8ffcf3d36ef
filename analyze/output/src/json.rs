//! Writes JSON that is safe to print: a document of any value, or rows as one object per line.

use std::io::Write;

use serde::Serialize;

use super::{Cell, Field, Rows};
use crate::error::AnalyzeError;
use trace_format::text;

/// Writes a value as a JSON document, and a line end. Programs read the same strings as with plain JSON: a
/// character that could drive a terminal is written as `\uXXXX`.
pub fn write_value(value: &impl Serialize, out: &mut (impl Write + ?Sized)) -> Result<(), AnalyzeError> {
    let text = serde_json::to_string_pretty(value).map_err(|error| AnalyzeError::Compute(error.into()))?;
    let mut safe = String::with_capacity(text.len() + 1);
    // Only the layout has line feeds: serde_json escapes C0 in strings.
    for line in text.lines() {
        write_safe(line, &mut safe);
        safe.push('\n');
    }
    out.write_all(safe.as_bytes()).map_err(AnalyzeError::Write)
}

/// Appends JSON, with a character that could drive a terminal written as `\uXXXX`.
pub fn write_safe(json: &str, out: &mut String) {
    for c in json.chars() {
        if text::is_unsafe(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
}

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
