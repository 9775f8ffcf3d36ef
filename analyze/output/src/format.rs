//! The formats of a table, and the page that one is written on.

use super::layout::TextStyle;
use crate::choices;

choices! {
    /// The format of rows.
    Format, "format" {
        /// For people: the columns that matter, in units, as wide as the terminal.
        #[default]
        Text = "text",
        /// RFC 4180; times in ns, empty for an unknown value.
        Csv = "csv",
        /// A JSON document, or one object per line for rows that are written as they are read; times in ns,
        /// null for an unknown value.
        Json = "json",
        /// A Markdown table: the columns and units of the text.
        Md = "md",
        /// Apache Parquet; times in ns, null for an unknown value.
        Parquet = "parquet",
        /// An Arrow IPC file (Feather); times in ns, null for an unknown value.
        Arrow = "arrow",
        /// An Arrow IPC stream, which a reader of a pipe takes batch by batch; the cells of `arrow`.
        Arrows = "arrows",
    }
}

impl Format {
    /// Returns whether the format is binary, and so not written to a terminal.
    pub const fn is_binary(self) -> bool {
        matches!(self, Self::Parquet | Self::Arrow | Self::Arrows)
    }
}

/// The format, style and columns of a table.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The format.
    pub format: Format,
    /// The width of text and whether names are shortened.
    pub style: TextStyle,
    /// The columns to write, by heading or name; empty for the default ones. A JSON document always has all
    /// of them.
    pub columns: Vec<String>,
    /// The column that rows are sorted by, which text on a terminal marks; empty for none.
    pub sorted_by: String,
    /// Whether text on a terminal leaves out the rows whose sort column is 0, if there are more rows than it
    /// shows.
    pub hides_zeros: bool,
    /// Whether only rows that satisfy conditions are written.
    pub has_conditions: bool,
}

impl From<Format> for Page {
    fn from(format: Format) -> Self {
        Self { format, ..Self::default() }
    }
}
