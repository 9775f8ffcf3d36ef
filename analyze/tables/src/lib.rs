//! The tables of `klock analyze`. Each file declares the columns of one [`Table`] and computes its rows.

#![allow(missing_debug_implementations, reason = "only the crates of the analyzer use this one")]

pub mod blame;
pub mod critical;
pub mod diff;
pub mod hist;
pub mod info;
pub mod intervals;
pub mod offcpu;
pub mod order;
pub mod report;
pub mod timeline;
pub mod whatif;
pub mod why;

pub mod beside;
pub mod buckets;
mod by_pair;
pub mod by_row;
mod frame;
pub mod gather;
mod grid;
pub mod key;
mod key_columns;
#[cfg(test)]
mod model;
mod options;
pub mod rank;
pub mod rollup;
mod row_ids;
mod spans;
mod table;
#[cfg(any(test, feature = "testing"))]
#[path = "../tests/support/mod.rs"]
pub mod testing;

pub use key_columns::{cut_column, key_columns, trace_column};
pub use options::TableOptions;
pub use rank::Row;
pub use table::Table;
