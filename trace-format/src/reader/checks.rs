//! Calls into the Parquet decoder, whose panics and errors become errors of this crate; and checks of a file before its rows are read: Parquet's
//! magic words, the footer and the columns.

use std::{
    any::Any,
    cell::RefCell,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use parquet::{
    arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader},
    basic::Compression,
    errors::ParquetError,
    file::metadata::ParquetMetaData,
};

use crate::{
    FormatError,
    schema::{self, Column, ColumnType},
};

thread_local! {
    /// The file that this thread decodes.
    static DECODED: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// Returns the error for a panic with this payload, if this thread is inside the Parquet decoder. The decoder panics on some damaged
/// files. A program that unwinds gets the error from the reader. One that aborts asks for it in its panic hook.
pub fn error_of_panic(payload: &(dyn Any + Send)) -> Option<FormatError> {
    let path = DECODED.try_with(|decoded| decoded.try_borrow().ok()?.clone()).ok()??;
    Some(cannot_decode(&path, "the file", damaged(payload)))
}

fn damaged(payload: &(dyn Any + Send)) -> ParquetError {
    let message = payload.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("decoder panic");
    ParquetError::General(format!("damaged: {message}"))
}

/// Calls the Parquet library for the file at `path` and turns a panic into an error.
fn catch_panics<T>(path: &Path, read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    let outer = DECODED.replace(Some(path.to_owned()));
    let result = panic::catch_unwind(AssertUnwindSafe(read));
    DECODED.set(outer);
    result.unwrap_or_else(|panic| Err(damaged(&*panic)))
}

/// Decodes the next batch of the file at `path`.
pub(super) fn next_batch(
    path: &Path,
    reader: &mut ParquetRecordBatchReader,
) -> Option<Result<RecordBatch, ParquetError>> {
    catch_panics(path, || reader.next().transpose().map_err(ParquetError::from)).transpose()
}

/// Builds the error for `location`, a part of the file at `path`.
pub(super) fn cannot_decode(path: &Path, location: &str, source: ParquetError) -> FormatError {
    FormatError::parquet(path, format!("cannot decode {location}"), source)
}

pub(super) fn open_file(path: &Path) -> Result<File, FormatError> {
    File::open(path).map_err(FormatError::io(path))
}

/// Checks that the file starts and ends as a Parquet file.
pub(crate) fn check_complete(path: &Path) -> Result<(), FormatError> {
    check_magic(path, &mut open_file(path)?)
}

/// Loads the footer, with [`ColumnType::Enum`] columns as dictionaries. The errors tell apart why a file has no footer.
pub(super) fn load(path: &Path) -> Result<ArrowReaderMetadata, FormatError> {
    let mut file = open_file(path)?;
    check_magic(path, &mut file)?;
    let options = || ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let failed = |source| cannot_decode(path, "the footer", source);
    let metadata = catch_panics(path, || ArrowReaderMetadata::load(&file, options())).map_err(failed)?;
    check_codecs(path, metadata.metadata())?;
    with_dictionaries(path, Arc::clone(metadata.metadata()))
}

/// Returns the footer with [`ColumnType::Enum`] columns as dictionaries.
pub(super) fn with_dictionaries(
    path: &Path,
    footer: Arc<ParquetMetaData>,
) -> Result<ArrowReaderMetadata, FormatError> {
    let options = || ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let failed = |source| cannot_decode(path, "the footer", source);
    let metadata = catch_panics(path, || ArrowReaderMetadata::try_new(Arc::clone(&footer), options()))
        .map_err(failed)?;
    let fields: Vec<Field> = metadata.schema().fields().iter().map(|field| with_dictionary(field)).collect();
    let options = options().with_schema(Arc::new(Schema::new(fields)));
    catch_panics(path, || ArrowReaderMetadata::try_new(footer, options)).map_err(failed)
}

/// Checks that all columns are compressed in a way that this program decodes. Tools that rewrite tables choose their own.
fn check_codecs(path: &Path, metadata: &ParquetMetaData) -> Result<(), FormatError> {
    let mut columns = metadata.row_groups().iter().flat_map(|group| group.columns());
    let codec = columns.find_map(|column| match column.compression() {
        Compression::BROTLI(_) => Some("brotli"),
        Compression::LZO => Some("lzo"),
        _ => None,
    });
    codec.map_or(Ok(()), |codec| Err(FormatError::Codec { path: path.to_owned(), codec }))
}

fn with_dictionary(field: &Field) -> Field {
    let is_enum = |column: &Column| column.name == field.name() && column.column_type == ColumnType::Enum;
    let is_enum = schema::TABLES.iter().any(|(_, columns)| columns.iter().any(is_enum));
    if is_enum && *field.data_type() == DataType::Utf8 {
        field.clone().with_data_type(ColumnType::Enum.arrow())
    } else {
        field.clone()
    }
}

fn check_magic(path: &Path, file: &mut File) -> Result<(), FormatError> {
    let io = FormatError::io(path);
    let not_parquet =
        |detail: &str| FormatError::NotParquet { path: path.to_owned(), detail: detail.to_owned() };
    let metadata = file.metadata().map_err(&io)?;
    if metadata.is_dir() {
        return Err(io(io::ErrorKind::IsADirectory.into()));
    }
    let size = metadata.len();
    if size == 0 {
        return Err(not_parquet("it is empty"));
    }
    let mut magic = [0; 4];
    if size < 4 || file.read_exact(&mut magic).is_err() || &magic != b"PAR1" {
        return Err(not_parquet("it does not start with PAR1"));
    }
    let no_footer = || FormatError::NoFooter { path: path.to_owned(), size };
    if size < 12 {
        return Err(no_footer());
    }
    file.seek(SeekFrom::End(-4)).map_err(&io)?;
    file.read_exact(&mut magic).map_err(&io)?;
    if &magic != b"PAR1" {
        return Err(no_footer());
    }
    file.rewind().map_err(io)
}

/// Checks that all columns exist that a trace of this minor version has.
pub(super) fn check_columns(
    path: &Path,
    found: &SchemaRef,
    expected: &[Column],
    minor: u32,
) -> Result<(), FormatError> {
    for column in expected {
        let field = found.field_with_name(column.name).ok();
        if field.is_none() && column.since > minor {
            continue;
        }
        if !field.is_some_and(|field| is_same_type(field.data_type(), &column.column_type.arrow())) {
            return Err(FormatError::Column {
                path: path.to_owned(),
                column: column.name.to_owned(),
                expected: column.column_type.name().to_owned(),
                found: field.map_or_else(|| "nothing".to_owned(), |field| field.data_type().to_string()),
            });
        }
    }
    Ok(())
}

/// Compares types except for names of list elements, nullability, struct fields that this version does not know, and fields of
/// frames that a minor version added.
fn is_same_type(found: &DataType, expected: &DataType) -> bool {
    match (found, expected) {
        (DataType::List(f), DataType::List(e)) => is_same_type(f.data_type(), e.data_type()),
        (DataType::Struct(f), DataType::Struct(e)) => e.iter().all(|e| {
            let is_added = schema::FRAME.iter().any(|column| column.name == e.name() && column.since > 0);
            let field = f.iter().find(|f| f.name() == e.name());
            field.map_or(is_added, |field| is_same_type(field.data_type(), e.data_type()))
        }),
        _ => found == expected,
    }
}
