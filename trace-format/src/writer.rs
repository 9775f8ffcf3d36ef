//! Rows in, files out: a streaming writer for the events, and the three side tables at the end.
//!
//! Memory is bounded: rows are buffered up to one batch, batches up to one row group, and the caller closes row
//! groups by the clock ([`TraceWriter::end_row_group`], [`TraceWriter::checkpoint`]). The footer, with the loss counters in
//! it, is written by [`TraceWriter::finish`]; until then the file has none, so that a part can't be taken for the whole, and a
//! [`journal`](crate::journal) stands beside it, from which [`recover`](crate::recover()) finishes it.

use std::{
    collections::hash_map::RandomState,
    fs::{self, File, OpenOptions},
    hash::{BuildHasher, Hasher},
    io::{self, Write},
    path::Path,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::{
    arrow::{ArrowWriter, arrow_writer::ArrowWriterOptions},
    basic::{Compression, Encoding, ZstdLevel},
    errors::ParquetError,
    file::{
        metadata::KeyValue,
        properties::{EnabledStatistics, WriterProperties, WriterVersion},
    },
    schema::types::ColumnPath,
};

use crate::{
    FormatError,
    event::Event,
    journal::{Journal, SideRows},
    paths::TracePaths,
    run_info::{KEY, RunInfo, SidecarInfo, Version},
    schema::{self, Column},
    tables::{LockRow, Stack, TaskRow},
};

mod columns;

/// Rows per batch handed to the encoder: large enough that its per-call cost vanishes, small enough to stay in cache.
const BATCH_ROWS: usize = 16 * 1024;
/// The most rows of a row group. A flood closes groups by size before the clock does.
const ROW_GROUP_ROWS: usize = 1 << 20;

/// Writes one trace. Dropped without [`finish`](Self::finish), it leaves a file without a footer.
#[derive(Debug)]
pub struct TraceWriter {
    paths: TracePaths,
    schema: SchemaRef,
    writer: ArrowWriter<CountingFile>,
    buffer: columns::EventColumns,
    rows: u64,
    /// None beside what is no file: a device, a pipe.
    journal: Option<Journal>,
    /// Row groups of which the journal tells.
    told: usize,
}

/// The sizes of what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Rows of the events table.
    pub events: u64,
    /// Bytes of the events file.
    pub event_bytes: u64,
    /// Bytes of all four files.
    pub total_bytes: u64,
}

impl TraceWriter {
    /// Begins a trace whose events go to `path`. Files that are there are kept, and are an error, unless `replace`.
    pub fn create(path: &Path, replace: bool) -> Result<Self, FormatError> {
        let paths = TracePaths::of(path);
        if !replace && let Some(there) = paths.all().into_iter().find(|p| p.exists()) {
            return Err(FormatError::Exists { path: there.to_owned() });
        }
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .map_err(|source| FormatError::Io { path: path.to_owned(), source })?;
        let schema = schema::arrow_schema(schema::EVENTS);
        let options =
            ArrowWriterOptions::new().with_properties(event_properties()).with_skip_arrow_metadata(true);
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        let writer = ArrowWriter::try_new_with_options(CountingFile::of(file), Arc::clone(&schema), options)
            .map_err(|source| parquet_error(path, "the header", source))?;
        let journal = if is_file { Some(Journal::create(path)?) } else { None };
        Ok(Self {
            paths,
            schema,
            writer,
            buffer: columns::EventColumns::default(),
            rows: 0,
            journal,
            told: 0,
        })
    }

    /// Adds one event. Events should come in the order of time; the writer does not sort.
    pub fn push(&mut self, event: &Event) -> Result<(), FormatError> {
        self.buffer.push(event);
        self.rows += 1;
        if self.buffer.len() >= BATCH_ROWS { self.encode() } else { Ok(()) }
    }

    /// Closes the row group, if it holds anything: what was pushed so far is in the file.
    pub fn end_row_group(&mut self) -> Result<(), FormatError> {
        self.encode()?;
        self.writer.flush().map_err(|source| self.failed(source))?;
        let path = &self.paths.events;
        self.writer.sync().map_err(|source| FormatError::Io { path: path.clone(), source })
    }

