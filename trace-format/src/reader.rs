//! Reads traces: side tables at once, events batch by batch, without interpreting them.
//!
//! Opening a trace checks everything that needs no rows: that the file is Parquet, that klock wrote it, that
//! its major version is known, that all required columns exist with their types, and that the side tables
//! belong to it.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arrow_array::{Array as _, RecordBatch};
use parquet::{
    arrow::{ProjectionMask, arrow_reader::ArrowReaderMetadata},
    file::metadata::{ColumnChunkMetaData, ParquetMetaData},
};

use crate::{
    FORMAT_MAJOR, FormatError,
    digest::{Digest, is_by_klock},
    event::{Event, EventKind, StackId},
    field::{Source, TableRow, text_bytes},
    footer,
    gate::{
        batches::BatchReader,
        file::{TraceFile, decode_footer},
    },
    journal_tables::SideTables,
    paths::{self, TracePaths},
    run_info::{RunInfo, SidecarInfo},
    schema::{self, Column, FRAME},
    tables::{LockRow, Stack, StackCounts, TaskRow},
};

mod batch;
mod checks;
mod shared;

pub use crate::event::Batch;
pub(crate) use crate::gate::panics::catch_panics;
pub use crate::gate::panics::error_of_panic;
pub use batch::BatchRow;

use checks::check_columns;
use shared::SharedLocks;

