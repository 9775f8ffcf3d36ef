//! Writes rows as an Arrow IPC file (Feather) or stream: nullable 64-bit integers and text, not compressed.
//!
//! A file ends with an index and must be whole before it is read; a stream is read batch by batch, from a
//! pipe.

use std::io::Write;

use arrow_array::RecordBatchWriter;
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::{ArrowError, Schema};

use super::{
    Field,
    batch::{Batch, BatchRows},
};
use crate::error::AnalyzeError;

pub(super) fn file<'w>(
    fields: &[Field],
    out: &'w mut (dyn Write + Send),
) -> Result<BatchRows<'w>, AnalyzeError> {
    rows(fields, |schema| FileWriter::try_new(out, schema))
}

pub(super) fn stream<'w>(
    fields: &[Field],
    out: &'w mut (dyn Write + Send),
) -> Result<BatchRows<'w>, AnalyzeError> {
    rows(fields, |schema| StreamWriter::try_new(out, schema))
}

fn rows<'w, W: RecordBatchWriter + 'w>(
    fields: &[Field],
    start: impl FnOnce(&Schema) -> Result<W, ArrowError>,
) -> Result<BatchRows<'w>, AnalyzeError> {
    let batch = Batch::new(fields);
    let mut writer = Some(start(&batch.schema()).map_err(cause)?);
    Ok(BatchRows::new(batch, move |rows| {
        let done = match (rows, &mut writer) {
            (Some(rows), Some(writer)) => writer.write(&rows),
            // Closing writes the end of the file and flushes.
            _ => writer.take().map_or(Ok(()), W::close),
        };
        done.map_err(cause)
    }))
}

/// Distinguishes an error of the output from one of the encoder.
fn cause(error: ArrowError) -> AnalyzeError {
    match error {
        ArrowError::IoError(_, error) => AnalyzeError::Write(error),
        other => AnalyzeError::Compute(other.into()),
    }
}
