//! How a table is declared: once, as a list of fields with their columns, types and meanings. Its row, its
//! decoded columns, its Arrow schema, the reader's checks and its part of `docs/trace-format.md` follow from
//! the list. And the types of fields: how a field is stored in the column buffers of the recorder, encoded as
//! an Arrow column and decoded from one. A value that the format does not allow is an error that names its
//! row and column.

use std::{borrow::Cow, fmt, path::Path, str::FromStr, sync::Arc};

use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, Int32Array, Int64Array, ListArray, RecordBatch,
    StringArray, StringViewArray, StructArray, cast::AsArray as _, types::Int32Type,
};

use crate::FormatError;

/// A type that a field of a row can have.
pub(crate) trait Field: Sized {
    const TYPE: ColumnType;
    /// Whether the column may have nulls.
    const NULLABLE: bool;
    /// A decoded column.
    type Column: Clone + fmt::Debug;

    /// Decodes the column of a batch.
    fn decode(source: &Source<'_>, name: &'static str) -> Result<Self::Column, FormatError>;

    /// Returns the field of a row.
    fn get(column: &Self::Column, row: usize) -> Self;

    /// Encodes the fields of rows.
    fn encode<'a>(values: impl Iterator<Item = &'a Self>) -> ArrayRef
    where
        Self: 'a;
}

/// A type that a field of an event can have.
pub(crate) trait EventField: Field {
    /// A value in a column buffer.
    type Stored: Copy + fmt::Debug;

    /// Returns the stored value; `None` is null.
    fn store(self) -> Option<Self::Stored>;

    /// Returns the field with this value.
    fn load(value: Option<Self::Stored>) -> Self;

    /// Returns the values for the writer.
    fn values(values: &[Self::Stored]) -> Values<'_>;
}

/// The values of a column that are not null.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Values<'a> {
    /// Of an `Int32` column.
    Int32(&'a [i32]),
    /// Of an `Int64` column.
    Int64(&'a [i64]),
    /// Of an `Enum` column: the indices of words, and the words.
    Words(&'a [u16], fn(u16) -> Cow<'static, str>),
}

impl Values<'_> {
    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Int32(values) => values.len(),
            Self::Int64(values) => values.len(),
            Self::Words(values, _) => values.len(),
        }
    }
}

/// Implements the traits for numbers and ids, and for optional ones.
macro_rules! numbers {
    ($($type:ty: $column:ident $array:ident $native:ty, $to:expr, $from:expr;)+) => { $(
        impl Field for $type {
            const TYPE: ColumnType = ColumnType::$column;
            const NULLABLE: bool = false;
            type Column = $array;

            fn decode(source: &Source<'_>, name: &'static str) -> Result<$array, FormatError> {
                source.required(name)
            }

            #[inline]
            fn get(column: &$array, row: usize) -> Self {
                $from(column.value(row))
            }

            fn encode<'a>(values: impl Iterator<Item = &'a Self>) -> ArrayRef {
                Arc::new($array::from_iter_values(values.map(|&value| $to(value))))
            }
        }

        impl Field for Option<$type> {
            const TYPE: ColumnType = ColumnType::$column;
            const NULLABLE: bool = true;
            type Column = Option<$array>;

            fn decode(source: &Source<'_>, name: &'static str) -> Result<Option<$array>, FormatError> {
                source.optional(name)
            }

            #[inline]
            fn get(column: &Option<$array>, row: usize) -> Self {
                let column = column.as_ref()?;
                column.is_valid(row).then(|| $from(column.value(row)))
            }

            fn encode<'a>(values: impl Iterator<Item = &'a Self>) -> ArrayRef {
                Arc::new(values.map(|value| value.map($to)).collect::<$array>())
            }
        }

        impl EventField for Option<$type> {
            type Stored = $native;

            fn store(self) -> Option<$native> {
                self.map($to)
            }

            fn load(value: Option<$native>) -> Self {
                value.map($from)
            }

            fn values(values: &[$native]) -> Values<'_> {
                Values::$column(values)
            }
        }
    )+ };
}

