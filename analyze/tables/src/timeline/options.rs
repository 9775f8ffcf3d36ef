//! The options of the timeline.

use crate::key::By;
use intervals::input::filter::Filter;

/// Options of the table.
#[derive(Clone, Debug, Default)]
pub struct Options {
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
