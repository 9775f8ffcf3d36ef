//! Reads traces: opens their files, and reads events batch by batch, without interpreting them.
//!
//! Opening a trace checks everything that needs no rows: that the file is Parquet, that klock wrote it, that
//! its major version is known, that all required columns exist with their types, and that the side tables
//! belong to it.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arrow_array::RecordBatch;
use parquet::{
    arrow::{ProjectionMask, arrow_reader::ArrowReaderMetadata},
    file::metadata::{ColumnChunkMetaData, ParquetMetaData},
};

use crate::{
    FORMAT_MAJOR, FormatError,
    digest::Digest,
    event::{Event, EventKind},
    field::{Source, TableRow as _},
    footer,
    gate::{
        batches::BatchReader,
        file::{TraceFile, decode_footer},
    },
    journal_tables::SideTables,
    paths::{self, TracePaths},
    run_info::{RunInfo, SidecarInfo},
    schema,
};

mod batch;
mod checks;
mod shared;
mod side;

pub use crate::event::Batch;
pub(crate) use crate::gate::panics::catch_panics;
pub use crate::gate::panics::error_of_panic;
pub use batch::BatchRow;

use checks::check_columns;
use shared::SharedLocks;

/// Rows per batch of events.
const BATCH_ROWS: usize = 64 * 1024;
/// Events that a byte of the file may have. A recording has about one; if it has more, the writer fills up
/// the file.
pub(crate) const EVENTS_PER_BYTE: u64 = 16;

/// An opened trace. It holds the footer and reads rows on demand.
#[derive(Debug)]
pub struct Trace {
    paths: TracePaths,
    file: TraceFile,
    info: RunInfo,
    metadata: ArrowReaderMetadata,
    /// `None` if the trace has none.
    digest: Option<Digest>,
    /// The side tables of a trace that is being recorded, which have no files yet.
    side: Option<Box<SideTables>>,
    shared: SharedLocks,
    /// Number of events that were read so far, by all iterators.
    events_read: Arc<AtomicU64>,
}

impl Trace {
    /// Opens the trace with this events file, and checks its side tables.
    pub fn open(path: &Path) -> Result<Self, FormatError> {
        let paths = TracePaths::of(path);
        let (file, metadata, digest) = load(path)?;
        let json = footer::find_entry(path, metadata.metadata())?;
        let side: SidecarInfo = footer::parse_entry(path, json)?;
        if side.format.major > FORMAT_MAJOR {
            return Err(FormatError::NewerMajor { path: path.to_owned(), found: side.format.major });
        }
        if side.table != "events" {
            let main = paths::events_path(path, &side.table);
            return Err(FormatError::SideTable { path: path.to_owned(), table: side.table, main });
        }
        let info: RunInfo = footer::parse_entry(path, json)?;
        check_columns(path, metadata.schema(), schema::EVENTS, side.format.minor)?;
        file.check_count("events", metadata.metadata().file_metadata().num_rows(), EVENTS_PER_BYTE)?;
        let (shared, events_read) = (SharedLocks::default(), Arc::default());
        let mut trace = Self { paths, file, info, metadata, digest, side: None, shared, events_read };
        trace.check_side_table(&trace.paths.stacks, "stacks")?;
        trace.check_side_table(&trace.paths.tasks, "tasks")?;
        trace.check_side_table(&trace.paths.locks, "locks")?;
        if trace.has_shared_locks()? {
            trace.shared = SharedLocks::of(&trace.locks()?);
        }
        Ok(trace)
    }

    /// A trace without a footer in its file: the events of this footer, and no side tables. Locks in memory
    /// that processes share are read as they are recorded: a lock for each process.
    pub(crate) fn unfinished(file: TraceFile, footer: &[u8], info: RunInfo) -> Result<Self, FormatError> {
        let path = file.path();
        let footer = decode_footer(path, footer.get(..footer.len().saturating_sub(8)).unwrap_or_default())?;
        file.check_count("events", footer.file_metadata().num_rows(), EVENTS_PER_BYTE)?;
        let metadata = checks::with_types(path, Arc::new(footer))?;
        check_columns(path, metadata.schema(), schema::EVENTS, info.format.minor)?;
        let (paths, shared, events_read) = (TracePaths::of(path), SharedLocks::default(), Arc::default());
        let side = Some(Box::default());
        Ok(Self { paths, file, info, metadata, digest: None, side, shared, events_read })
    }

    /// Sets the side tables of a trace that is being recorded.
    pub(crate) fn with_side_tables(self, side: SideTables) -> Self {
        let shared = SharedLocks::of(&side.locks);
        Self { side: Some(Box::new(side)), shared, ..self }
    }

    /// Returns information about the recording.
    pub fn info(&self) -> &RunInfo {
        &self.info
    }

    /// Returns the paths of the trace's files.
    pub fn paths(&self) -> &TracePaths {
        &self.paths
    }

