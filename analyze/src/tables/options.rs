//! The options of tables that charge waits to holders: the key of a row, the order, the limit, the waits.

use crate::input::filter::Filter;

/// Options of a table whose rows have a key of the type `By`.
#[derive(Clone, Debug, Default)]
pub struct Options<By> {
    /// The key of a row.
    pub by: By,
    /// The column that rows are sorted by; empty for the longest time first.
    pub sort: String,
    /// The number of rows; `None` is all.
    pub limit: Option<usize>,
    /// The waits to charge.
    pub filter: Filter,
    /// Whether to rank a trace that lost too many events for the order of rows to mean anything.
    pub allow_loss: bool,
}
