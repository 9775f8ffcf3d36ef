//! An output that keeps its first error until the end: the engine hands out intervals without a way to fail.

use std::io::{self, Write};

use output::error::AnalyzeError;

/// The output of an exporter that writes while it reads.
pub(super) struct Stream<'w> {
    out: &'w mut (dyn Write + Send),
    error: Option<io::Error>,
}

impl<'w> Stream<'w> {
    pub(super) fn new(out: &'w mut (dyn Write + Send)) -> Self {
        Self { out, error: None }
    }

    /// Writes the bytes, unless an earlier write has failed.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        if self.error.is_none() {
            self.error = self.out.write_all(bytes).err();
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    /// Returns the first error, if there was one.
    pub(super) fn finish(self) -> Result<(), AnalyzeError> {
        self.error.map_or_else(|| self.out.flush(), Err).map_err(AnalyzeError::Write)
    }
}