numbers! {
    i32: Int32 Int32Array i32, i32::from, i32::from;
    i64: Int64 Int64Array i64, i64::from, i64::from;
    u64: Int64 Int64Array i64, u64::cast_signed, i64::cast_unsigned;
}

impl EventField for i64 {
    type Stored = Self;

    fn store(self) -> Option<Self> {
        Some(self)
    }

    fn load(value: Option<Self>) -> Self {
        value.unwrap_or_default()
    }

    fn values(values: &[Self]) -> Values<'_> {
        Values::Int64(values)
    }
}

/// Implements [`Field`] for words, and for optional ones.
macro_rules! words {
    ($($type:ty)+) => { $(
        impl Field for $type {
            const TYPE: ColumnType = ColumnType::Enum;
            const NULLABLE: bool = false;
            type Column = Vec<Self>;

            fn decode(source: &Source<'_>, name: &'static str) -> Result<Vec<Self>, FormatError> {
                source.required_words(name)
            }

            #[inline]
            fn get(column: &Vec<Self>, row: usize) -> Self {
                column[row]
            }

            fn encode<'a>(values: impl Iterator<Item = &'a Self>) -> ArrayRef {
                encode_words(values.map(|word| Some(word.to_string())))
            }
        }

        impl Field for Option<$type> {
            const TYPE: ColumnType = ColumnType::Enum;
            const NULLABLE: bool = true;
            type Column = Option<Vec<Self>>;

            fn decode(source: &Source<'_>, name: &'static str) -> Result<Option<Vec<Self>>, FormatError> {
                source.batch.column_by_name(name).map(|_| source.words(name)).transpose()
            }

            #[inline]
            fn get(column: &Option<Vec<Self>>, row: usize) -> Self {
                column.as_ref().and_then(|column| column[row])
            }

            fn encode<'a>(values: impl Iterator<Item = &'a Self>) -> ArrayRef {
                encode_words(values.map(|word| word.map(|word| word.to_string())))
            }
        }
    )+ };
}

pub(crate) fn encode_words(words: impl Iterator<Item = Option<String>>) -> ArrayRef {
    let words: Vec<Option<String>> = words.collect();
    Arc::new(words.iter().map(Option::as_deref).collect::<DictionaryArray<Int32Type>>())
}

/// Implements [`EventField`] for words, which are stored by their numbers.
macro_rules! event_words {
    ($($type:ty: $to:expr, $from:expr, $name:expr;)+) => { $(
        impl EventField for $type {
            type Stored = u16;

            fn store(self) -> Option<u16> {
                $to(self)
            }

            fn load(value: Option<u16>) -> Self {
                $from(value)
            }

            fn values(values: &[u16]) -> Values<'_> {
                Values::Words(values, |index| $name(Self::load(Some(index))))
            }
        }
    )+ };
}

/// Returns the value of an enum with this index.
pub(crate) fn word_at<T: Copy>(all: &[T], index: Option<u16>) -> Option<T> {
    all.get(usize::from(index?)).copied()
}

impl Field for Option<String> {
    const TYPE: ColumnType = ColumnType::Text;
    const NULLABLE: bool = true;
    type Column = Option<StringViewArray>;

    fn decode(source: &Source<'_>, name: &'static str) -> Result<Option<StringViewArray>, FormatError> {
        source.optional(name)
    }

    fn get(column: &Option<StringViewArray>, row: usize) -> Self {
        let column = column.as_ref()?;
        column.is_valid(row).then(|| cut(column.value(row)).into_owned())
    }

    fn encode<'a>(values: impl Iterator<Item = &'a Self>) -> ArrayRef {
        Arc::new(values.map(Self::as_deref).collect::<StringViewArray>())
    }
}

/// Maximum length of a text. The recorder makes no longer ones.
const MAX_TEXT: usize = 16 << 10;

