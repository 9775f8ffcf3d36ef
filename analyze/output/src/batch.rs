//! Rows collected by column, for the formats that store columns: nullable 64-bit integers and text.
//!
//! Cells come in row by row; a record batch goes out when it is full.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, RecordBatch,
    builder::{Int64Builder, StringBuilder},
};
use arrow_schema::{DataType, Field as ArrowField, Schema, SchemaRef};

use super::{Cell, Field};
use crate::error::AnalyzeError;

/// Rows per record batch.
const BATCH_ROWS: usize = 16 * 1024;

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
        let data_type = |field: &Field| if field.kind.is_text() { DataType::Utf8 } else { DataType::Int64 };
        let arrow: Vec<ArrowField> =
            fields.iter().map(|field| ArrowField::new(field.name.clone(), data_type(field), true)).collect();
        let column = |field: &Field| {
            if field.kind.is_text() {
                Column::Texts(StringBuilder::new())
            } else {
                Column::Numbers(Int64Builder::new())
            }
        };
        Self { schema: Arc::new(Schema::new(arrow)), columns: fields.iter().map(column).collect(), rows: 0 }
    }

    pub(super) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Adds a row. Returns whether the batch is full.
    pub(super) fn push(&mut self, cells: &[Cell<'_>]) -> bool {
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

    /// Takes the rows since the last batch; `None` if there are none.
    pub(super) fn take(&mut self) -> Result<Option<RecordBatch>, AnalyzeError> {
        if std::mem::take(&mut self.rows) == 0 {
            return Ok(None);
        }
        let schema = self.schema();
        let arrays = self.columns.iter_mut().map(|column| -> ArrayRef {
            match column {
                Column::Numbers(numbers) => Arc::new(numbers.finish()),
                Column::Texts(texts) => Arc::new(texts.finish()),
            }
        });
        let batch = RecordBatch::try_new(schema, arrays.collect());
        batch.map(Some).map_err(|error| AnalyzeError::Compute(error.into()))
    }
}
