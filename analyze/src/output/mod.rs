//! The output of a table: rows as text, CSV, JSON, Markdown, Parquet or Arrow.
//!
//! A table declares its [`Column`]s once. [`writer`] takes their [`Field`]s and returns a [`Rows`] that writes one row of
//! [`Cell`]s after the other. No format keeps rows, except for the row group that Parquet compresses as one, so memory does not
//! grow with the number of rows.

mod arrow;
mod batch;
pub(crate) mod calendar;
mod cell;
pub mod column;
mod csv;
pub(crate) mod fit;
mod format;
mod having;
mod help;
pub(crate) mod json;
pub mod layout;
mod markdown;
mod parquet;
pub(crate) mod safe;
#[cfg(test)]
mod tests;
mod text;
pub mod units;
mod writer;

pub use cell::{Cell, Kind, Rows};
pub use column::{Column, Field, Merge, Order, Role, Visibility};
pub use format::{Format, Page};
pub(crate) use having::number;
pub use having::{Having, RowTest};
pub use help::help;
pub use writer::{write_rows, writer};
