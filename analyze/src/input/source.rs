//! Sources of events: a trace file, or events in memory.
//!
//! Readers take row groups from an [`EventSource`] and do not know where they come from, so tests run the real readers without
//! a file.

use trace_format::{Batch, FormatError, Trace};

/// The batches of a row group.
pub(crate) type Batches<'a> = Box<dyn Iterator<Item = Result<Batch, FormatError>> + 'a>;

/// Events in row groups, in the order in which they were recorded.
pub(crate) trait EventSource: Sync {
    /// Returns the number of row groups.
    fn row_groups(&self) -> usize;

    /// Returns the batches of the row group `index`. Columns other than `columns`, `ts_ns` and `event` may be null.
    fn row_group(&self, index: usize, columns: &[&str]) -> Result<Batches<'_>, FormatError>;
}

impl EventSource for Trace {
    fn row_groups(&self) -> usize {
        Self::row_groups(self)
    }

    fn row_group(&self, index: usize, columns: &[&str]) -> Result<Batches<'_>, FormatError> {
        Ok(Box::new(Self::row_group(self, index, columns)?))
    }
}