/// Cuts a text to the maximum, with a mark at its end.
fn cut(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_TEXT {
        return Cow::Borrowed(text);
    }
    let end = (0..=MAX_TEXT).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    Cow::Owned(format!("{}\u{2026}", &text[..end]))
}

/// Returns the number of bytes that the texts of a column will take, without those that are cut off.
pub(crate) fn text_bytes(column: &dyn Array) -> u64 {
    if let Some(texts) = column.as_string_view_opt() {
        return texts.lengths().map(|length| u64::from(length).min(MAX_TEXT as u64)).sum();
    }
    if let Some(list) = column.as_list_opt::<i32>() {
        return text_bytes(list.values());
    }
    column.as_struct_opt().map_or(0, |fields| fields.columns().iter().map(|field| text_bytes(field)).sum())
}

/// A flag of a frame. Null, and a column that older traces lack, are false.
impl Field for bool {
    const TYPE: ColumnType = ColumnType::Bool;
    const NULLABLE: Self = false;
    type Column = Option<BooleanArray>;

    fn decode(source: &Source<'_>, name: &'static str) -> Result<Option<BooleanArray>, FormatError> {
        source.optional(name)
    }

    fn get(column: &Option<BooleanArray>, row: usize) -> Self {
        column.as_ref().is_some_and(|column| column.is_valid(row) && column.value(row))
    }

    fn encode<'a>(values: impl Iterator<Item = &'a Self>) -> ArrayRef {
        Arc::new(values.map(|&value| Some(value)).collect::<BooleanArray>())
    }
}

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
    /// Declares a column of this type. `since` is 0, or the minor version that added the column; such columns
    /// are nullable.
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
    fn encode<'a>(rows: impl Iterator<Item = &'a Self> + Clone) -> Vec<ArrayRef>
    where
        Self: 'a;
}

