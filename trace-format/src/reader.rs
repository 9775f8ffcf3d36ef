//! A trace on disk to rows in memory: the footer first, the side tables whole, the events batch by batch.
//!
//! Opening checks what can be checked without reading rows: that it is Parquet, that klock wrote it, that its major
//! version is known, that every required column is there with its type, and that the side tables belong to the same
//! recording. Nothing is interpreted.

use std::{
    cell::Cell,
    fs::File,
    io::{Read, Seek, SeekFrom},
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{
            ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
            ParquetRecordBatchReaderBuilder,
        },
    },
    errors::ParquetError,
    file::metadata::ParquetMetaData,
};

use crate::{
    FORMAT_MAJOR, FormatError,
    event::EventKind,
    paths::{self, TracePaths},
    run_info::{KEY, RunInfo, SidecarInfo},
    schema::{self, Column, ColumnType},
    tables::{LockRow, Stack, TaskRow},
};

mod batch;
mod rows;

pub use batch::{Batch, RowOf};

/// Rows per batch when reading.
const BATCH_ROWS: usize = 64 * 1024;

/// An opened trace. Holds the footer; rows are read on demand.
#[derive(Debug)]
pub struct Trace {
    paths: TracePaths,
    info: RunInfo,
    metadata: ArrowReaderMetadata,
}

impl Trace {
    /// Opens the trace whose events are in `path`, and checks that its side tables are there and its own.
    pub fn open(path: &Path) -> Result<Self, FormatError> {
        let paths = TracePaths::of(path);
        let metadata = load(path)?;
        let json = footer_entry(metadata.metadata())
            .ok_or_else(|| FormatError::NotATrace { path: path.to_owned() })?;
        let side: SidecarInfo = parse(path, json)?;
        if side.format.major > FORMAT_MAJOR {
            return Err(FormatError::NewerMajor { path: path.to_owned(), found: side.format.major });
        }
        if side.table != "events" {
            let main = paths::main_of(path, &side.table);
            return Err(FormatError::SideTable { path: path.to_owned(), table: side.table, main });
        }
        let info: RunInfo = parse(path, json)?;
        check_columns(path, metadata.schema(), schema::EVENTS, side.format.minor)?;
        let trace = Self { paths, info, metadata };
        for (path, table) in
            [(&trace.paths.stacks, "stacks"), (&trace.paths.locks, "locks"), (&trace.paths.tasks, "tasks")]
        {
            trace.sidecar(path, table)?;
        }
        Ok(trace)
    }

    /// How it was made.
    pub fn info(&self) -> &RunInfo {
        &self.info
    }

    /// Its files.
    pub fn paths(&self) -> &TracePaths {
        &self.paths
    }

    /// Rows in the events file.
    pub fn event_count(&self) -> u64 {
        u64::try_from(self.metadata.metadata().file_metadata().num_rows()).unwrap_or(0)
    }

    /// Row groups in the events file.
    pub fn row_groups(&self) -> usize {
        self.metadata.metadata().num_row_groups()
    }

    /// Compressed bytes of each column of the events, in the order of the file.
    pub fn column_bytes(&self) -> Vec<(String, u64)> {
        let metadata = self.metadata.metadata();
        let columns = metadata.file_metadata().schema_descr().columns();
        let size = |at: usize| {
            metadata
                .row_groups()
                .iter()
                .map(|g| u64::try_from(g.column(at).compressed_size()).unwrap_or(0))
                .sum()
        };
        columns.iter().enumerate().map(|(at, c)| (c.name().to_owned(), size(at))).collect()
    }

    /// The events, batch by batch, in the order of the file.
    pub fn events(&self) -> Result<Batches, FormatError> {
        self.batches(None, &schema::EVENTS.iter().map(|column| column.name).collect::<Vec<_>>())
    }

    /// The events of one row group, of which there are [`row_groups`](Self::row_groups). Only the named columns are decoded, and `ts_ns` and `event`;
    /// the others are null in every row.
    pub fn row_group(&self, index: usize, columns: &[&str]) -> Result<Batches, FormatError> {
        self.batches(Some(index), columns)
    }

    fn batches(&self, row_group: Option<usize>, columns: &[&str]) -> Result<Batches, FormatError> {
        let path = &self.paths.events;
        let metadata = self.metadata.metadata();
        let columns = columns.iter().chain(&["ts_ns", "event"]).copied();
        let mask = ProjectionMask::columns(metadata.file_metadata().schema_descr(), columns);
        let mut builder =
            ParquetRecordBatchReaderBuilder::new_with_metadata(open_file(path)?, self.metadata.clone())
                .with_projection(mask)
                .with_batch_size(BATCH_ROWS);
        if let Some(index) = row_group {
            builder = builder.with_row_groups(vec![index]);
        }
        let reader = builder.build().map_err(|source| parquet_error(path, "the events", source))?;
        let before = metadata.row_groups().iter().take(row_group.unwrap_or(0));
        let row = before.map(|group| u64::try_from(group.num_rows()).unwrap_or(0)).sum();
        Ok(Batches { path: path.clone(), metadata: Arc::clone(metadata), reader, row })
    }

