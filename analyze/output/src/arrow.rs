//! Writes rows as an Arrow IPC file (Feather) or stream: nullable 64-bit integers and text, not compressed.
//!
//! A file ends with an index and must be whole before it is read; a stream is read batch by batch, from a pipe.

use std::io::Write;

use arrow_array::RecordBatch;
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::{ArrowError, Schema};

use super::{Cell, Field, Rows, batch::Batch};
use crate::error::AnalyzeError;

/// A destination of bytes.
type Out<'w> = &'w mut (dyn Write + Send);

/// A writer of batches.
pub(super) trait Batches<'w>: Sized {
    /// Writes the schema.
    fn start(out: Out<'w>, schema: &Schema) -> Result<Self, ArrowError>;
    /// Writes a batch.
    fn write(&mut self, batch: &RecordBatch) -> Result<(), ArrowError>;
    /// Writes the end.
    fn finish(&mut self) -> Result<(), ArrowError>;
    /// Returns the destination.
    fn out(&mut self) -> &mut Out<'w>;
}

/// Implements the trait for writers of the library, which share these methods but no trait.
macro_rules! batches {
    ($($writer:ident),+) => {$(
        impl<'w> Batches<'w> for $writer<Out<'w>> {
            fn start(out: Out<'w>, schema: &Schema) -> Result<Self, ArrowError> {
                Self::try_new(out, schema)
            }

            fn write(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
                Self::write(self, batch)
            }

            fn finish(&mut self) -> Result<(), ArrowError> {
                Self::finish(self)
            }

            fn out(&mut self) -> &mut Out<'w> {
                self.get_mut()
            }
        }
    )+};
}

batches!(FileWriter, StreamWriter);

pub(super) struct ArrowRows<W> {
    batch: Batch,
    writer: W,
}

impl<'w> ArrowRows<FileWriter<Out<'w>>> {
    pub(super) fn file(fields: &[Field], out: Out<'w>) -> Result<Self, AnalyzeError> {
        Self::new(fields, out)
    }
}

impl<'w> ArrowRows<StreamWriter<Out<'w>>> {
    pub(super) fn stream(fields: &[Field], out: Out<'w>) -> Result<Self, AnalyzeError> {
        Self::new(fields, out)
    }
}

impl<'w, W: Batches<'w>> ArrowRows<W> {
    fn new(fields: &[Field], out: Out<'w>) -> Result<Self, AnalyzeError> {
        let batch = Batch::new(fields);
        let writer = W::start(out, &batch.schema()).map_err(cause)?;
        Ok(Self { batch, writer })
    }

    fn encode(&mut self) -> Result<(), AnalyzeError> {
        match self.batch.take()? {
            Some(batch) => self.writer.write(&batch).map_err(cause),
            None => Ok(()),
        }
    }
}

impl<'w, W: Batches<'w>> Rows for ArrowRows<W> {
    fn push(&mut self, cells: &[Cell<'_>]) -> Result<(), AnalyzeError> {
        if self.batch.push(cells) { self.encode() } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<(), AnalyzeError> {
        self.encode()?;
        self.writer.finish().map_err(cause)?;
        self.writer.out().flush().map_err(AnalyzeError::Write)
    }
}

/// Distinguishes an error of the output from one of the encoder.
fn cause(error: ArrowError) -> AnalyzeError {
    match error {
        ArrowError::IoError(_, error) => AnalyzeError::Write(error),
        other => AnalyzeError::Compute(other.into()),
    }
}
