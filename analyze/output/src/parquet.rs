//! Writes rows as Parquet: nullable 64-bit integers and text. A row group stays in memory until it is complete.
//!
//! Columns have dictionaries, but for those whose values nearly all differ, such as sums of times: there a dictionary has every value
//! once more than the column needs, and the writer looks for each. Such columns are found by the first rows.

use std::io::Write;

use arrow_array::{Array, Int64Array, RecordBatch};
use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, ZstdLevel},
    errors::ParquetError,
    file::properties::{EnabledStatistics, WriterProperties},
    schema::types::ColumnPath,
};
use rustc_hash::FxHashSet;

use super::{Cell, Field, Rows, batch::Batch};
use crate::error::AnalyzeError;

/// Rows per row group: a few megabytes.
const GROUP_ROWS: usize = 256 * 1024;

/// Number of values that tell whether a column gets a dictionary.
const SAMPLE: usize = 1024;

pub(super) struct ParquetRows<'w> {
    batch: Batch,
    to: To<'w>,
}

/// The output: its writer exists from the first rows on.
enum To<'w> {
    Out(Option<&'w mut (dyn Write + Send)>),
    Writer(Box<ArrowWriter<&'w mut (dyn Write + Send)>>),
}

impl<'w> ParquetRows<'w> {
    pub(super) fn new(fields: &[Field], out: &'w mut (dyn Write + Send)) -> Self {
        Self { batch: Batch::new(fields), to: To::Out(Some(out)) }
    }

    fn encode(&mut self) -> Result<&mut ArrowWriter<&'w mut (dyn Write + Send)>, AnalyzeError> {
        let batch = self.batch.take()?;
        if let To::Out(out) = &mut self.to
            && let Some(out) = out.take()
        {
            let properties = properties(batch.as_ref());
            let writer = ArrowWriter::try_new(out, self.batch.schema(), Some(properties)).map_err(cause)?;
            self.to = To::Writer(Box::new(writer));
        }
        let To::Writer(writer) = &mut self.to else {
            return Err(AnalyzeError::Write(std::io::Error::other("the file could not be begun")));
        };
        if let Some(batch) = batch {
            writer.write(&batch).map_err(cause)?;
        }
        Ok(writer)
    }
}

/// Returns the properties of a file that begins with these rows. Statistics are by row group: an index of pages would be a
/// third of a small file.
fn properties(first: Option<&RecordBatch>) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_created_by(format!("klock {}", env!("CARGO_PKG_VERSION")))
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).unwrap_or_default()))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_max_row_group_row_count(Some(GROUP_ROWS));
    for (field, column) in first.iter().flat_map(|rows| rows.schema_ref().fields().iter().zip(rows.columns()))
    {
        if column.as_any().downcast_ref().is_some_and(nearly_all_differ) {
            let path = ColumnPath::new(vec![field.name().clone()]);
            properties = properties.set_column_dictionary_enabled(path, false);
        }
    }
    properties.build()
}

/// Whether more than half of the first numbers differ.
fn nearly_all_differ(numbers: &Int64Array) -> bool {
    let first = || numbers.iter().flatten().take(SAMPLE);
    2 * FxHashSet::from_iter(first()).len() > first().count()
}

impl Rows for ParquetRows<'_> {
    fn push(&mut self, cells: &[Cell<'_>]) -> Result<(), AnalyzeError> {
        if self.batch.push(cells) { self.encode().map(drop) } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<(), AnalyzeError> {
        let writer = self.encode()?;
        writer.finish().map_err(cause)?;
        writer.inner_mut().flush().map_err(AnalyzeError::Write)
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
