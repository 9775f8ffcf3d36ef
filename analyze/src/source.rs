//! A trace's events, one after the other, for whoever folds over them.
//!
//! A thread of its own decodes the next batch while this one is being looked at: decoding takes about as long as what
//! is done with the events.

use std::{ops::ControlFlow, sync::mpsc, thread};

use trace_format::{Event, FormatError, Trace, schema::EVENTS};

/// Batches that are decoded ahead: one to be ready when this one is done, and a little slack.
const AHEAD: usize = 2;

/// Calls `each` with every event in the order of the file, until it breaks.
pub fn for_each(trace: &Trace, mut each: impl FnMut(&Event) -> ControlFlow<()>) -> Result<(), FormatError> {
    thread::scope(|scope| {
        let (decoded, batches) = mpsc::sync_channel(AHEAD);
        scope.spawn(move || {
            let columns: Vec<&str> = EVENTS.iter().map(|column| column.name).collect();
            // Row group by row group: what can be decoded is read up to the one that can't.
            for group in 0..trace.row_groups() {
                let batches = match trace.row_group(group, &columns) {
                    Ok(batches) => batches,
                    Err(error) => {
                        // Nobody listens any more only if the reading was broken off.
                        let _ = decoded.send(Err(error));
                        return;
                    }
                };
                for batch in batches {
                    let failed = batch.is_err();
                    if decoded.send(batch).is_err() || failed {
                        return;
                    }
                }
            }
        });
        for batch in batches {
            for event in batch?.iter() {
                if each(&event).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    })
}
