//! Chooses the writer of a format.

use std::{borrow::Borrow, io::Write};

use super::{
    Cell, Column, Field, Format, Rows, arrow, csv::CsvRows, json::JsonLines, layout::TextStyle,
    markdown::MarkdownRows, parquet, text::TextRows,
};
use crate::error::AnalyzeError;

/// Returns a writer of rows in this format. The style is for text only.
///
/// # Errors
///
/// [`AnalyzeError::Write`] if a heading cannot be written.
pub fn writer<'w>(
    format: Format,
    fields: &[Field],
    style: impl Into<TextStyle>,
    out: &'w mut (dyn Write + Send),
) -> Result<Box<dyn Rows + 'w>, AnalyzeError> {
    Ok(match format {
        Format::Text => Box::new(TextRows::new(fields, style.into(), out)),
        Format::Csv => Box::new(CsvRows::new(fields, out)?),
        Format::Json => Box::new(JsonLines::new(fields, out)),
        Format::Md => Box::new(MarkdownRows::new(fields, out)?),
        Format::Parquet => Box::new(parquet::rows(fields, out)),
        Format::Arrow => Box::new(arrow::file(fields, out)?),
        Format::Arrows => Box::new(arrow::stream(fields, out)?),
    })
}

/// Writes a finished table's rows with the getters of its columns.
///
/// # Errors
///
/// [`AnalyzeError::Write`] with the error of the output.
pub fn write_rows<R>(
    format: Format,
    columns: &[Column<R>],
    rows: impl Iterator<Item = impl Borrow<R>>,
    out: &mut (dyn Write + Send),
) -> Result<(), AnalyzeError> {
    let fields: Vec<Field> = columns.iter().map(|column| column.field.clone()).collect();
    let mut writer = writer(format, &fields, None, out)?;
    for row in rows {
        let cells: Vec<Cell<'_>> = columns.iter().map(|column| column.cell(row.borrow())).collect();
        writer.push(&cells)?;
    }
    writer.finish()
}
