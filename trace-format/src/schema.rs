//! The columns of all tables: their Arrow schemas, and the tables in `docs/trace-format.md`. They are
//! declared in [`event`](crate::event) and [`tables`](crate::tables), each once.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Fields, Schema, SchemaRef};

pub use crate::{
    event::EVENTS,
    field::{Column, ColumnType},
    tables::{FRAME, LOCKS, STACKS, TASKS},
};

impl ColumnType {
    /// Returns the Arrow type. [`Self::Enum`] is a dictionary in memory and [`Self::Text`] a view; both are
    /// plain strings in the file.
    pub(crate) fn arrow(self) -> DataType {
        match self {
            Self::Int32 => DataType::Int32,
            Self::Int64 => DataType::Int64,
            Self::Enum => DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
            Self::Text => DataType::Utf8View,
            Self::Bool => DataType::Boolean,
            Self::Frames => DataType::List(Arc::new(arrow_schema::Field::new(
                "element",
                DataType::Struct(fields(FRAME)),
                false,
            ))),
        }
    }
}

/// The four tables, by the name in their footers.
pub const TABLES: &[(&str, &[Column])] =
    &[("events", EVENTS), ("stacks", STACKS), ("locks", LOCKS), ("tasks", TASKS)];

fn fields(columns: &[Column]) -> Fields {
    columns.iter().map(|c| arrow_schema::Field::new(c.name, c.column_type.arrow(), c.nullable)).collect()
}

/// Returns the Arrow schema of a table.
pub fn arrow_schema(columns: &[Column]) -> SchemaRef {
    Arc::new(Schema::new(fields(columns)))
}

/// Returns a batch of rows that a table encoded.
pub(crate) fn record_batch(columns: &[Column], arrays: Vec<ArrayRef>) -> RecordBatch {
    RecordBatch::try_new(arrow_schema(columns), arrays)
        .expect("the columns follow the declarations that the schema is made from")
}

/// Returns the tables of `docs/trace-format.md` in Markdown.
pub fn markdown() -> String {
    let mut text = String::new();
    let parts = TABLES.iter().copied().chain([("frame (element of frames)", FRAME)]);
    for (name, columns) in parts {
        text.push_str(&format!("\n### {name}\n\n| column | type | null | meaning |\n|---|---|---|---|\n"));
        for c in columns {
            let null = if c.nullable { "yes" } else { "" };
            text.push_str(&format!(
                "| {} | {} | {null} | {} |\n",
                c.name,
                c.column_type.name(),
                c.description
            ));
        }
    }
    text
}