/// Declares a table once: the name in its footer, its columns, its row and its decoded columns. A column is
/// `FIELD "COLUMN" since MINOR: TYPE = "MEANING";`, where `since` stands for columns that a later minor
/// version added.
macro_rules! table {
    ($table:literal, $(#[$doc:meta])* $columns:ident, $(#[$row_doc:meta])* $row:ident, $(#[$arrays_doc:meta])* $vis:vis $arrays:ident {
        $($field:ident $name:literal $(since $minor:literal)?: $type:ty = $description:literal;)+
    }) => {
        $(#[$doc])*
        pub const $columns: &[$crate::field::Column] =
            &[$($crate::field::Column::of::<$type>($name, 0 $(+ $minor)?, $description),)+];

        $(#[$row_doc])*
        pub struct $row {
            $(#[doc = $description] pub $field: $type,)+
        }

        $(#[$arrays_doc])*
        #[derive(Clone, Debug)]
        $vis struct $arrays {
            $(pub(crate) $field: <$type as $crate::field::Field>::Column,)+
        }

        impl $crate::field::TableRow for $row {
            const TABLE: &'static str = $table;
            const COLUMNS: &'static [$crate::field::Column] = $columns;
            type Arrays = $arrays;

            fn decode(source: &$crate::field::Source<'_>) -> Result<$arrays, $crate::FormatError> {
                Ok($arrays { $($field: <$type as $crate::field::Field>::decode(source, $name)?,)+ })
            }

            fn row(arrays: &$arrays, row: usize) -> Self {
                Self { $($field: $crate::field::Field::get(&arrays.$field, row),)+ }
            }

            fn encode<'a>(rows: impl Iterator<Item = &'a Self> + Clone) -> Vec<arrow_array::ArrayRef> {
                vec![$($crate::field::Field::encode(rows.clone().map(|row| &row.$field)),)+]
            }
        }
    };
}

pub(crate) use {event_words, numbers, table, words};

/// A record batch and its position in the file.
pub(crate) struct Source<'a> {
    pub(crate) path: &'a Path,
    pub(crate) row_group: usize,
    pub(crate) first_row: u64,
    pub(crate) batch: &'a RecordBatch,
}

impl Source<'_> {
    /// Builds the error for an invalid value.
    pub(crate) fn invalid(&self, row: usize, column: &'static str, detail: impl Into<String>) -> FormatError {
        FormatError::Value {
            path: self.path.to_owned(),
            row_group: self.row_group,
            row: self.first_row + row as u64,
            column,
            detail: detail.into(),
        }
    }

    /// Returns the column, if the batch has it. Its type was checked when the file was opened.
    pub(crate) fn optional<T: Array + Clone + 'static>(
        &self,
        name: &'static str,
    ) -> Result<Option<T>, FormatError> {
        let Some(column) = self.batch.column_by_name(name) else { return Ok(None) };
        let column = column.as_any().downcast_ref::<T>();
        column.cloned().map(Some).ok_or_else(|| self.invalid(0, name, "the column has another type here"))
    }

    fn column<T: Array + Clone + 'static>(&self, name: &'static str) -> Result<T, FormatError> {
        self.optional(name)?.ok_or_else(|| self.invalid(0, name, "the column is missing here"))
    }

    /// Returns the column and checks that it has no nulls.
    pub(crate) fn required<T: Array + Clone + 'static>(&self, name: &'static str) -> Result<T, FormatError> {
        let column: T = self.column(name)?;
        let nulls = column.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        match nulls.and_then(|nulls| nulls.iter().position(|valid| !valid)) {
            Some(row) => Err(self.null(row, name)),
            None => Ok(column),
        }
    }

    fn null(&self, row: usize, name: &'static str) -> FormatError {
        self.invalid(row, name, "null, but the format requires a value")
    }

    /// Decodes a column of words, which may be null.
    pub(crate) fn words<T: FromStr<Err: ToString> + Copy>(
        &self,
        name: &'static str,
    ) -> Result<Vec<Option<T>>, FormatError> {
        let column: DictionaryArray<Int32Type> = self.column(name)?;
        let words = column.values().as_any().downcast_ref::<StringArray>();
        let words = words.ok_or_else(|| self.invalid(0, name, "not a text column"))?;
        let parsed: Vec<Result<T, String>> = words
            .iter()
            .map(|word| cut(word.unwrap_or("")).parse::<T>().map_err(|error| error.to_string()))
            .collect();
        let known: Vec<Option<T>> = parsed.iter().map(|word| word.as_ref().ok().copied()).collect();
        if known.iter().any(Option::is_none) {
            let invalid = |row| Some((row, parsed[column.key(row)?].as_ref().err()?));
            if let Some((row, detail)) = (0..column.len()).find_map(invalid) {
                return Err(self.invalid(row, name, detail.clone()));
            }
        }
        let keys = column.keys().values().iter();
        Ok(match column.keys().nulls() {
            None => keys.map(|&key| known[key as usize]).collect(),
            Some(nulls) => {
                keys.zip(nulls).map(|(&key, valid)| if valid { known[key as usize] } else { None }).collect()
            }
        })
    }

    /// Decodes a column of words without nulls.
    pub(crate) fn required_words<T: FromStr<Err: ToString> + Copy>(
        &self,
        name: &'static str,
    ) -> Result<Vec<T>, FormatError> {
        let words = self.words(name)?.into_iter().enumerate();
        words.map(|(row, word)| word.ok_or_else(|| self.null(row, name))).collect()
    }

    /// Returns the column of frames: the lists, and the frames of all lists.
    pub(crate) fn frames(&self, name: &'static str) -> Result<(ListArray, StructArray), FormatError> {
        let lists: ListArray = self.required(name)?;
        let frames = lists.values().as_any().downcast_ref::<StructArray>().cloned();
        Ok((lists, frames.ok_or_else(|| self.invalid(0, name, "not a list of frames"))?))
    }
}
