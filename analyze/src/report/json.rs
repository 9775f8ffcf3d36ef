//! The report as JSON: the rows with their columns and keys, the totals, and the trust block. Null is not measured.

use std::io::Write;

use serde::Serialize;

use super::Report;
use crate::{error::AnalyzeError, names};

/// Writes the report, and a line end.
///
/// # Errors
///
/// [`AnalyzeError::Write`] with the cause that `out` gave.
pub fn write(report: &Report, out: &mut (impl Write + ?Sized)) -> Result<(), AnalyzeError> {
    write_value(report, out)
}

/// Writes anything as JSON that is safe to print. Programs read the same strings as with plain JSON: what could drive a
/// terminal is written as `\uXXXX`.
pub(crate) fn write_value(
    value: &impl Serialize,
    out: &mut (impl Write + ?Sized),
) -> Result<(), AnalyzeError> {
    let text = serde_json::to_string_pretty(value).map_err(|error| AnalyzeError::Compute(error.into()))?;
    let mut safe = String::with_capacity(text.len() + 1);
    // The only line feeds are those of the layout: serde_json escapes C0 in strings.
    for (at, line) in text.split('\n').enumerate() {
        if at > 0 {
            safe.push('\n');
        }
        write_safe(line, &mut safe);
    }
    safe.push('\n');
    out.write_all(safe.as_bytes()).map_err(AnalyzeError::Write)
}

/// Adds JSON in which what could drive a terminal is written as `\uXXXX`.
pub(crate) fn write_safe(json: &str, out: &mut String) {
    for c in json.chars() {
        if names::is_unsafe(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
}
