//! Rows as an Arrow IPC file, also called Feather: 64-bit integers and text, everything nullable, not compressed.

use std::io::Write;

use arrow_ipc::writer::FileWriter;
use arrow_schema::ArrowError;

use super::{Cell, Field, Rows, batch::Batch};
use crate::error::AnalyzeError;

pub(super) struct ArrowRows<'w> {
    batch: Batch,
    writer: FileWriter<&'w mut (dyn Write + Send)>,
}

impl<'w> ArrowRows<'w> {
    pub(super) fn new(fields: &[Field], out: &'w mut (dyn Write + Send)) -> Result<Self, AnalyzeError> {
        let batch = Batch::new(fields);
        let writer = FileWriter::try_new(out, &batch.schema()).map_err(cause)?;
        Ok(Self { batch, writer })
    }

    fn encode(&mut self) -> Result<(), AnalyzeError> {
        match self.batch.take()? {
            Some(batch) => self.writer.write(&batch).map_err(cause),
            None => Ok(()),
        }
    }
}

impl Rows for ArrowRows<'_> {
    fn push(&mut self, cells: &[Cell<'_>]) -> Result<(), AnalyzeError> {
        if self.batch.push(cells) { self.encode() } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<(), AnalyzeError> {
        self.encode()?;
        self.writer.finish().map_err(cause)?;
        self.writer.get_mut().flush().map_err(AnalyzeError::Write)
    }
}

/// An error of the output is told from one of the encoder.
fn cause(error: ArrowError) -> AnalyzeError {
    match error {
        ArrowError::IoError(_, error) => AnalyzeError::Write(error),
        other => AnalyzeError::Compute(other.into()),
    }
}
