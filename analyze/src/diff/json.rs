//! The comparison as JSON, with both trust blocks. Changes are parts of 1: 0.2 is a fifth more.

use std::io::Write;

use super::Diff;
use crate::{AnalyzeError, report::json::write_value};

/// Writes it, and a line end.
///
/// # Errors
///
/// [`AnalyzeError::Write`] with the cause that `out` gave.
pub fn write(diff: &Diff, out: &mut (impl Write + ?Sized)) -> Result<(), AnalyzeError> {
    write_value(diff, out)
}
