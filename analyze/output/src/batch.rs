//! Rows collected by column, for the formats that store columns: nullable 64-bit integers and text.
//!
//! Cells are added row by row. A record batch is written when it is full.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, RecordBatch,
    builder::{Int64Builder, StringBuilder},
};
use arrow_schema::{DataType, Field as ArrowField, Schema, SchemaRef};

use super::{Cell, Field, Rows};
use crate::error::AnalyzeError;

/// Rows per record batch.
const BATCH_ROWS: usize = 16 * 1024;

/// Writes a batch, or the end after the last one.
type Encode<'w> = Box<dyn FnMut(Option<RecordBatch>) -> Result<(), AnalyzeError> + 'w>;

pub(super) struct BatchRows<'w> {
    batch: Batch,
    encode: Encode<'w>,
}

impl<'w> BatchRows<'w> {
    /// Returns rows that `encode` writes: with each batch, then without one at the end.
    pub(super) fn new(
        batch: Batch,
        encode: impl FnMut(Option<RecordBatch>) -> Result<(), AnalyzeError> + 'w,
    ) -> Self {
        Self { batch, encode: Box::new(encode) }
    }
}

impl Rows for BatchRows<'_> {
    fn push(&mut self, cells: &[Cell<'_>]) -> Result<(), AnalyzeError> {
        if self.batch.push(cells) { (self.encode)(Some(self.batch.take()?)) } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<(), AnalyzeError> {
        if self.batch.rows > 0 {
            (self.encode)(Some(self.batch.take()?))?;
        }
        (self.encode)(None)
    }
}

/// Columns of the rows since the last record batch.
pub(super) struct Batch {
    schema: SchemaRef,
    columns: Vec<Column>,
    rows: usize,
}

enum Column {
    Numbers(Int64Builder),
    Texts(StringBuilder),
}

impl Batch {
    pub(super) fn new(fields: &[Field]) -> Self {
        let column = |field: &Field| match field.kind.is_text() {
            true => (DataType::Utf8, Column::Texts(StringBuilder::new())),
            false => (DataType::Int64, Column::Numbers(Int64Builder::new())),
        };
        let (types, columns): (Vec<DataType>, Vec<Column>) = fields.iter().map(column).unzip();
        let arrow = fields.iter().zip(types).map(|(field, of)| ArrowField::new(field.name.clone(), of, true));
        let schema = Arc::new(Schema::new(arrow.collect::<Vec<_>>()));
        Self { schema, columns, rows: 0 }
    }

    pub(super) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Adds a row. Returns whether the batch is full.
    fn push(&mut self, cells: &[Cell<'_>]) -> bool {
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
        self.rows >= BATCH_ROWS
    }

    /// Takes the rows since the last batch.
    fn take(&mut self) -> Result<RecordBatch, AnalyzeError> {
        self.rows = 0;
        let arrays = self.columns.iter_mut().map(|column| -> ArrayRef {
            match column {
                Column::Numbers(numbers) => Arc::new(numbers.finish()),
                Column::Texts(texts) => Arc::new(texts.finish()),
            }
        });
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), arrays.collect());
        batch.map_err(|error| AnalyzeError::Compute(error.into()))
    }
}
