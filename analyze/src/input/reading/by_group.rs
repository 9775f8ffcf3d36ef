//! Reads whole row groups, in any order: their indexes enter, all rows of each leave in the order of the file.
//!
//! A second thread decodes the next row group meanwhile, so two are in memory. The recorder closes a row group at a million rows.

use std::{ops::ControlFlow, sync::mpsc, thread};

use trace_format::{Event, FormatError, schema::EVENTS};

use crate::input::source::EventSource;

/// Calls `each` with the index and the rows of each of these row groups until it breaks.
pub(crate) fn for_each(
    events: &dyn EventSource,
    groups: impl Iterator<Item = usize> + Send,
    mut each: impl FnMut(usize, &mut [Event]) -> ControlFlow<()>,
) -> Result<(), FormatError> {
    thread::scope(|scope| {
        let (decoded, received) = mpsc::sync_channel(0);
        scope.spawn(move || {
            for group in groups {
                let rows = rows(events, group);
                let failed = rows.is_err();
                // Sending fails only if the receiver has stopped early.
                if decoded.send((group, rows)).is_err() || failed {
                    return;
                }
            }
        });
        for (group, rows) in received {
            if each(group, &mut rows?).is_break() {
                break;
            }
        }
        Ok(())
    })
}

fn rows(events: &dyn EventSource, group: usize) -> Result<Vec<Event>, FormatError> {
    let columns: Vec<&str> = EVENTS.iter().map(|column| column.name).collect();
    let mut rows = Vec::new();
    for batch in events.row_group(group, &columns)? {
        rows.extend(batch?.iter());
    }
    Ok(rows)
}
