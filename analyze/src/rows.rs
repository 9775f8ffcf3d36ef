//! Rows of any table on their way out, one by one: as text, CSV, JSON, Markdown, Parquet or Arrow.
//!
//! [`Field`]s say what a row has, [`Cell`]s are what one row has there; they go to a [`Rows`] that [`writer`] made. No skin keeps rows,
//! but for the row group that Parquet compresses as one, so memory does not grow with the number of rows. What numbers mean and
//! which are shown is decided by who makes the fields.

use std::{borrow::Cow, fmt, io::Write, str::FromStr};

use crate::{choices::choices, error::AnalyzeError, layout::Look};

mod arrow;
mod batch;
mod csv;
mod json;
mod markdown;
mod parquet;
#[cfg(test)]
mod tests;
mod text;

choices! {
    /// How rows are written.
    Format, "format" {
        /// For people: the columns that matter, in units, as wide as the terminal.
        #[default]
        Text = "text",
        /// RFC 4180; times in ns, empty for what is not known.
        Csv = "csv",
        /// One object per line; times in ns, null for what is not known.
        Json = "json",
        /// A table for a document: the columns and units of the text.
        Md = "md",
        /// Apache Parquet; times in ns, null for what is not known.
        Parquet = "parquet",
        /// An Arrow IPC file (Feather); times in ns, null for what is not known.
        Arrow = "arrow",
    }
}

impl Format {
    /// Whether it is nothing for a terminal.
    pub const fn is_binary(self) -> bool {
        matches!(self, Self::Parquet | Self::Arrow)
    }
}

/// One column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name for programs, with its unit.
    pub name: Cow<'static, str>,
    /// Whether it holds text or whole numbers.
    pub is_text: bool,
    /// How people see it; `None` if they don't.
    pub shown: Option<Shown>,
}

/// How people see a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// What stands above it.
    pub head: Cow<'static, str>,
    /// What its values are.
    pub value: Value,
    /// How wide it is on a narrow and on a wide terminal.
    pub width: (usize, usize),
}

/// What the values of a column are, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Text.
    Text,
    /// A place in the code: shown without the directories of its file.
    Place,
    /// Nanoseconds since a begin: shown as seconds, with every digit.
    Moment,
    /// Nanoseconds: shown in a unit that suits them.
    Duration,
    /// A number of things.
    Count,
    /// Millionths: shown as percent.
    Ppm,
}

/// One value. Text must be safe to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell<'a> {
    /// Not known, or nothing to say.
    Null,
    /// A whole number.
    Int(i64),
    /// A text.
    Text(Cow<'a, str>),
}

impl Field {
    /// A number for programs only.
    pub fn number(name: impl Into<Cow<'static, str>>) -> Self {
        Self { name: name.into(), is_text: false, shown: None }
    }

    /// A text for programs only.
    pub fn text(name: impl Into<Cow<'static, str>>) -> Self {
        Self { name: name.into(), is_text: true, shown: None }
    }

    /// The same, for people too.
    #[must_use]
    pub fn shown(self, head: impl Into<Cow<'static, str>>, value: Value, width: (usize, usize)) -> Self {
        Self { shown: Some(Shown { head: head.into(), value, width }), ..self }
    }
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Cell<'_> {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<i64> for Cell<'_> {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<i32> for Cell<'_> {
    fn from(number: i32) -> Self {
        Self::Int(i64::from(number))
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell<'_> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Cell::Null, Into::into)
    }
}

/// Takes rows.
pub trait Rows {
    /// The next row: a cell for each field.
    ///
    /// # Errors
    ///
    /// [`AnalyzeError::Write`] with the cause that the output gave.
    fn push(&mut self, cells: &[Cell<'_>]) -> Result<(), AnalyzeError>;

    /// There are no more.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    fn finish(&mut self) -> Result<(), AnalyzeError>;
}

/// Rows in this format into `out`; how they look is for text only.
///
/// # Errors
///
/// [`AnalyzeError::Write`] with the cause that `out` gave: some formats begin with a head.
pub fn writer<'w>(
    format: Format,
    fields: &[Field],
    look: impl Into<Look>,
    out: &'w mut (dyn Write + Send),
) -> Result<Box<dyn Rows + 'w>, AnalyzeError> {
    Ok(match format {
        Format::Text => Box::new(text::TextRows::new(fields, look.into(), out)?),
        Format::Csv => Box::new(csv::CsvRows::new(fields, out)?),
        Format::Json => Box::new(json::JsonLines::new(fields, out)),
        Format::Md => Box::new(markdown::MarkdownRows::new(fields, out)?),
        Format::Parquet => Box::new(parquet::ParquetRows::new(fields, out)?),
        Format::Arrow => Box::new(arrow::ArrowRows::new(fields, out)?),
    })
}

/// A cell for people.
fn shown(cell: &Cell<'_>, value: Value) -> String {
    use crate::units;
    match (cell, value) {
        (Cell::Null, Value::Text | Value::Place) => String::new(),
        (Cell::Null, _) => "-".to_owned(),
        (Cell::Text(text), Value::Place) => without_directories(text).to_owned(),
        (Cell::Text(text), _) => text.clone().into_owned(),
        (Cell::Int(n), Value::Moment) => units::moment(*n),
        (Cell::Int(n), Value::Duration) => units::duration(*n),
        (Cell::Int(n), Value::Ppm) => format!("{:.1} %", *n as f64 / 1e4),
        (Cell::Int(n), Value::Count | Value::Text | Value::Place) => units::count(*n),
    }
}

/// `/home/me/app/src/main.rs:7 (run)` without what comes before `main.rs`.
fn without_directories(place: &str) -> &str {
    let file = place.split(' ').next().unwrap_or(place);
    // Only a file with a line has directories: functions may hold any sign.
    let has_line = file.rsplit_once(':').is_some_and(|(_, line)| line.parse::<u32>().is_ok());
    match file.rfind('/').filter(|_| has_line) {
        Some(at) => &place[at + 1..],
        None => place,
    }
}