    /// Closes the row group and writes into the journal what it takes to finish the trace from here: how it is made and what
    /// was lost so far, and the rows of the side tables that are new or changed. All locks and tasks of which the events
    /// tell must have been told by now; stacks may come later.
    ///
    /// When this returns, the disk has it.
    pub fn checkpoint(&mut self, info: &RunInfo, side: &SideRows) -> Result<(), FormatError> {
        self.end_row_group()?;
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let file = self.writer.inner();
        let synced = file.file.sync_data();
        synced.map_err(|source| FormatError::Io { path: self.paths.events.clone(), source })?;
        let row_groups = self.writer.flushed_row_groups();
        journal.add(file.bytes, file.crc.clone().finalize(), &row_groups[self.told..], info, side)?;
        self.told = row_groups.len();
        Ok(())
    }

    /// Rows pushed so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes in the file, and an estimate for what is still in memory.
    pub fn bytes(&self) -> u64 {
        (self.writer.bytes_written() + self.writer.in_progress_size()) as u64
    }

    /// Ends the trace: the last row group, the footer with `info`, and the side tables.
    ///
    /// `info.table`, `info.format` and `info.events` are set here.
    pub fn finish(
        mut self,
        info: &RunInfo,
        stacks: &[Stack],
        locks: &[LockRow],
        tasks: &[TaskRow],
    ) -> Result<Written, FormatError> {
        self.encode()?;
        let info = RunInfo {
            format: Version::default(),
            table: "events".to_owned(),
            events: self.rows,
            ..info.clone()
        };
        let json = serde_json::to_string(&info)
            .map_err(|source| FormatError::BadRunInfo { path: self.paths.events.clone(), source })?;
        self.writer.append_key_value_metadata(KeyValue::new(KEY.to_owned(), json));
        let path = self.paths.events.clone();
        let file = end(self.writer, &path)?;
        file.file.sync_all().map_err(|source| FormatError::Io { path: path.clone(), source })?;
        let tables = write_side_tables(&self.paths, &info.trace_id, stacks, locks, tasks)?;
        if let Some(journal) = self.journal {
            journal.remove()?;
        }
        Ok(Written { events: self.rows, event_bytes: file.bytes, total_bytes: file.bytes + tables })
    }

    /// Gives up and removes the file: nothing was recorded.
    pub fn discard(self) -> Result<(), FormatError> {
        let path = self.paths.events;
        drop(self.writer);
        if let Some(journal) = self.journal {
            journal.remove()?;
        }
        fs::remove_file(&path).map_err(|source| FormatError::Io { path, source })
    }

    fn encode(&mut self) -> Result<(), FormatError> {
        if self.buffer.len() == 0 {
            return Ok(());
        }
        let batch = self.buffer.take(&self.schema);
        self.writer.write(&batch).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: ParquetError) -> FormatError {
        parquet_error(&self.paths.events, &format!("writing row {}", self.rows), source)
    }
}

/// A new trace id: 32 hex digits that no two recordings share.
pub fn new_trace_id() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let half = || {
        // RandomState is seeded by the operating system.
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u128(now);
        hasher.finish()
    };
    format!("{:016x}{:016x}", half(), half())
}

/// Writes the three side tables. Returns their bytes.
pub(crate) fn write_side_tables(
    paths: &TracePaths,
    trace_id: &str,
    stacks: &[Stack],
    locks: &[LockRow],
    tasks: &[TaskRow],
) -> Result<u64, FormatError> {
    let mut total = 0;
    for (path, name, table, batch) in [
        (&paths.stacks, "stacks", schema::STACKS, columns::stacks(stacks)),
        (&paths.locks, "locks", schema::LOCKS, columns::locks(locks)),
        (&paths.tasks, "tasks", schema::TASKS, columns::tasks(tasks)),
    ] {
        total += write_sidecar(path, name, table, &batch, trace_id)?;
    }
    Ok(total)
}

