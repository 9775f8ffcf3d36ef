//! Ends an events file on a failed disk: cuts it after the last row group that is whole, and appends a footer.
//!
//! If the footer does not fit, row groups are dropped until it does.

use std::os::unix::fs::FileExt as _;

use parquet::{arrow::ArrowWriter, errors::ParquetError, file::metadata::RowGroupMetaData};

use crate::{FormatError, footer, output::recording::NamedFile, run_info::RunInfo, schema};

/// The [`RunInfo::stop_reason`] of a trace that was cut short.
const STOP_REASON: &str = "the trace could not be written any further";
/// Size of the magic word at the start of a Parquet file.
const START: u64 = 4;

/// A trace that was cut short.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) events: u64,
    pub(super) bytes: u64,
}

/// Ends the file. `written` is the number of bytes that were written to it.
pub(super) fn end(
    file: &NamedFile,
    row_groups: &[RowGroupMetaData],
    written: u64,
    info: &RunInfo,
) -> Result<Cut, FormatError> {
    let whole = row_groups.partition_point(|group| end_of(group) <= written);
    let mut result = Ok(Cut { events: 0, bytes: 0 });
    for count in (0..=whole).rev() {
        result = try_end(file, &row_groups[..count], info);
        if result.is_ok() {
            break;
        }
    }
    result
}

fn try_end(file: &NamedFile, row_groups: &[RowGroupMetaData], info: &RunInfo) -> Result<Cut, FormatError> {
    let events = footer::rows(row_groups);
    let entry = footer::entry(file.path(), &info.unfinished(events, STOP_REASON))?;
    let cannot_encode = |source| FormatError::parquet(file.path(), "cannot encode the footer", source);
    let (start, tail) = match row_groups.last() {
        Some(last) => (end_of(last), footer::encode(row_groups, Some(entry)).map_err(cannot_encode)?),
        None => (0, without_events(entry).map_err(cannot_encode)?),
    };
    let write = || {
        file.file.set_len(start)?;
        file.file.write_all_at(&tail, start)?;
        file.file.sync_all()
    };
    write().map_err(FormatError::write(file.path()))?;
    Ok(Cut { events, bytes: start + tail.len() as u64 })
}

/// Returns a whole events file without events.
fn without_events(entry: parquet::file::metadata::KeyValue) -> Result<Vec<u8>, ParquetError> {
    let mut file = Vec::new();
    let schema = schema::arrow_schema(schema::EVENTS);
    let mut writer = ArrowWriter::try_new(&mut file, schema, None)?;
    writer.append_key_value_metadata(entry);
    writer.close()?;
    Ok(file)
}

/// Returns the offset at which a row group ends.
fn end_of(group: &RowGroupMetaData) -> u64 {
    let ends = group.columns().iter().map(|column| {
        let (start, length) = column.byte_range();
        start + length
    });
    ends.max().unwrap_or(START)
}
