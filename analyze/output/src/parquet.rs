//! Writes rows as Parquet: nullable 64-bit integers and text. A row group stays in memory until it is
//! complete.
//!
//! Columns have dictionaries, but for those whose values nearly all differ, such as sums of times: there a
//! dictionary has every value once more than the column needs, and the writer looks for each. Such columns
//! are found by the first rows.

use std::{io::Write, sync::Arc};

use arrow_array::{Array, Int64Array, RecordBatch};
use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, ZstdLevel},
    errors::ParquetError,
    file::properties::{EnabledStatistics, WriterProperties},
    schema::types::ColumnPath,
};
use rustc_hash::FxHashSet;

use super::{
    Field,
    batch::{Batch, BatchRows},
};
use crate::error::AnalyzeError;

/// Rows per row group: a few megabytes.
const GROUP_ROWS: usize = 256 * 1024;

/// Number of values that tell whether a column gets a dictionary.
const SAMPLE: usize = 1024;

pub(super) fn rows<'w>(fields: &[Field], out: &'w mut (dyn Write + Send)) -> BatchRows<'w> {
    let batch = Batch::new(fields);
    let schema = batch.schema();
    // The writer exists from the first rows on.
    let (mut out, mut writer) = (Some(out), None);
    BatchRows::new(batch, move |rows| {
        if let Some(out) = out.take() {
            let properties = properties(rows.as_ref());
            writer = Some(ArrowWriter::try_new(out, Arc::clone(&schema), Some(properties)).map_err(cause)?);
        }
        let Some(writer) = &mut writer else { return Ok(()) };
        if let Some(rows) = rows {
            return writer.write(&rows).map_err(cause);
        }
        writer.finish().map_err(cause)?;
        writer.inner_mut().flush().map_err(AnalyzeError::Write)
    })
}

/// Returns the properties of a file that begins with these rows. Statistics are by row group: an index of
/// pages would be a third of a small file.
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
