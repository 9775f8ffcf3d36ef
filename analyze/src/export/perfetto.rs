//! A trace for Perfetto (ui.perfetto.dev, trace_processor): who held and who waited for what, as slices on a track per thread.
//!
//! Holds and waits enter, packets leave as they come, so memory does not grow with the trace. A thread's holds and waits nest on its
//! track; locks that were not given back in the order in which they were taken get tracks below it. A flow leads from
//! the hold that a wait was charged to last to the hold that the wait ended with: from the release to who got the lock then. Each lock
//! that was waited for has a counter of its waiters.
//!
//! The format is TrackEvent of <https://perfetto.dev/docs/reference/synthetic-track-event>. Times are in ns on the machine's boot clock if
//! the trace says how that stood, as all times in Perfetto are; otherwise on the trace's own.

use std::io::Write;

use trace_format::Trace;

use super::{Options, Written};
use crate::{
    error::AnalyzeError,
    names::Names,
    pass::{Detail, Pass},
    scope::Chosen,
};

mod messages;
mod packets;
mod slices;
#[cfg(test)]
pub(super) mod tests;
mod tracks;

use packets::Packets;
use slices::Slices;

/// Writes the packets; `items` counts holds and waits.
pub(super) fn write(
    trace: &Trace,
    all: &Options,
    out: &mut (dyn Write + Send),
) -> Result<Written, AnalyzeError> {
    let names = Names::read(trace)?;
    let chosen = Chosen::of(trace, &names, &all.filter)?;
    let mut packets = Packets::new(out);
    packets.begin(&trace.info().clocks_start);
    let mut slices = Slices::new(&names, &chosen, packets);
    let walked = Pass { trace, names: &names, chosen: &chosen, detail: Detail::All }.run(&mut slices)?;
    let (items, watch) = slices.finish()?;
    let trust = watch.block(trace, (&walked.0, &walked.1), &chosen, &names);
    Ok(Written { items, trust, notes: Vec::new() })
}
