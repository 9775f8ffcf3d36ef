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
pub mod cells;
mod frame;
pub mod gather;
mod held;
pub mod key;
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
#[cfg(test)]
mod vectors;

pub use key::{cut_column, key_columns, trace_column};
pub use options::TableOptions;
pub use rank::Row;
pub use table::Table;
