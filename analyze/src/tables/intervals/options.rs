//! The kinds of rows, and the options of the rows.

use crate::{
    choices::choices,
    input::{filter::Filter, trust::About},
    output::Having,
};

choices! {
    /// The kind of rows.
    RowKind, "kind of row" {
        /// One event.
        #[default]
        Events = "events",
        /// One task's wait for one lock.
        Waits = "waits",
        /// One task's hold of one lock.
        Holds = "holds",
    }
}

impl RowKind {
    /// Returns the table that the trust block is written below.
    pub const fn about(self) -> About {
        match self {
            Self::Events => About::Events,
            Self::Waits => About::Waits,
            Self::Holds => About::Holds,
        }
    }
}

/// Options of the rows.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The kind of rows.
    pub what: RowKind,
    /// The part of the traces to read. The least wait and the window also select events.
    pub filter: Filter,
    /// The conditions on rows.
    pub having: Vec<Having>,
    /// The number of rows; `None` is all.
    pub limit: Option<u64>,
    /// The column to sort by; `None` for the order of the trace. Sorted rows are kept in memory, at most twice the limit.
    pub sort: Option<String>,
    /// The columns of text to write, by heading or name; empty for the default ones.
    pub columns: Vec<String>,
}
