//! The options of a prediction.

use super::changes::Change;
use intervals::input::filter::Filter;

/// Options of the table.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The changes of each row. Those of one row are made together.
    pub alternatives: Vec<Vec<Change>>,
    /// A part of the name of the sites whose rate is predicted.
    pub progress: Option<String>,
    /// The most events that are replayed.
    pub events: u64,
    /// Whether sleep outside of locks ends at its recorded time, as that of a server that waits for requests.
    pub idle_open: bool,
    /// Whether to show predictions of replays that do not fit.
    pub anyway: bool,
    /// The column that rows are sorted by; empty for the order of the alternatives.
    pub sort: String,
    /// The number of rows; `None` is all.
    pub limit: Option<usize>,
    /// The window; nothing else of it is used.
    pub filter: Filter,
    /// Whether to predict from a trace that lost too many events for sums to mean anything.
    pub allow_loss: bool,
}