fn write_sidecar(
    path: &Path,
    name: &str,
    table: &[Column],
    batch: &RecordBatch,
    trace_id: &str,
) -> Result<u64, FormatError> {
    let io = |source| FormatError::Io { path: path.to_owned(), source };
    let parquet = |source| parquet_error(path, "writing", source);
    let info =
        SidecarInfo { format: Version::default(), table: name.to_owned(), trace_id: trace_id.to_owned() };
    let json = serde_json::to_string(&info)
        .map_err(|source| FormatError::BadRunInfo { path: path.to_owned(), source })?;
    let file = CountingFile::of(File::create(path).map_err(io)?);
    let options =
        ArrowWriterOptions::new().with_properties(sidecar_properties()).with_skip_arrow_metadata(true);
    let mut writer =
        ArrowWriter::try_new_with_options(file, schema::arrow_schema(table), options).map_err(parquet)?;
    writer.write(batch).map_err(parquet)?;
    writer.append_key_value_metadata(KeyValue::new(KEY.to_owned(), json));
    let file = end(writer, path)?;
    file.file.sync_all().map_err(io)?;
    Ok(file.bytes)
}

/// Writes the footer and empties the writer's buffer. Step by step, because `into_inner` turns an error of the disk into text.
fn end(mut writer: ArrowWriter<CountingFile>, path: &Path) -> Result<CountingFile, FormatError> {
    writer.finish().map_err(|source| parquet_error(path, "the footer", source))?;
    writer.sync().map_err(|source| FormatError::Io { path: path.to_owned(), source })?;
    let CountingFile { file, bytes, crc } = writer.inner();
    let file = file.try_clone().map_err(|source| FormatError::Io { path: path.to_owned(), source })?;
    Ok(CountingFile { file, bytes: *bytes, crc: crc.clone() })
}

/// Who wrote it, in the words of Parquet.
pub(crate) fn created_by() -> String {
    format!("klock {}", env!("CARGO_PKG_VERSION"))
}

fn base_properties() -> parquet::file::properties::WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_created_by(created_by())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).unwrap_or_default()))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        // The page index costs as much as the data of a small row group, and no reader of a trace seeks by page.
        .set_offset_index_disabled(true)
}

/// Encodings of the events, by measurement (docs/benchmarks.md): times grow, so differences are small; durations
/// have noisy low bytes, so their bytes are split into streams; everything else repeats, so it goes to dictionaries.
fn event_properties() -> WriterProperties {
    let column = |name: &str| ColumnPath::from(name.to_owned());
    let mut builder = base_properties()
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_column_dictionary_enabled(column("ts_ns"), false)
        .set_column_encoding(column("ts_ns"), Encoding::DELTA_BINARY_PACKED);
    for name in ["wait_ns", "blocked_ns", "runq_ns"] {
        builder = builder
            .set_column_dictionary_enabled(column(name), false)
            .set_column_encoding(column(name), Encoding::BYTE_STREAM_SPLIT);
    }
    builder.build()
}

fn sidecar_properties() -> WriterProperties {
    base_properties().build()
}

fn parquet_error(path: &Path, place: &str, source: ParquetError) -> FormatError {
    match source {
        ParquetError::External(cause) if cause.is::<io::Error>() => match cause.downcast::<io::Error>() {
            Ok(source) => FormatError::Io { path: path.to_owned(), source: *source },
            Err(cause) => FormatError::Parquet {
                path: path.to_owned(),
                place: place.to_owned(),
                source: ParquetError::External(cause),
            },
        },
        source => FormatError::Parquet { path: path.to_owned(), place: place.to_owned(), source },
    }
}

/// A file that knows how much went into it, and what it was.
#[derive(Debug)]
struct CountingFile {
    file: File,
    bytes: u64,
    crc: crc32fast::Hasher,
}

impl CountingFile {
    fn of(file: File) -> Self {
        Self { file, bytes: 0, crc: crc32fast::Hasher::new() }
    }
}

impl Write for CountingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.crc.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
