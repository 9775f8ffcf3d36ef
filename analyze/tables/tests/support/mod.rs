//! The rows of a table as text, for tests.

#![allow(clippy::unwrap_used, reason = "only tests call this")]

pub use intervals::testing::*;
use output::{AnalyzeError, Cell, Format, Page, Rows};

use crate::{
    Table,
    key::{Key, Part},
};

/// Rows as text, kept.
#[derive(Default)]
pub struct KeptRows(pub Vec<Vec<String>>);

impl Rows for KeptRows {
    fn push(&mut self, cells: &[Cell<'_>]) -> Result<(), AnalyzeError> {
        let text = |cell: &Cell<'_>| match cell {
            Cell::Null => "-".to_owned(),
            Cell::Int(number) => number.to_string(),
            Cell::Text(text) => text.clone().into_owned(),
        };
        self.0.push(cells.iter().map(text).collect());
        Ok(())
    }

    fn finish(&mut self) -> Result<(), AnalyzeError> {
        Ok(())
    }
}

/// Returns the table in this format.
pub fn written(table: &impl Table, format: Format, style: impl Into<output::layout::TextStyle>) -> String {
    let page = Page { format, style: style.into(), ..Page::default() };
    text_of(|out| table.write(&page, out))
}

impl Key {
    /// Returns the values of the columns, as text; empty if unknown.
    pub fn column_values(&self) -> Vec<String> {
        let text = |(_, part): &(_, Part)| match part.cell() {
            Cell::Null => String::new(),
            Cell::Int(number) => number.to_string(),
            Cell::Text(text) => text.into_owned(),
        };
        self.parts().iter().map(text).collect()
    }
}
