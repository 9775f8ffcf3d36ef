//! Checks of a file before its rows are read: Parquet's magic words, the footer and the columns.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
    sync::Arc,
};

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use parquet::{
    arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions},
    basic::Compression,
    file::metadata::ParquetMetaData,
};

use super::decode::{cannot_decode, catch_panics};
use crate::{
    FormatError,
    schema::{self, Column, ColumnType},
};

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
