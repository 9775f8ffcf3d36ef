//! The gate: every file of a trace passes here before the Parquet library reads any of it, so that neither a
//! damaged file nor one that was made to harm costs more memory or time than its size allows.
//!
//! For example, a table of 4 kB whose rows are 10^8 repetitions of one is refused when it is opened.
//!
//! | checked | where |
//! |---|---|
//! | the file: regular, opened without waiting, the same file at each later opening | [`file`] |
//! | the footer: lengths of lists, depth, number of columns; ranges of column chunks, rows claimed, codecs | [`file`] |
//! | pages: header, encoding, values claimed, size when it is not compressed | [`pages`] |
//! | rows: ids, texts, frames | `field.rs`, `reader.rs` |
//!
//! Statistics in a footer are not believed.

pub(crate) mod batches;
pub(crate) mod file;
mod pages;
pub(crate) mod panics;
mod thrift;
