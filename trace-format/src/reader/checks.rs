//! The columns of a file: the Arrow types in which they are read, and whether all are there.

use std::{path::Path, sync::Arc};

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use parquet::{
    arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions},
    file::metadata::ParquetMetaData,
};

use crate::{
    FormatError,
    gate::panics::{cannot_decode, catch_panics},
    schema::{self, Column, ColumnType},
};

/// Returns the footer with the types of [`ColumnType::arrow`].
pub(super) fn with_types(
    path: &Path,
    footer: Arc<ParquetMetaData>,
) -> Result<ArrowReaderMetadata, FormatError> {
    let options = || ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let failed = |source| cannot_decode(path, "the footer", source);
    let metadata = catch_panics(path, || ArrowReaderMetadata::try_new(Arc::clone(&footer), options()))
        .map_err(failed)?;
    let fields: Vec<Field> = metadata.schema().fields().iter().map(|field| with_type(field)).collect();
    let options = options().with_schema(Arc::new(Schema::new(fields)));
    catch_panics(path, || ArrowReaderMetadata::try_new(footer, options)).map_err(failed)
}

/// Words become dictionaries, and other texts become views, which share the bytes of equal texts.
fn with_type(field: &Field) -> Field {
    let is_enum = |column: &Column| column.name == field.name() && column.column_type == ColumnType::Enum;
    let data_type = match field.data_type() {
        DataType::Utf8 if schema::TABLES.iter().any(|(_, columns)| columns.iter().any(is_enum)) => {
            ColumnType::Enum.arrow()
        }
        DataType::Utf8 => ColumnType::Text.arrow(),
        DataType::List(element) => DataType::List(Arc::new(with_type(element))),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(|field| with_type(field)).collect()),
        other => other.clone(),
    };
    field.clone().with_data_type(data_type)
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

/// Compares types except for names of list elements, nullability, struct fields that this version does not
/// know, and fields of frames that a minor version added.
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
