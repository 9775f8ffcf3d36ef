//! The tables of `klock analyze`. Each file declares the columns of one [`Table`] and computes its rows.

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

pub(crate) mod beside;
pub(crate) mod buckets;
pub(crate) mod by_pair;
pub(crate) mod by_row;
pub(crate) mod frame;
pub(crate) mod gather;
pub(crate) mod grid;
pub mod key;
mod key_columns;
mod options;
pub(crate) mod rank;
pub(crate) mod row_ids;
pub(crate) mod spans;
mod table;

pub(crate) use key_columns::{cut_column, key_columns, trace_column};
pub use options::TableOptions;
pub use rank::Row;
pub use table::Table;
