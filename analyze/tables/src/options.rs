//! The options that tables share: the key of a row, the order, the limit, the part of the traces.

use intervals::input::filter::Filter;

use crate::key::By;

/// Options of a table whose rows have a key of the type `By`.
#[derive(Clone, Debug, Default)]
pub struct TableOptions<By> {
    /// The key of a row.
    pub by: By,
    /// The column that rows are sorted by; empty for the longest time first.
    pub sort: String,
    /// The columns to show. Those that cost another pass over the trace are computed only if they are here or
    /// in `sort`.
    pub columns: Vec<String>,
    /// The number of rows; `None` is all.
    pub limit: Option<usize>,
    /// The number of frames of rows by stack, from the site outwards; `None` is all.
    pub depth: Option<usize>,
    /// The part of the traces to read.
    pub filter: Filter,
    /// Whether to rank a trace that lost too many events for the order of rows to mean anything.
    pub allow_loss: bool,
}

/// Options of the timeline.
#[derive(Clone, Debug, Default)]
pub struct TimelineOptions {
    /// The key of a row, in each period.
    pub by: By,
    /// The length of a period, in ns; `None` is a round time that gives some twenty periods.
    pub period_ns: Option<i64>,
    /// The column that keys are sorted by; empty for the most waiting first.
    pub sort: String,
    /// The number of keys; all others are one. `None` is all.
    pub limit: Option<usize>,
    /// The number of frames, with [`By::Stack`].
    pub depth: Option<usize>,
    /// The part of the traces to read. Intervals are cut at its start and end.
    pub filter: Filter,
    /// Whether to rank a trace that lost too many events for the order of keys to mean anything.
    pub allow_loss: bool,
}
