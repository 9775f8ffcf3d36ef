//! The options of the table.

use crate::{choices::choices, input::filter::Filter, tables::key::By};

/// Options of the table.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The times that are counted.
    pub of: Of,
    /// The widths of the buckets.
    pub buckets: Buckets,
    /// The key of a histogram; `None` is one for all.
    pub by: Option<By>,
    /// The order of the keys: `count` or `name`; empty for the longest total time first.
    pub sort: String,
    /// The number of keys; `None` is all.
    pub limit: Option<usize>,
    /// The number of frames, with [`By::Stack`].
    pub depth: Option<usize>,
    /// The part of the traces to read.
    pub filter: Filter,
    /// Whether to rank a trace that lost too many events for the order of keys to mean anything.
    pub allow_loss: bool,
}

choices! {
    /// The times that are counted.
    Of, "time" {
        /// Waits that ended with the lock.
        #[default]
        Wait = "wait",
        /// Holds.
        Hold = "hold",
    }
}

choices! {
    /// The widths of the buckets.
    Buckets, "kind of buckets" {
        /// One bucket per power of two of nanoseconds.
        #[default]
        Log2 = "log2",
        /// 64 buckets per power of two from 64 ns on, one bucket per shorter time. So a bucket is at most 1.6 % wide.
        Hdr = "hdr",
    }
}