    /// How many events there are of each kind; only kinds that there are. Reads one column of the events.
    pub fn events_by_kind(&self) -> Result<Vec<(EventKind, u64)>, FormatError> {
        let path = &self.paths.events;
        let failed = |source| parquet_error(path, "the events", source);
        let mask =
            ProjectionMask::columns(self.metadata.metadata().file_metadata().schema_descr(), ["event"]);
        let mut reader =
            ParquetRecordBatchReaderBuilder::new_with_metadata(open_file(path)?, self.metadata.clone())
                .with_projection(mask)
                .with_batch_size(BATCH_ROWS)
                .build()
                .map_err(failed)?;
        let mut counts = vec![0; EventKind::ALL.len()];
        let mut first_row = 0;
        while let Some(batch) = next_batch(&mut reader) {
            let batch = batch.map_err(failed)?;
            rows::count_kinds(&rows::Source { path, row_group: 0, first_row, batch: &batch }, &mut counts)?;
            first_row += batch.num_rows() as u64;
        }
        let counts = EventKind::ALL.iter().copied().zip(counts);
        Ok(counts.filter(|(_, count)| *count > 0).collect())
    }

    /// Every stack, by id.
    pub fn stacks(&self) -> Result<Vec<Stack>, FormatError> {
        self.side_rows(&self.paths.stacks, "stacks", schema::STACKS, rows::stacks)
    }

    /// Every lock, by id.
    pub fn locks(&self) -> Result<Vec<LockRow>, FormatError> {
        self.side_rows(&self.paths.locks, "locks", schema::LOCKS, rows::locks)
    }

    /// Every task, by id.
    pub fn tasks(&self) -> Result<Vec<TaskRow>, FormatError> {
        self.side_rows(&self.paths.tasks, "tasks", schema::TASKS, rows::tasks)
    }

    fn sidecar(&self, path: &Path, table: &str) -> Result<ArrowReaderMetadata, FormatError> {
        if !path.exists() {
            let (path, main) = (path.to_owned(), self.paths.events.clone());
            return Err(FormatError::MissingSidecar { path, main });
        }
        let metadata = load(path)?;
        let json = footer_entry(metadata.metadata())
            .ok_or_else(|| FormatError::NotATrace { path: path.to_owned() })?;
        let info: SidecarInfo = parse(path, json)?;
        if info.trace_id != self.info.trace_id || info.table != table {
            return Err(FormatError::ForeignSidecar {
                path: path.to_owned(),
                main: self.paths.events.clone(),
                expected: self.info.trace_id.clone(),
                found: format!("{} ({})", info.trace_id, info.table),
            });
        }
        Ok(metadata)
    }

    fn side_rows<T>(
        &self,
        path: &Path,
        table: &str,
        columns: &[Column],
        read: impl Fn(&rows::Source<'_>, &mut Vec<T>) -> Result<(), FormatError>,
    ) -> Result<Vec<T>, FormatError> {
        let metadata = self.sidecar(path, table)?;
        check_columns(path, metadata.schema(), columns, self.info.format.minor)?;
        let failed = |source| parquet_error(path, &format!("the {table} table"), source);
        let mut reader = ParquetRecordBatchReaderBuilder::new_with_metadata(open_file(path)?, metadata)
            .with_batch_size(BATCH_ROWS)
            .build()
            .map_err(failed)?;
        let mut all = Vec::new();
        while let Some(batch) = next_batch(&mut reader) {
            let batch = batch.map_err(failed)?;
            let first_row = all.len() as u64;
            read(&rows::Source { path, row_group: 0, first_row, batch: &batch }, &mut all)?;
        }
        Ok(all)
    }
}

/// Iterates over the events of a trace.
#[derive(Debug)]
pub struct Batches {
    path: PathBuf,
    metadata: Arc<ParquetMetaData>,
    reader: ParquetRecordBatchReader,
    row: u64,
}

impl Iterator for Batches {
    type Item = Result<Batch, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        let row_group = self.row_group();
        let batch = match next_batch(&mut self.reader)? {
            Ok(batch) => batch,
            Err(error) => {
                let place = format!("row group {row_group}, row {}", self.row);
                return Some(Err(parquet_error(&self.path, &place, error)));
            }
        };
        let source = rows::Source { path: &self.path, row_group, first_row: self.row, batch: &batch };
        let result = rows::events(&source);
        self.row += batch.num_rows() as u64;
        Some(result)
    }
}

impl Batches {
    fn row_group(&self) -> usize {
        let mut end = 0;
        let groups = self.metadata.row_groups();
        groups
            .iter()
            .position(|g| {
                end += u64::try_from(g.num_rows()).unwrap_or(0);
                self.row < end
            })
            .unwrap_or(groups.len())
    }
}

fn open_file(path: &Path) -> Result<File, FormatError> {
    File::open(path).map_err(|source| FormatError::Io { path: path.to_owned(), source })
}

/// Whether it is Parquet from its first bytes to its last ones.
pub(crate) fn check_whole(path: &Path) -> Result<(), FormatError> {
    check_magic(path, &mut open_file(path)?)
}

