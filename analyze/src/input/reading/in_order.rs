//! Reads events one by one or in batches, in the order of the file.
//!
//! A second thread decodes the next batches meanwhile: decoding takes about as long as the work on the events.

use std::{ops::ControlFlow, sync::mpsc, thread};

use trace_format::{Batch, Event, FormatError, schema::EVENTS};

use crate::input::source::EventSource;

/// Batches that are decoded ahead: one that is ready when the current one is done, and one as slack.
const AHEAD: usize = 2;

/// Calls `each` with every event until it breaks.
pub(crate) fn for_each(
    events: &dyn EventSource,
    mut each: impl FnMut(&Event) -> ControlFlow<()>,
) -> Result<(), FormatError> {
    let columns: Vec<&str> = EVENTS.iter().map(|column| column.name).collect();
    batches(events, &columns, |_, batch| Ok(batch.iter().try_for_each(|event| each(&event))))
}

/// Calls `each` with the row group and the events of every batch until it breaks. Decodes these columns, the time and the kind.
pub(crate) fn batches(
    events: &dyn EventSource,
    columns: &[&str],
    mut each: impl FnMut(usize, &Batch) -> Result<ControlFlow<()>, FormatError>,
) -> Result<(), FormatError> {
    thread::scope(|scope| {
        let (decoded, batches) = mpsc::sync_channel(AHEAD);
        scope.spawn(move || {
            // Opens row groups one by one, so that everything before a damaged one is read.
            for group in 0..events.row_groups() {
                let batches = match events.row_group(group, columns) {
                    Ok(batches) => batches,
                    Err(error) => {
                        // Sending fails only if the receiver has stopped early.
                        let _ = decoded.send(Err(error));
                        return;
                    }
                };
                for batch in batches {
                    let failed = batch.is_err();
                    if decoded.send(batch.map(|batch| (group, batch))).is_err() || failed {
                        return;
                    }
                }
            }
        });
        for batch in batches {
            let (group, batch) = batch?;
            if each(group, &batch)?.is_break() {
                return Ok(());
            }
        }
        Ok(())
    })
}
