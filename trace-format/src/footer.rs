//! The `klock` entry of a Parquet footer, and whole footers for recovery. JSON in, footer entries and bytes
//! out.

use std::{path::Path, sync::Arc};

use parquet::{
    arrow::ArrowSchemaConverter,
    errors::ParquetError,
    file::metadata::{FileMetaData, KeyValue, ParquetMetaData, ParquetMetaDataWriter, RowGroupMetaData},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    FormatError,
    digest::{self, Digest},
    run_info::{KEY, RunInfo},
    schema,
};

/// Bytes behind a footer: its length and the magic word.
const TAIL: usize = 8;

/// The `created_by` field of the Parquet footer.
pub(crate) fn created_by() -> String {
    format!("klock {}", env!("CARGO_PKG_VERSION"))
}

/// Builds the `klock` entry of the footer of `path`.
pub(crate) fn entry(path: &Path, info: &impl Serialize) -> Result<KeyValue, FormatError> {
    Ok(KeyValue::new(KEY.to_owned(), serde_json::to_string(info).map_err(json_error(path))?))
}

/// Returns the JSON of the `klock` entry of the footer of `path`.
pub(crate) fn find_entry<'a>(path: &Path, metadata: &'a ParquetMetaData) -> Result<&'a str, FormatError> {
    let entries = metadata.file_metadata().key_value_metadata();
    let entry = entries.and_then(|entries| entries.iter().find(|entry| entry.key == KEY));
    entry
        .and_then(|entry| entry.value.as_deref())
        .ok_or_else(|| FormatError::NotATrace { path: path.to_owned() })
}

pub(crate) fn parse_entry<T: DeserializeOwned>(path: &Path, json: &str) -> Result<T, FormatError> {
    serde_json::from_str(json).map_err(json_error(path))
}

/// Returns a closure that adds `path` to a JSON error.
pub(crate) fn json_error(path: &Path) -> impl Fn(serde_json::Error) -> FormatError + '_ {
    move |source| FormatError::BadRunInfo { path: path.to_owned(), source }
}

/// Returns the number of rows of row groups.
pub(crate) fn rows(row_groups: &[RowGroupMetaData]) -> u64 {
    row_groups.iter().map(|group| u64::try_from(group.num_rows()).unwrap_or(0)).sum()
}

/// Encodes a Parquet footer for these row groups of events, with entries.
pub(crate) fn encode(
    row_groups: &[RowGroupMetaData],
    entries: Vec<KeyValue>,
) -> Result<Vec<u8>, ParquetError> {
    let schema = match row_groups.first() {
        Some(first) => first.schema_descr_ptr(),
        None => Arc::new(ArrowSchemaConverter::new().convert(&schema::arrow_schema(schema::EVENTS))?),
    };
    let rows = row_groups.iter().map(RowGroupMetaData::num_rows).sum();
    let file = FileMetaData::new(1, rows, Some(created_by()), Some(entries), schema, None);
    let metadata = ParquetMetaData::new(file, row_groups.to_vec());
    let mut footer = Vec::new();
    ParquetMetaDataWriter::new(&mut footer, &metadata).finish()?;
    Ok(footer)
}

/// Encodes the footer of an events file, with its digest.
pub(crate) fn whole(
    path: &Path,
    row_groups: &[RowGroupMetaData],
    info: &RunInfo,
    digest: &Digest,
) -> Result<Vec<u8>, FormatError> {
    let entries = vec![entry(path, info)?, digest.entry(path)?];
    let footer = encode(row_groups, entries);
    let mut footer =
        footer.map_err(|source| FormatError::parquet(path, "cannot encode the footer", source))?;
    let length = footer.len().saturating_sub(TAIL);
    digest::seal(&mut footer, length);
    Ok(footer)
}
