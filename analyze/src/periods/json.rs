//! The timeline as JSON: keys with their cells by number of the period, and the trust block.

use std::io::Write;

use super::Timeline;
use crate::{AnalyzeError, report::json::write_value};

/// Writes it, and a line end.
///
/// # Errors
///
/// [`AnalyzeError::Write`] with the cause that `out` gave.
pub fn write(timeline: &Timeline, out: &mut (impl Write + ?Sized)) -> Result<(), AnalyzeError> {
    write_value(timeline, out)
}
