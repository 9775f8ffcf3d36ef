//! The output of a table: rows as text, CSV, JSON, Markdown, Parquet or Arrow.
//!
//! A table declares its [`Column`]s once. [`writer()`] takes their [`Field`]s and returns a [`Rows`] that
//! writes one row of [`Cell`]s after the other. No format keeps rows, except for the row group that Parquet
//! compresses as one, so memory does not grow with the number of rows.

#![allow(missing_debug_implementations, reason = "only the crates of the analyzer use this one")]

mod arrow;
mod batch;
mod cell;
pub mod column;
mod csv;
pub mod error;
pub mod fit;
mod format;
mod having;
mod help;
pub mod json;
pub mod layout;
mod markdown;
mod parquet;
pub mod safe;
mod short;
#[cfg(test)]
mod tests;
mod text;
pub mod units;
mod writer;

pub use cell::{Cell, Kind, Rows, without_directories};
pub use column::{Column, Field, Merge, Order, Role, Visibility};
pub use error::AnalyzeError;
pub use format::{Format, Page};
pub use having::{Having, RowTest, number};
pub use help::help;
pub use writer::{write_rows, writer};

/// Defines an enum of command-line values with a word for each value, for parsing, printing and help, and the
/// kind of value for errors. One of them is the default.
#[macro_export]
macro_rules! choices {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($values:tt)+ }) => {
        trace_format::named_enum! {
            $(#[$doc])*
            #[derive(Default)]
            $name, $what, $crate::AnalyzeError { $($values)+ }
        }
    };
}
