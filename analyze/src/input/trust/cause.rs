//! The causes of lost events: the counters of a footer in, words out.

use serde::Serialize;
use trace_format::run_info::Loss;

use crate::output::units;

/// The cause that more memory would have prevented.
const RING_FULL: &str = "the ring was full";
/// The cause in an unfinished file.
const UNKNOWN: &str = "of an unknown cause";

/// The events that were lost for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// The reason.
    pub cause: &'static str,
    /// The number of events.
    pub events: u64,
}

impl Cause {
    /// Returns the causes that occurred.
    pub(crate) fn all_of(loss: &Loss) -> Vec<Self> {
        [
            (RING_FULL, loss.ring_full),
            ("klock was recording another event of the task", loss.guard),
            ("what a probe had to remember found no place", loss.no_place),
            ("the kernel skipped the probe", loss.recursion_misses),
            ("the record made no sense", loss.undecodable),
        ]
        .into_iter()
        .filter(|(_, events)| *events > 0)
        .map(|(cause, events)| Self { cause, events })
        .collect()
    }

    /// Returns the cause of losses that no counter explains.
    pub(super) fn unknown(events: u64) -> Self {
        Self { cause: UNKNOWN, events }
    }

    /// Returns whether more memory would have prevented the loss.
    pub(super) fn is_full_ring(&self) -> bool {
        self.cause == RING_FULL
    }
}

/// Returns several causes as text: `2 because the ring was full, 1 because the record made no sense`.
pub(crate) fn each_because(causes: &[Cause]) -> String {
    let because = |of: &Cause| format!("{} because {}", units::exact(of.events), of.cause);
    causes.iter().map(because).collect::<Vec<_>>().join(", ")
}