/// Rows per batch of events.
const BATCH_ROWS: usize = 64 * 1024;
/// Rows per batch of a side table, whose rows are larger.
const SIDE_ROWS: usize = 8 * 1024;
/// Events that a byte of the file may have. A recording has about one; if it has more, the writer fills up
/// the file.
pub(crate) const EVENTS_PER_BYTE: u64 = 16;
/// Frames that a byte of the stacks table may have. Two stacks differ in one frame at least, and a stack of
/// 127 frames takes some bytes.
const FRAMES_PER_BYTE: u64 = 32;
/// Bytes of text in memory that a byte of a side table may have, and that a table of any size may have: each
/// row has texts of its own.
const TEXT_PER_BYTE: u64 = 512;
const TEXT: u64 = 64 << 20;
/// Bytes of text that a byte of the stacks table may have. Its rows are read one by one, and not kept.
const TEXT_OF_FRAMES_PER_BYTE: u64 = 128 * FRAMES_PER_BYTE;

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

    /// Whether the locks table has locks in memory that processes share.
    fn has_shared_locks(&self) -> Result<bool, FormatError> {
        let mut has_some = false;
        let is_place = |parts: &[String]| parts == ["shared"];
        self.side_batches::<LockRow>(&self.paths.locks, is_place, |source| {
            let places = source.batch.column_by_name("shared");
            has_some |= places.is_some_and(|places| places.null_count() < places.len());
            Ok(())
        })?;
        Ok(has_some)
    }

    /// Reads all stacks, in id order. A long recording has millions: [`each_stack`](Self::each_stack) keeps
    /// none.
    pub fn stacks(&self) -> Result<Vec<Stack>, FormatError> {
        let mut all = Vec::new();
        self.each_stack(|stack| all.push(stack))?;
        Ok(all)
    }

    /// Reads the stacks with these ids.
    pub fn stacks_of(
        &self,
        is_wanted: impl Fn(StackId) -> bool,
    ) -> Result<HashMap<StackId, Stack>, FormatError> {
        let mut wanted = HashMap::new();
        self.each_stack(|stack| {
            if is_wanted(stack.id) {
                wanted.insert(stack.id, stack);
            }
        })?;
        Ok(wanted)
    }

    /// Calls `take` for each stack, in id order.
    pub fn each_stack(&self, mut take: impl FnMut(Stack)) -> Result<(), FormatError> {
        if let Some(side) = &self.side {
            side.each_stack(&mut |stack| {
                take(stack);
                Ok(())
            })?;
            return Ok(());
        }
        self.each_side_row(&self.paths.stacks, |stack: &Stack| stack.id.0, take)
    }

    /// Counts the stacks and their frames. Of the frames, reads the functions alone.
    pub fn stack_counts(&self) -> Result<StackCounts, FormatError> {
        let mut counts = StackCounts::default();
        if let Some(side) = &self.side {
            side.each_stack(&mut |stack| {
                counts.add(&stack);
                Ok(())
            })?;
            return Ok(counts);
        }
        let is_function = |parts: &[String]| parts.last().is_some_and(|name| name == "symbol");
        self.side_batches::<Stack>(&self.paths.stacks, is_function, |source| {
            let (lists, frames) = source.frames("frames")?;
            let symbols = frames.column_by_name("symbol");
            let symbols = symbols.ok_or_else(|| source.invalid(0, "frames", "not a list of frames"))?;
            counts.stacks += lists.len();
            counts.frames += symbols.len();
            counts.named += symbols.len() - symbols.null_count();
            Ok(())
        })?;
        Ok(counts)
    }

    /// Reads all rows of the locks table, in id order. A lock in memory that processes share has a row for
    /// each process, and all of them have the id of the first, as its events do.
    pub fn locks(&self) -> Result<Vec<LockRow>, FormatError> {
        let mut rows = match &self.side {
            Some(side) => side.locks.clone(),
            None => self.side_rows(&self.paths.locks, |lock: &LockRow| lock.id.0)?,
        };
        self.shared.merge(&mut rows);
        Ok(rows)
    }

    /// Reads all tasks, in id order.
    pub fn tasks(&self) -> Result<Vec<TaskRow>, FormatError> {
        if let Some(side) = &self.side {
            return Ok(side.tasks.clone());
        }
        self.side_rows(&self.paths.tasks, |task: &TaskRow| task.id.0)
    }

    /// Checks that a side table belongs to this trace, and its checksum unless another program wrote it
    /// again.
    fn check_side_table(&self, path: &Path, table: &str) -> Result<(), FormatError> {
        let (_, metadata) = self.load_side_table(path, table)?;
        if is_by_klock(metadata.metadata()) { self.check_side_checksum(path, table) } else { Ok(()) }
    }

    fn check_side_checksum(&self, path: &Path, table: &str) -> Result<(), FormatError> {
        let expected = self.digest.as_ref().and_then(|digest| digest.sides.of(table));
        let Some(expected) = expected else { return Ok(()) };
        let (facts, file) = TraceFile::open(path)?;
        if facts.checksum(&file)? == expected {
            return Ok(());
        }
        Err(FormatError::Damaged { path: path.to_owned(), part: format!("the {table} table") })
    }

    /// Loads the footer of a side table and checks that the table belongs to this trace.
    fn load_side_table(
        &self,
        path: &Path,
        table: &str,
    ) -> Result<(TraceFile, ArrowReaderMetadata), FormatError> {
        if !path.exists() {
            let (path, main) = (path.to_owned(), self.paths.events.clone());
            return Err(FormatError::MissingSidecar { path, main });
        }
        let (file, metadata, _) = load(path)?;
        let json = footer::find_entry(path, metadata.metadata())?;
        let info: SidecarInfo = footer::parse_entry(path, json)?;
        if info.trace_id != self.info.trace_id || info.table != table {
            return Err(FormatError::ForeignSidecar {
                path: path.to_owned(),
                main: self.paths.events.clone(),
                expected: self.info.trace_id.clone(),
                found: format!("{} ({})", info.trace_id, info.table),
            });
        }
        file.check_count("rows", metadata.metadata().file_metadata().num_rows(), 1)?;
        let groups = metadata.metadata().row_groups().iter();
        // The values of each column; a list has several for a row.
        let values = groups.map(|group| group.columns().iter().map(|chunk| chunk.num_values()).max());
        file.check_count("values", values.flatten().fold(0, i64::saturating_add), FRAMES_PER_BYTE)?;
        Ok((file, metadata))
    }

    /// Reads all rows of a side table.
    fn side_rows<T: TableRow>(&self, path: &Path, id: impl Fn(&T) -> i32) -> Result<Vec<T>, FormatError> {
        let mut all = Vec::new();
        self.each_side_row(path, id, |row| all.push(row))?;
        Ok(all)
    }

    /// Calls `take` for each row of a side table. The id of a row must be its index.
    fn each_side_row<T: TableRow>(
        &self,
        path: &Path,
        id: impl Fn(&T) -> i32,
        mut take: impl FnMut(T),
    ) -> Result<(), FormatError> {
        let mut expected = 0;
        self.side_batches::<T>(
            path,
            |_| true,
            |source| {
                let arrays = T::decode(source)?;
                for index in 0..source.batch.num_rows() {
                    let row = T::row(&arrays, index);
                    let id = id(&row);
                    if usize::try_from(id) != Ok(expected) {
                        let detail = format!("id {id} in row {expected}, ids are dense from 0");
                        return Err(source.invalid(index, T::COLUMNS[0].name, detail));
                    }
                    expected += 1;
                    take(row);
                }
                Ok(())
            },
        )
    }

    /// Calls `read` for each batch of a side table, with the values whose paths in the schema are selected.
    /// Columns that this version does not know are left out.
    fn side_batches<T: TableRow>(
        &self,
        path: &Path,
        selects: impl Fn(&[String]) -> bool,
        mut read: impl FnMut(&Source<'_>) -> Result<(), FormatError>,
    ) -> Result<(), FormatError> {
        let (file, metadata) = self.load_side_table(path, T::TABLE)?;
        check_columns(path, metadata.schema(), T::COLUMNS, self.info.format.minor)?;
        let is_in = |columns: &[Column], name: &str| columns.iter().any(|column| column.name == name);
        let is_known = |parts: &[String]| match parts {
            [column] => is_in(T::COLUMNS, column),
            [column, .., field] => is_in(T::COLUMNS, column) && is_in(FRAME, field),
            [] => false,
        };
        let descriptor = metadata.metadata().file_metadata().schema_descr();
        let values = descriptor.columns().iter().map(|value| value.path().parts()).enumerate();
        let selected = values.filter(|(_, parts)| is_known(parts) && selects(parts)).map(|(index, _)| index);
        let projection = ProjectionMask::leaves(descriptor, selected);
        let reader = BatchReader::open(&file, (&metadata, None), projection, (None, SIDE_ROWS))?;
        let per_byte = if T::TABLE == Stack::TABLE { TEXT_OF_FRAMES_PER_BYTE } else { TEXT_PER_BYTE };
        let most = file.bytes.saturating_mul(per_byte).max(TEXT);
        let mut texts = 0;
        each_batch(&file, reader, &format!("the {} table", T::TABLE), |source| {
            texts += source.batch.columns().iter().map(|column| text_bytes(column)).sum::<u64>();
            if texts > most {
                return Err(file
                    .excess(format!("its texts have {texts} bytes in memory, and at most {most} are read")));
            }
            read(source)
        })
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
