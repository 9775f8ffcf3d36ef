//! The histograms as JSON, with the trust block.

use std::io::Write;

use super::Histogram;
use crate::{AnalyzeError, report::json::write_value};

/// Writes them, and a line end.
///
/// # Errors
///
/// [`AnalyzeError::Write`] with the cause that `out` gave.
pub fn write(histogram: &Histogram, out: &mut (impl Write + ?Sized)) -> Result<(), AnalyzeError> {
    write_value(histogram, out)
}