    /// Returns the number of rows in the events file.
    pub fn event_count(&self) -> u64 {
        u64::try_from(self.metadata.metadata().file_metadata().num_rows()).unwrap_or(0)
    }

    /// Returns the number of events that were read so far, which counts on while other threads read. Events
    /// that are read twice count twice.
    pub fn events_read(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.events_read)
    }

    /// Returns the number of row groups in the events file.
    pub fn row_groups(&self) -> usize {
        self.metadata.metadata().num_row_groups()
    }

    /// Returns the name and the compressed size in bytes of each column of the events, in file order.
    pub fn column_bytes(&self) -> Vec<(String, u64)> {
        let metadata = self.metadata.metadata();
        let columns = metadata.file_metadata().schema_descr().columns();
        let size = |index: usize| {
            metadata
                .row_groups()
                .iter()
                .map(|group| u64::try_from(group.column(index).compressed_size()).unwrap_or(0))
                .sum()
        };
        columns.iter().enumerate().map(|(index, column)| (column.name().to_owned(), size(index))).collect()
    }

    /// Returns an iterator over the batches of all events, in file order.
    pub fn events(&self) -> Result<Batches, FormatError> {
        self.batches(None, &schema::EVENTS.iter().map(|column| column.name).collect::<Vec<_>>())
    }

    /// Returns an iterator over the batches of the row group at `index`, which must be less than
    /// [`row_groups`](Self::row_groups). Decodes only `columns`, `ts_ns` and `event`; other columns read as
    /// null.
    pub fn row_group(&self, index: usize, columns: &[&str]) -> Result<Batches, FormatError> {
        self.batches(Some(index), columns)
    }

    fn batches(&self, row_group: Option<usize>, columns: &[&str]) -> Result<Batches, FormatError> {
        let metadata = self.metadata.metadata();
        let has_values = |column: &&str| row_group.is_none_or(|group| !self.is_null(group, column));
        let columns = columns.iter().copied().filter(has_values).chain(["ts_ns", "event"]);
        let reader = self.event_reader(columns, row_group)?;
        let before = metadata.row_groups().iter().take(row_group.unwrap_or(0));
        let row = before.map(|group| u64::try_from(group.num_rows()).unwrap_or(0)).sum();
        Ok(Batches {
            path: self.paths.events.clone(),
            metadata: Arc::clone(metadata),
            reader,
            row,
            shared: self.shared.clone(),
            read: self.events_read(),
        })
    }

    /// Whether a column of the events has no value in a row group. Texts are slow to decode where all are
    /// null, and a column that is not decoded reads the same.
    fn is_null(&self, row_group: usize, column: &str) -> bool {
        let Some(group) = self.metadata.metadata().row_groups().get(row_group) else { return false };
        let chunk = group.columns().iter().find(|chunk| chunk.column_path().parts() == [column]);
        let is_null = chunk.is_some_and(|chunk| self.file.is_null(chunk));
        // A damaged page is read, which reports it.
        is_null && self.check_chunk(row_group, column).is_ok()
    }

    /// Whether the trace has checksums of what was written.
    pub fn has_digest(&self) -> bool {
        self.digest.is_some()
    }

    /// Checks all bytes of the events and of the side tables. Opening the trace has checked the footer.
    ///
    /// # Errors
    ///
    /// Part of the file is damaged, or the trace has no digest.
    pub fn verify(&self) -> Result<(), FormatError> {
        if !self.has_digest() {
            return Err(FormatError::NoDigest { path: self.paths.events.clone() });
        }
        let TracePaths { stacks, locks, tasks, .. } = &self.paths;
        for (path, table) in [(stacks, "stacks"), (locks, "locks"), (tasks, "tasks")] {
            self.check_side_checksum(path, table)?;
        }
        let groups = self.metadata.metadata().row_groups().iter().enumerate();
        let names = groups.flat_map(|(index, group)| group.columns().iter().map(move |chunk| (index, chunk)));
        for (at, (row_group, chunk)) in names.enumerate() {
            self.check_chunk_at(at, row_group, chunk)?;
        }
        Ok(())
    }

    fn check_chunk(&self, row_group: usize, column: &str) -> Result<(), FormatError> {
        let Some(group) = self.metadata.metadata().row_groups().get(row_group) else { return Ok(()) };
        let chunk = group.columns().iter().position(|chunk| chunk.column_path().parts() == [column]);
        let Some(at) = chunk else { return Ok(()) };
        self.check_chunk_at(row_group * group.num_columns() + at, row_group, group.column(at))
    }

    /// Compares the checksum of the column chunk with this index among the chunks of all row groups.
    fn check_chunk_at(
        &self,
        at: usize,
        row_group: usize,
        chunk: &ColumnChunkMetaData,
    ) -> Result<(), FormatError> {
        let Some(expected) = self.digest.as_ref().and_then(|digest| digest.chunk(at)) else { return Ok(()) };
        if self.file.chunk_checksum(chunk)? == expected {
            return Ok(());
        }
        let part = format!("column {} of row group {row_group}", chunk.column_path().string());
        Err(FormatError::Damaged { path: self.paths.events.clone(), part })
    }

    /// Counts the events of each kind that occurs. Reads one column of the events.
    pub fn events_by_kind(&self) -> Result<Vec<(EventKind, u64)>, FormatError> {
        let mut counts = vec![0; EventKind::ALL.len()];
        let reader = self.event_reader(["event"], None)?;
        each_batch(&self.file, reader, "the events", |source| {
            let kinds: Vec<EventKind> = source.required_words("event")?;
            kinds.iter().for_each(|kind| counts[*kind as usize] += 1);
            Ok(())
        })?;
        let counts = EventKind::ALL.iter().copied().zip(counts);
        Ok(counts.filter(|(_, count)| *count > 0).collect())
    }

    /// Opens a reader for these columns of the events; of all row groups or of one.
    fn event_reader<'a>(
        &self,
        columns: impl IntoIterator<Item = &'a str>,
        row_group: Option<usize>,
    ) -> Result<BatchReader, FormatError> {
        let descriptor = self.metadata.metadata().file_metadata().schema_descr();
        let projection = ProjectionMask::columns(descriptor, columns);
        let metadata = (&self.metadata, self.digest.as_ref());
        BatchReader::open(&self.file, metadata, projection, (row_group, BATCH_ROWS))
    }
}

