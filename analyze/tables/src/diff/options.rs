//! The options of a comparison, and the key that its sides share.

use super::metric::Metric;
use intervals::input::filter::Filter;
use output::choices;

/// Options of the table.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The key that is matched.
    pub by: Align,
    /// The metric by whose difference rows are sorted.
    pub metric: Metric,
    /// The number of rows; `None` is all.
    pub limit: Option<usize>,
    /// The part of both traces to read.
    pub filter: Filter,
    /// Whether to compare traces that lost too many events.
    pub allow_loss: bool,
}

choices! {
    /// The key that is matched in both traces.
    Align, "key" {
        /// Locks of one kind and name; without a name, those that were initialised, otherwise acquired, in one function.
        #[default]
        Lock = "lock",
        /// Locks that were initialised in one function; where that was not seen, acquired.
        Init = "init",
        /// One function that acquires, and class of locks: lines differ from build to build.
        Site = "site",
        /// One stack and class of locks.
        Stack = "stack",
        /// All locks of one kind.
        Kind = "kind",
        /// Threads of one name.
        Comm = "comm",
    }
}
