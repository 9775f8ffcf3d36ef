//! Options of a page: what the reader chose enters, the passes over the trace read them.

/// The intervals that a page keeps one by one, if no number is given.
pub const INTERVALS: usize = 150_000;
/// Options of a page.
#[derive(Clone, Debug)]
pub struct Options {
    /// The windows whose intervals are kept one by one, in ns since the start of the trace, without their ends. Empty: the busiest ones.
    pub windows: Vec<(i64, i64)>,
    /// The number of intervals that the windows keep.
    pub intervals: usize,
    /// Whether to rank a trace that lost too many events for the order of rows to mean anything.
    pub allow_loss: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { windows: Vec::new(), intervals: INTERVALS, allow_loss: false }
    }
}
