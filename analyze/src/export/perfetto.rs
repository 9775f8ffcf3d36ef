//! A trace for Perfetto (ui.perfetto.dev, trace_processor): holds and waits as slices on a track per thread.
//!
//! Holds and waits go in, packets come out as they end, so memory does not grow with the trace. The holds and waits of a thread nest
//! on its track; locks that were not released in the reverse order of their acquisition get tracks below it. A flow leads from the
//! hold that a wait was charged to last to the hold that the wait ended with: from the release to the next acquisition. Each lock
//! with waits has a counter of its waiters.
//!
//! The format is TrackEvent of <https://perfetto.dev/docs/reference/synthetic-track-event>. Times are in ns of the boot clock, as all
//! times in Perfetto, if the trace relates its clock to that one; otherwise of the trace's own clock.

mod lanes;
mod messages;
mod packets;
mod slices;
#[cfg(test)]
pub(super) mod tests;
mod tracks;

pub(super) use slices::write;
