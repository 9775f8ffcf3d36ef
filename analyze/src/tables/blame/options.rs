//! The options of the table.

use crate::{choices::choices, input::filter::Filter};

/// Options of the table.
#[derive(Clone, Debug, Default)]
pub struct Options {
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

choices! {
    /// The key of a row.
    By, "key" {
        /// The site at which the holder acquired the lock.
        #[default]
        Site = "site",
        /// The holder.
        Task = "task",
        /// The site at which the holder acquired it, and the site at which others waited.
        Pair = "pair",
        /// The holder's site, and the state of its task: [`states`](super::states()) makes this table.
        State = "state",
        /// The machine.
        Host = "host",
    }
}
