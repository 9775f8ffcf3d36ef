//! The table as JSON: rows with holder, waiter and stacks, the totals, and the trust block.

use std::io::Write;

use super::Blame;
use crate::{error::AnalyzeError, report::json};

/// Writes the table, and a line end.
///
/// # Errors
///
/// [`AnalyzeError::Write`] with the cause that `out` gave.
pub fn write(blame: &Blame, out: &mut (impl Write + ?Sized)) -> Result<(), AnalyzeError> {
    json::write_value(blame, out)
}
