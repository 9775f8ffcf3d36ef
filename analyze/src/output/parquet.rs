//! Writes rows as Parquet: nullable 64-bit integers and text. A row group stays in memory until it is complete.

use std::io::Write;

use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, ZstdLevel},
    errors::ParquetError,
    file::properties::WriterProperties,
};

use super::{Cell, Field, Rows, batch::Batch};
use crate::error::AnalyzeError;

/// Rows per row group: a few megabytes.
const GROUP_ROWS: usize = 256 * 1024;

pub(super) struct ParquetRows<'w> {
    batch: Batch,
    writer: ArrowWriter<&'w mut (dyn Write + Send)>,
}

impl<'w> ParquetRows<'w> {
    pub(super) fn new(fields: &[Field], out: &'w mut (dyn Write + Send)) -> Result<Self, AnalyzeError> {
        let properties = WriterProperties::builder()
            .set_created_by(format!("klock {}", env!("CARGO_PKG_VERSION")))
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).unwrap_or_default()))
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .build();
        let batch = Batch::new(fields);
        let writer = ArrowWriter::try_new(out, batch.schema(), Some(properties)).map_err(cause)?;
        Ok(Self { batch, writer })
    }

    fn encode(&mut self) -> Result<(), AnalyzeError> {
        match self.batch.take()? {
            Some(batch) => self.writer.write(&batch).map_err(cause),
            None => Ok(()),
        }
    }
}

impl Rows for ParquetRows<'_> {
    fn push(&mut self, cells: &[Cell<'_>]) -> Result<(), AnalyzeError> {
        if self.batch.push(cells) { self.encode() } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<(), AnalyzeError> {
        self.encode()?;
        self.writer.finish().map_err(cause)?;
        self.writer.inner_mut().flush().map_err(AnalyzeError::Write)
    }
}

/// Distinguishes an error of the output from one of the encoder, as far as the library does.
fn cause(error: ParquetError) -> AnalyzeError {
    let error = match error {
        ParquetError::External(source) => match source.downcast::<std::io::Error>() {
            Ok(error) => *error,
            Err(source) => std::io::Error::other(source),
        },
        other => std::io::Error::other(other),
    };
    AnalyzeError::Write(error)
}
