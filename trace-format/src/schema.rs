//! How a table is declared: once, as a list of fields with their columns, types and meanings. Its row, its decoded columns, its Arrow
//! schema, the reader's checks and its part of `docs/trace-format.md` follow from the list. The lists are in [`event`](crate::event) and
//! [`tables`](crate::tables), the types of fields in `field.rs`.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Fields, Schema, SchemaRef};

use crate::{
    FormatError,
    field::{Field, Source},
};
pub use crate::{
    event::EVENTS,
    tables::{FRAME, LOCKS, STACKS, TASKS},
};

/// The type of a column. Mostly signed integers and text, because every query engine reads those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// 32-bit signed integer.
    Int32,
    /// 64-bit signed integer.
    Int64,
    /// Dictionary-encoded text with a fixed set of values.
    Enum,
    /// UTF-8 text.
    Text,
    /// True or false.
    Bool,
    /// List of the frames of a stack.
    Frames,
}

impl ColumnType {
    /// Returns the name of the type in the documentation.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Enum | Self::Text => "string",
            Self::Bool => "boolean",
            Self::Frames => "list of frame",
        }
    }

    /// Returns the Arrow type. [`Self::Enum`] is a dictionary in memory, and a plain string in the file.
    pub(crate) fn arrow(self) -> DataType {
        match self {
            Self::Int32 => DataType::Int32,
            Self::Int64 => DataType::Int64,
            Self::Enum => DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
            Self::Text => DataType::Utf8,
            Self::Bool => DataType::Boolean,
            Self::Frames => DataType::List(Arc::new(arrow_schema::Field::new(
                "element",
                DataType::Struct(fields(FRAME)),
                false,
            ))),
        }
    }
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Name of the column, which includes the unit.
    pub name: &'static str,
    /// Type of the column.
    pub column_type: ColumnType,
    /// Whether values may be null: not measured, or not applicable.
    pub nullable: bool,
    /// Meaning of the column.
    pub description: &'static str,
    /// Minor version of the format that added the column. In older traces it is missing, which reads as null.
    pub since: u32,
}

impl Column {
    /// Declares a column of this type. `since` is 0, or the minor version that added the column; such columns are nullable.
    pub(crate) const fn of<F: Field>(name: &'static str, since: u32, description: &'static str) -> Self {
        Self { name, column_type: F::TYPE, nullable: F::NULLABLE || since > 0, description, since }
    }
}

/// A row of a table: its columns, and its way out of and into Arrow.
pub(crate) trait TableRow: Sized {
    /// The name of the table in the footer.
    const TABLE: &'static str;
    /// The columns, in the order of the file.
    const COLUMNS: &'static [Column];
    /// The decoded columns of a batch.
    type Arrays;

    /// Decodes the columns of a batch.
    fn decode(source: &Source<'_>) -> Result<Self::Arrays, FormatError>;

    /// Copies a row.
    fn row(arrays: &Self::Arrays, row: usize) -> Self;

    /// Encodes rows as Arrow columns.
    fn encode<'a>(rows: impl Iterator<Item = &'a Self> + Clone) -> RecordBatch
    where
        Self: 'a;
}

/// Declares a table once: the name in its footer, its columns, its row and its decoded columns. A column is
/// `FIELD "COLUMN" since MINOR: TYPE = "MEANING";`, where `since` stands for columns that a later minor version added.
macro_rules! table {
    ($table:literal, $(#[$doc:meta])* $columns:ident, $(#[$row_doc:meta])* $row:ident, $(#[$arrays_doc:meta])* $vis:vis $arrays:ident {
        $($field:ident $name:literal $(since $minor:literal)?: $type:ty = $description:literal;)+
    }) => {
        $(#[$doc])*
        pub const $columns: &[$crate::schema::Column] =
            &[$($crate::schema::Column::of::<$type>($name, 0 $(+ $minor)?, $description),)+];

        $(#[$row_doc])*
        pub struct $row {
            $(#[doc = $description] pub $field: $type,)+
        }

        $(#[$arrays_doc])*
        #[derive(Clone, Debug)]
        $vis struct $arrays {
            $(pub(crate) $field: <$type as $crate::field::Field>::Column,)+
        }

        impl $crate::schema::TableRow for $row {
            const TABLE: &'static str = $table;
            const COLUMNS: &'static [$crate::schema::Column] = $columns;
            type Arrays = $arrays;

            fn decode(source: &$crate::field::Source<'_>) -> Result<$arrays, $crate::FormatError> {
                Ok($arrays { $($field: <$type as $crate::field::Field>::decode(source, $name)?,)+ })
            }

            fn row(arrays: &$arrays, row: usize) -> Self {
                Self { $($field: $crate::field::Field::get(&arrays.$field, row),)+ }
            }

            fn encode<'a>(rows: impl Iterator<Item = &'a Self> + Clone) -> arrow_array::RecordBatch {
                let columns = vec![$($crate::field::Field::encode(rows.clone().map(|row| &row.$field)),)+];
                arrow_array::RecordBatch::try_new($crate::schema::arrow_schema($columns), columns)
                    .expect("the columns follow the declarations that the schema is made from")
            }
        }
    };
}
pub(crate) use table;

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
