//! Rows as Parquet: 64-bit integers and text, everything nullable. A row group is kept in memory until it is whole.

use std::{io::Write, sync::Arc};

use arrow_array::{
    ArrayRef, RecordBatch,
    builder::{Int64Builder, StringBuilder},
};
use arrow_schema::{DataType, Field as ArrowField, Schema, SchemaRef};
use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, ZstdLevel},
    errors::ParquetError,
    file::properties::WriterProperties,
};

use super::{Cell, Field, Rows};
use crate::error::AnalyzeError;

/// Rows that are encoded together.
const BATCH_ROWS: usize = 16 * 1024;

/// Rows per row group: a few megabytes.
const GROUP_ROWS: usize = 256 * 1024;

pub(super) struct ParquetRows<'w> {
    schema: SchemaRef,
    columns: Vec<Column>,
    rows: usize,
    writer: ArrowWriter<&'w mut (dyn Write + Send)>,
}

enum Column {
    Numbers(Int64Builder),
    Texts(StringBuilder),
}

impl<'w> ParquetRows<'w> {
    pub(super) fn new(fields: &[Field], out: &'w mut (dyn Write + Send)) -> Result<Self, AnalyzeError> {
        let of = |field: &Field| if field.is_text { DataType::Utf8 } else { DataType::Int64 };
        let arrow: Vec<ArrowField> =
            fields.iter().map(|field| ArrowField::new(field.name.clone(), of(field), true)).collect();
        let schema = Arc::new(Schema::new(arrow));
        let properties = WriterProperties::builder()
            .set_created_by(format!("klock {}", env!("CARGO_PKG_VERSION")))
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).unwrap_or_default()))
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .build();
        let columns = fields.iter().map(|field| {
            if field.is_text {
                Column::Texts(StringBuilder::new())
            } else {
                Column::Numbers(Int64Builder::new())
            }
        });
        let columns = columns.collect();
        let writer = ArrowWriter::try_new(out, Arc::clone(&schema), Some(properties)).map_err(cause)?;
        Ok(Self { schema, columns, rows: 0, writer })
    }

    fn encode(&mut self) -> Result<(), AnalyzeError> {
        if self.rows == 0 {
            return Ok(());
        }
        let arrays = self.columns.iter_mut().map(|column| -> ArrayRef {
            match column {
                Column::Numbers(numbers) => Arc::new(numbers.finish()),
                Column::Texts(texts) => Arc::new(texts.finish()),
            }
        });
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), arrays.collect())
            .map_err(|error| AnalyzeError::Compute(error.into()))?;
        self.rows = 0;
        self.writer.write(&batch).map_err(cause)
    }
}

impl Rows for ParquetRows<'_> {
    fn push(&mut self, cells: &[Cell<'_>]) -> Result<(), AnalyzeError> {
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            match (column, cell) {
                (Column::Numbers(numbers), Cell::Int(number)) => numbers.append_value(*number),
                (Column::Numbers(numbers), _) => numbers.append_null(),
                (Column::Texts(texts), Cell::Text(text)) => texts.append_value(text),
                (Column::Texts(texts), Cell::Int(number)) => texts.append_value(number.to_string()),
                (Column::Texts(texts), Cell::Null) => texts.append_null(),
            }
        }
        self.rows += 1;
        if self.rows >= BATCH_ROWS { self.encode() } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<(), AnalyzeError> {
        self.encode()?;
        self.writer.finish().map_err(cause)?;
        self.writer.inner_mut().flush().map_err(AnalyzeError::Write)
    }
}

/// An error of the output is told from one of the encoder, as far as the library does.
fn cause(error: ParquetError) -> AnalyzeError {
    let error = match error {
        ParquetError::External(source) => match source.downcast::<std::io::Error>() {
            Ok(error) => *error,
            Err(source) => std::io::Error::other(source),
        },
        other => std::io::Error::other(other),
    };
    AnalyzeError::Write(error)
}
