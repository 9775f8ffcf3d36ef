//! Intervals of one lock that can be read more than once: from the trace, or from memory.

use intervals::{engine::Sink, input::Input};
use output::AnalyzeError;

/// The end of a replay.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Replayed {
    /// The end of the trace, or of what was read of it.
    pub(crate) end_ns: i64,
    /// Whether the trace goes on.
    pub(crate) cut_short: bool,
}

/// Intervals of one lock that can be read repeatedly.
pub(crate) trait Replay {
    /// Sends every interval, share and loss until `until_ns` into `sink`, in the order of their ends.
    fn replay(&self, until_ns: Option<i64>, sink: &mut impl Sink) -> Result<Replayed, AnalyzeError>;
}

impl Replay for Input<'_> {
    fn replay(&self, until_ns: Option<i64>, sink: &mut impl Sink) -> Result<Replayed, AnalyzeError> {
        let outcome = self.run_until(until_ns, sink)?;
        Ok(Replayed { end_ns: outcome.end_ns, cut_short: outcome.stats.cut_short })
    }
}
