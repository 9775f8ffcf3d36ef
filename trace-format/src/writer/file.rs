//! The file behind a Parquet writer: counts and checksums the bytes, and stops at the first error. The
//! properties and the errors of all Parquet files of a trace, and the side tables, which are written at once.

use std::{
    fs::File,
    io::{self, Seek as _, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use parquet::{
    arrow::{ArrowWriter, arrow_writer::ArrowWriterOptions},
    basic::{Compression, ZstdLevel},
    errors::ParquetError,
    file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterVersion},
};

use crate::{
    FormatError,
    field::TableRow,
    footer,
    output::recording::NamedFile,
    run_info::{SidecarInfo, Version},
    schema,
};

/// Rows of a side table that are encoded at once.
const BATCH_ROWS: usize = 1024;
/// Encoded bytes of a side table that are in memory, from which on they become a row group.
const MAX_ENCODED: usize = 3 << 20;

/// A file, with the size and the CRC-32 of what was written.
#[derive(Debug)]
pub(super) struct CountingFile {
    file: Arc<File>,
    bytes: u64,
    /// Of the next bytes, those that the file has already: they are not written.
    skipped: usize,
    crc: crc32fast::Hasher,
    /// Whether a write has failed. The Parquet writer still flushes its buffer when it is dropped, after the
    /// end of the file was written by other means.
    failed: bool,
}

impl CountingFile {
    pub(super) fn new(file: Arc<File>) -> Self {
        Self { file, bytes: 0, skipped: 0, crc: crc32fast::Hasher::new(), failed: false }
    }

    /// Continues a file that has its first bytes, this many, already.
    pub(super) fn continued(file: Arc<File>, skipped: usize) -> Self {
        Self { skipped, ..Self::new(file) }
    }

    /// Returns the number of bytes written.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the CRC-32 of the bytes written.
    pub(super) fn crc(&self) -> u32 {
        self.crc.clone().finalize()
    }

    /// Syncs the data to disk.
    pub(super) fn sync_data(&self) -> io::Result<()> {
        synced(self.file.sync_data())
    }

    /// Syncs the data and the metadata to disk.
    pub(super) fn sync_all(&self) -> io::Result<()> {
        synced(self.file.sync_all())
    }

    /// Refuses everything from now on.
    pub(super) fn close(&mut self) {
        self.failed = true;
    }
}

/// Ignores that devices, pipes and sockets cannot be synced.
fn synced(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        result => result,
    }
}

impl Write for CountingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failed {
            return Err(io::Error::other("an earlier write has failed"));
        }
        let written = match self.skipped.min(bytes.len()) {
            0 => self.file.write(bytes).inspect_err(|error| {
                self.failed = error.kind() != io::ErrorKind::Interrupted;
            })?,
            skipped => skipped,
        };
        self.skipped = self.skipped.saturating_sub(written);
        self.crc.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Returns the properties of every Parquet file of a trace.
pub(super) fn base_properties() -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_created_by(footer::created_by())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).unwrap_or_default()))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        // The page index costs as much as the data of a small row group, and no reader of a trace seeks by
        // page.
        .set_offset_index_disabled(true)
}

/// Builds the error for `what`, a part of the file at `path`. An I/O error inside is returned as
/// [`FormatError::Output`].
pub(super) fn cannot_write(path: &Path, what: &str, source: ParquetError) -> FormatError {
    let source = match source {
        ParquetError::External(cause) => match cause.downcast::<io::Error>() {
            Ok(source) => return FormatError::write(path)(*source),
            Err(cause) => ParquetError::External(cause),
        },
        source => source,
    };
    FormatError::parquet(path, format!("cannot write {what}"), source)
}

/// A side table that is being written, with few of its rows in memory.
pub(crate) struct SideTable<T> {
    path: PathBuf,
    writer: ArrowWriter<CountingFile>,
    rows: Vec<T>,
}

impl<T: TableRow> SideTable<T> {
    /// Starts the table in an empty file.
    pub(crate) fn start(path: &Path, file: Arc<File>) -> Result<Self, FormatError> {
        let options = ArrowWriterOptions::new().with_properties(base_properties().build());
        let (file, schema) = (CountingFile::new(file), schema::arrow_schema(T::COLUMNS));
        let writer = ArrowWriter::try_new_with_options(file, schema, options.with_skip_arrow_metadata(true))
            .map_err(|source| cannot_write(path, "the header", source))?;
        Ok(Self { path: path.to_owned(), writer, rows: Vec::with_capacity(BATCH_ROWS) })
    }

    /// Starts the table again, in a file in which an attempt may have left something: on a full disk, for
    /// example.
    pub(super) fn restart(file: &NamedFile) -> Result<Self, FormatError> {
        file.file.set_len(0).map_err(FormatError::write(file.path()))?;
        file.file.as_ref().rewind().map_err(FormatError::write(file.path()))?;
        Self::start(file.path(), Arc::clone(&file.file))
    }

    pub(crate) fn add(&mut self, row: T) -> Result<(), FormatError> {
        self.rows.push(row);
        if self.rows.len() >= BATCH_ROWS { self.encode() } else { Ok(()) }
    }

    pub(crate) fn add_all(&mut self, rows: &[T]) -> Result<(), FormatError>
    where
        T: Clone,
    {
        rows.iter().try_for_each(|row| self.add(row.clone()))
    }

    fn encode(&mut self) -> Result<(), FormatError> {
        let Self { path, writer, rows } = self;
        let batch = schema::record_batch(T::COLUMNS, T::encode(rows.iter()));
        rows.clear();
        let written = writer
            .write(&batch)
            .and_then(|()| if writer.in_progress_size() > MAX_ENCODED { writer.flush() } else { Ok(()) });
        written.map_err(|source| cannot_write(path, "a batch", source))
    }

    /// Writes the footer, and returns the size of the file in bytes and its CRC-32.
    pub(crate) fn finish(mut self, trace_id: &str) -> Result<(u64, u32), FormatError> {
        self.encode()?;
        let Self { path, mut writer, .. } = self;
        let (table, trace_id) = (T::TABLE.to_owned(), trace_id.to_owned());
        let info = SidecarInfo { format: Version::default(), table, trace_id };
        writer.append_key_value_metadata(footer::entry(&path, &info)?);
        // Not `into_inner`, which turns I/O errors into text.
        writer.finish().map_err(|source| cannot_write(&path, "the footer", source))?;
        writer.sync().map_err(FormatError::write(&path))?;
        let file = writer.inner();
        file.sync_all().map_err(FormatError::write(&path))?;
        Ok((file.bytes(), file.crc()))
    }
}
