//! Row groups behind the row groups of an unfinished events file: events in, bytes in the file and the
//! metadata of the row groups out.
//!
//! The Parquet writer starts at the beginning of a file. So it writes behind the rows that are there, without
//! the first word, and its offsets are shifted.

use std::{
    fs::File,
    io::{Seek as _, SeekFrom},
    path::{Path, PathBuf},
    sync::Arc,
};

use parquet::{errors::ParquetError, file::metadata::RowGroupMetaData};

use super::{
    file::{CountingFile, base_properties, cannot_write},
    pages::EventsFile,
};
use crate::{FormatError, columns::EventColumns};

/// The first bytes of a Parquet file, which every file has.
const MAGIC_BYTES: u64 = 4;

/// A writer of further row groups.
pub(crate) struct Continued {
    path: PathBuf,
    writer: EventsFile,
    /// The offset in the file of what the Parquet writer takes for the beginning.
    shift: u64,
    /// Number of events.
    rows: u64,
}

impl Continued {
    /// Writes behind the first `end` bytes of the events file.
    pub(crate) fn start(path: &Path, file: &Arc<File>, end: u64) -> Result<Self, FormatError> {
        file.as_ref().seek(SeekFrom::Start(end)).map_err(FormatError::write(path))?;
        let file = CountingFile::continued(Arc::clone(file), MAGIC_BYTES as usize);
        let writer = EventsFile::start(file, base_properties().build());
        let writer = writer.map_err(|source| cannot_write(path, "more events", source))?;
        Ok(Self { path: path.to_owned(), writer, shift: end.saturating_sub(MAGIC_BYTES), rows: 0 })
    }

    /// Adds events.
    pub(crate) fn push(&mut self, events: &EventColumns) -> Result<(), FormatError> {
        self.rows += events.len() as u64;
        self.writer.add(events).map_err(|source| cannot_write(&self.path, "more events", source))
    }

    /// Writes the last row group. Returns the row groups as they are in the file, their number of events, and
    /// their end.
    pub(crate) fn finish(mut self) -> Result<(Vec<RowGroupMetaData>, u64, u64), FormatError> {
        let failed = |source| cannot_write(&self.path, "more events", source);
        self.writer.end_row_group().map_err(failed)?;
        self.writer.flush().map_err(FormatError::write(&self.path))?;
        let shifted = |group| shifted(group, self.shift as i64).map_err(failed);
        let groups = self.writer.row_groups().iter().map(shifted).collect::<Result<_, _>>()?;
        let end = self.shift + self.writer.inner().bytes();
        // The footer is written by other means.
        self.writer.inner_mut().close();
        Ok((groups, self.rows, end))
    }
}

/// Returns a row group that lies further back in its file.
fn shifted(group: &RowGroupMetaData, by: i64) -> Result<RowGroupMetaData, ParquetError> {
    let mut columns = Vec::with_capacity(group.num_columns());
    for column in group.columns() {
        let (offset_index, column_index) = (column.offset_index_offset(), column.column_index_offset());
        let shifted = column
            .clone()
            .into_builder()
            .set_data_page_offset(column.data_page_offset() + by)
            .set_dictionary_page_offset(column.dictionary_page_offset().map(|offset| offset + by))
            .set_index_page_offset(column.index_page_offset().map(|offset| offset + by))
            .set_offset_index_offset(offset_index.map(|offset| offset + by))
            .set_column_index_offset(column_index.map(|offset| offset + by));
        columns.push(shifted.build()?);
    }
    let group = group.clone().into_builder().set_column_metadata(columns);
    group.build()
}