/// The footer, with words as dictionaries; tells apart the ways in which a file can fail to have one.
fn load(path: &Path) -> Result<ArrowReaderMetadata, FormatError> {
    let mut file = open_file(path)?;
    check_magic(path, &mut file)?;
    let plain = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let failed = |source| parquet_error(path, "the footer", source);
    let metadata = guarded(|| ArrowReaderMetadata::load(&file, plain)).map_err(failed)?;
    let fields: Vec<Field> = metadata.schema().fields().iter().map(|f| with_dictionary(f)).collect();
    let options =
        ArrowReaderOptions::new().with_skip_arrow_metadata(true).with_schema(Arc::new(Schema::new(fields)));
    guarded(|| ArrowReaderMetadata::try_new(Arc::clone(metadata.metadata()), options)).map_err(failed)
}

thread_local! {
    static DECODING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is inside the Parquet decoder. A panic there becomes an error of this crate, so a panic hook need
/// not report it.
pub fn is_decoding() -> bool {
    DECODING.get()
}

/// What the Parquet library says, also where it panics: on damaged bytes it does in a few places, and to who reads a trace
/// that is one more kind of damage.
fn guarded<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    let outer = DECODING.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(read));
    DECODING.set(outer);
    result.unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("the decoder gave up");
        Err(ParquetError::General(format!("damaged: {words}")))
    })
}

fn next_batch(reader: &mut ParquetRecordBatchReader) -> Option<Result<RecordBatch, ParquetError>> {
    guarded(|| reader.next().transpose().map_err(ParquetError::from)).transpose()
}

fn with_dictionary(field: &Field) -> Field {
    let is_word = |c: &Column| c.name == field.name() && c.column_type == ColumnType::Word;
    let word = schema::TABLES.iter().any(|(_, columns)| columns.iter().any(is_word));
    if word && *field.data_type() == DataType::Utf8 {
        field.clone().with_data_type(ColumnType::Word.arrow())
    } else {
        field.clone()
    }
}

fn check_magic(path: &Path, file: &mut File) -> Result<(), FormatError> {
    let io = |source| FormatError::Io { path: path.to_owned(), source };
    let not_parquet =
        |detail: &str| FormatError::NotParquet { path: path.to_owned(), detail: detail.to_owned() };
    let metadata = file.metadata().map_err(io)?;
    if metadata.is_dir() {
        return Err(io(std::io::ErrorKind::IsADirectory.into()));
    }
    let size = metadata.len();
    if size == 0 {
        return Err(not_parquet("it is empty"));
    }
    let mut magic = [0; 4];
    if size < 4 || file.read_exact(&mut magic).is_err() || &magic != b"PAR1" {
        return Err(not_parquet("it does not begin with PAR1"));
    }
    let no_footer = || FormatError::NoFooter { path: path.to_owned(), size };
    if size < 12 {
        return Err(no_footer());
    }
    file.seek(SeekFrom::End(-4)).map_err(io)?;
    file.read_exact(&mut magic).map_err(io)?;
    if &magic != b"PAR1" {
        return Err(no_footer());
    }
    file.rewind().map_err(io)
}

fn footer_entry(metadata: &ParquetMetaData) -> Option<&str> {
    let entries = metadata.file_metadata().key_value_metadata()?;
    entries.iter().find(|e| e.key == KEY)?.value.as_deref()
}

fn parse<T: serde::de::DeserializeOwned>(path: &Path, json: &str) -> Result<T, FormatError> {
    serde_json::from_str(json).map_err(|source| FormatError::BadRunInfo { path: path.to_owned(), source })
}

/// Whether all columns are there that a trace of this minor version has.
fn check_columns(path: &Path, found: &SchemaRef, expected: &[Column], minor: u32) -> Result<(), FormatError> {
    for column in expected {
        let wanted = column.column_type.arrow();
        let field = found.field_with_name(column.name).ok();
        if field.is_none() && column.since > minor {
            continue;
        }
        let same = field.is_some_and(|f| same_type(f.data_type(), &wanted));
        if !same {
            return Err(FormatError::Column {
                path: path.to_owned(),
                column: column.name.to_owned(),
                expected: column.column_type.name().to_owned(),
                found: field.map_or_else(|| "nothing".to_owned(), |f| f.data_type().to_string()),
            });
        }
    }
    Ok(())
}

/// Equal up to names of list elements, nullability, and fields of a struct that this version does not know.
fn same_type(found: &DataType, wanted: &DataType) -> bool {
    match (found, wanted) {
        (DataType::List(f), DataType::List(w)) => same_type(f.data_type(), w.data_type()),
        (DataType::Struct(f), DataType::Struct(w)) => w
            .iter()
            .all(|w| f.iter().any(|f| f.name() == w.name() && same_type(f.data_type(), w.data_type()))),
        _ => found == wanted,
    }
}

fn parquet_error(path: &Path, place: &str, source: ParquetError) -> FormatError {
    FormatError::Parquet { path: path.to_owned(), place: format!("{place} can't be decoded"), source }
}
