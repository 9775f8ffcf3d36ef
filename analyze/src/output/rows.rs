//! The interface of a format: it takes one row of cells after the other.

use super::Cell;
use crate::error::AnalyzeError;

/// Takes the rows of a table.
pub trait Rows {
    /// Adds a row: a cell for each field.
    ///
    /// # Errors
    ///
    /// [`AnalyzeError::Write`] with the error of the output.
    fn push(&mut self, cells: &[Cell<'_>]) -> Result<(), AnalyzeError>;

    /// Writes the end of the table.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    fn finish(&mut self) -> Result<(), AnalyzeError>;
}
