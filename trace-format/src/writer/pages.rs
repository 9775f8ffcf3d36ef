//! Writes the events file: batches of columns become pages, column chunks and row groups of a Parquet file.
//!
//! The [`parquet`] crate has a writer for any data. This one knows the columns of events: ids are dense, so
//! their places in a dictionary are looked up and not hashed; a batch becomes a page of each column at once;
//! a column without values costs nothing. It takes 140 to 280 ns per event where `ArrowWriter` takes 470 to
//! 1,080, without its conversion of columns (traces of memcached and redis, repeated to 8 million events).
//! The page headers, the metadata and the file are the crate's.

mod chunk;
mod dictionary;
mod encodings;

use std::{fmt, io, sync::Arc};

use parquet::{
    arrow::ArrowSchemaConverter,
    basic::{Compression, ZstdLevel},
    errors::ParquetError,
    file::{metadata::RowGroupMetaData, properties::WriterProperties, writer::SerializedFileWriter},
};
use zstd::bulk::Compressor;

use self::chunk::{ChunkWriter, Layout, Workspace};
use super::file::CountingFile;
use crate::{
    columns::EventColumns,
    reader::EVENTS_PER_BYTE,
    schema::{self, ColumnType},
};

/// Maximum number of rows of a row group. Limits a row group's size when events come fast.
const ROW_GROUP_ROWS: usize = 1 << 20;
/// The level of compression.
const LEVEL: i32 = 1;

/// The encodings, chosen by measurement (bench/README.md).
const fn layout(name: &str, column_type: ColumnType) -> Layout {
    match (column_type, name.as_bytes()) {
        (ColumnType::Int64, b"ts_ns") => Layout::Growing,
        (ColumnType::Int64, b"wait_ns" | b"blocked_ns" | b"runq_ns") => Layout::Split,
        _ => Layout::Dictionary,
    }
}

/// A file of events that is being written.
pub(super) struct EventsFile {
    file: SerializedFileWriter<CountingFile>,
    columns: Vec<ChunkWriter>,
    compression: Compression,
    workspace: Workspace,
    /// Rows in the open row group.
    rows: usize,
    /// The CRC-32 of the column chunks of closed row groups.
    checksums: Vec<u32>,
}

impl fmt::Debug for EventsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventsFile")
            .field("file", &self.file)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl EventsFile {
    pub(super) fn start(file: CountingFile, properties: WriterProperties) -> Result<Self, ParquetError> {
        let schema = ArrowSchemaConverter::new().convert(&schema::arrow_schema(schema::EVENTS))?;
        let compressor = Compressor::new(LEVEL)
            .map_err(|error| ParquetError::General(format!("cannot start the compressor: {error}")))?;
        let columns = schema::EVENTS.iter().zip(schema.columns()).map(|(column, descr)| {
            ChunkWriter::new(Arc::clone(descr), layout(column.name, column.column_type))
        });
        Ok(Self {
            columns: columns.collect(),
            compression: Compression::ZSTD(ZstdLevel::try_new(LEVEL)?),
            workspace: Workspace::new(compressor),
            rows: 0,
            checksums: Vec::new(),
            file: SerializedFileWriter::new(file, schema.root_schema_ptr(), Arc::new(properties))?,
        })
    }

    /// Adds events to the open row group.
    pub(super) fn add(&mut self, events: &EventColumns) -> Result<(), ParquetError> {
        if events.is_empty() {
            return Ok(());
        }
        if self.rows > 0 && self.rows + events.len() > ROW_GROUP_ROWS {
            self.end_row_group()?;
        }
        for ((bit, column), values) in (0..).zip(&mut self.columns).zip(events.values()) {
            column.add(values, events.present(), bit, &mut self.workspace)?;
        }
        self.rows += events.len();
        Ok(())
    }

    /// Closes the row group unless it is empty.
    pub(super) fn end_row_group(&mut self) -> Result<(), ParquetError> {
        if self.rows == 0 {
            return Ok(());
        }
        let (compression, workspace) = (self.compression, &mut self.workspace);
        let chunks = self.columns.iter_mut().map(|column| column.finish(compression, workspace));
        let chunks: Vec<_> = chunks.collect::<Result<_, _>>()?;
        // A program that writes records into its region can write a million that are alike. The reader
        // refuses so many in so few bytes.
        let bytes: usize = chunks.iter().map(|(bytes, _)| bytes.len()).sum();
        let least = self.rows.div_ceil(EVENTS_PER_BYTE as usize);
        self.file.write_all(&vec![0; least.saturating_sub(bytes)])?;
        let mut group = self.file.next_row_group()?;
        for (bytes, result) in chunks {
            self.checksums.push(crc32fast::hash(&bytes));
            group.append_column(&bytes::Bytes::from(bytes), result)?;
        }
        group.close()?;
        self.rows = 0;
        Ok(())
    }

    /// Hands everything in closed row groups to the file.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    /// Returns the row groups that are closed.
    pub(super) fn row_groups(&self) -> &[RowGroupMetaData] {
        self.file.flushed_row_groups()
    }

    /// Returns the CRC-32 of the column chunks of closed row groups.
    pub(super) fn checksums(&self) -> &[u32] {
        &self.checksums
    }

    /// Returns the number of bytes, including the open row group.
    pub(super) fn bytes(&self) -> usize {
        self.file.bytes_written() + self.columns.iter().map(ChunkWriter::bytes).sum::<usize>()
    }

    pub(super) fn inner(&self) -> &CountingFile {
        self.file.inner()
    }

    pub(super) fn inner_mut(&mut self) -> &mut CountingFile {
        self.file.inner_mut()
    }
}

#[cfg(test)]
mod tests;