/// Opens a file and loads its footer, with the digest if it has one.
fn load(path: &Path) -> Result<(TraceFile, ArrowReaderMetadata, Option<Digest>), FormatError> {
    let (facts, file) = TraceFile::open(path)?;
    let (footer, digest) = facts.footer(&file)?;
    Ok((facts, checks::with_types(path, Arc::new(footer))?, digest))
}

/// The rows of a Parquet file that is not a trace: sums of a fleet, for example. Texts are views.
#[derive(Debug)]
pub struct Rows {
    reader: BatchReader,
    metadata: Arc<ParquetMetaData>,
}

impl Rows {
    /// Opens a file, which passes the same checks as the files of a trace.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is not Parquet.
    pub fn open(path: &Path) -> Result<Self, FormatError> {
        let (file, metadata, _) = load(path)?;
        file.check_count("rows", metadata.metadata().file_metadata().num_rows(), 1)?;
        let reader = BatchReader::open(&file, (&metadata, None), ProjectionMask::all(), (None, BATCH_ROWS))?;
        Ok(Self { reader, metadata: Arc::clone(metadata.metadata()) })
    }

    /// Whether there is a column with this name.
    pub fn has(&self, name: &str) -> bool {
        let columns = self.metadata.file_metadata().schema_descr().columns();
        columns.iter().any(|column| column.name() == name)
    }
}

impl Iterator for Rows {
    type Item = Result<RecordBatch, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.reader.next(|| "its rows".to_owned())
    }
}

/// Calls `read` for each batch of a whole file.
fn each_batch(
    file: &TraceFile,
    mut reader: BatchReader,
    location: &str,
    mut read: impl FnMut(&Source<'_>) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    let mut first_row = 0;
    while let Some(batch) = reader.next(|| location.to_owned()) {
        let batch = batch?;
        read(&Source { path: file.path(), row_group: 0, first_row, batch: &batch })?;
        first_row += batch.num_rows() as u64;
    }
    Ok(())
}

/// An iterator over batches of events.
#[derive(Debug)]
pub struct Batches {
    path: PathBuf,
    metadata: Arc<ParquetMetaData>,
    reader: BatchReader,
    row: u64,
    shared: SharedLocks,
    read: Arc<AtomicU64>,
}

impl Iterator for Batches {
    type Item = Result<Batch, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        let row_group = self.row_group();
        let row = self.row;
        let batch = match self.reader.next(|| format!("row group {row_group}, row {row}"))? {
            Ok(batch) => batch,
            Err(error) => return Some(Err(error)),
        };
        let source = Source { path: &self.path, row_group, first_row: self.row, batch: &batch };
        let result = Event::decode(&source).and_then(|batch| match batch.invalid_time() {
            None => Ok(batch.with_lock_ids(&self.shared)),
            Some((column, row, ns)) => {
                Err(source.invalid(row, column, format!("{ns} ns is more than 36 years")))
            }
        });
        self.row += batch.num_rows() as u64;
        self.read.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
        Some(result)
    }
}

impl Batches {
    /// Returns the row group of the next row.
    fn row_group(&self) -> usize {
        let mut end = 0;
        let groups = self.metadata.row_groups();
        groups
            .iter()
            .position(|group| {
                end += u64::try_from(group.num_rows()).unwrap_or(0);
                self.row < end
            })
            .unwrap_or(groups.len())
    }
}
