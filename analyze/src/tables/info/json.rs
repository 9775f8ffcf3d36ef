//! The description of a trace as JSON, with the fields of [`Info`].

use std::io::Write;

use super::Info;
use crate::{error::AnalyzeError, output::json};

/// Writes it, and a line end.
///
/// # Errors
///
/// [`AnalyzeError::Write`] with the cause that `out` gave.
pub fn write(info: &Info, out: &mut (impl Write + ?Sized)) -> Result<(), AnalyzeError> {
    json::write_value(info, out)
}
