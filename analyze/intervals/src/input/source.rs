//! Sources of events: a trace file, or events in memory; and their events in the order of the file, or by row
//! group.
//!
//! Readers take row groups from an [`EventSource`] and do not know where they come from, so tests run the
//! real readers without a file. A second thread decodes the next batches, or the next row group, meanwhile:
//! decoding takes about as long as the work on the events. The recorder closes a row group at a million rows.

use std::{ops::ControlFlow, sync::mpsc, thread};

use trace_format::{Batch, Event, FormatError, Trace, schema::EVENTS};

/// Batches that are decoded ahead: one that is ready when the current one is done, and one as slack.
const AHEAD: usize = 2;

/// The batches of a row group.
pub type Batches<'a> = Box<dyn Iterator<Item = Result<Batch, FormatError>> + 'a>;

/// Events in row groups, in the order in which they were recorded.
pub trait EventSource: Sync {
    /// Returns the number of row groups.
    fn row_groups(&self) -> usize;

    /// Returns the batches of the row group `index`. Columns other than `columns`, `ts_ns` and `event` may be
    /// null.
    fn row_group(&self, index: usize, columns: &[&str]) -> Result<Batches<'_>, FormatError>;
}

impl EventSource for Trace {
    fn row_groups(&self) -> usize {
        Self::row_groups(self)
    }

    fn row_group(&self, index: usize, columns: &[&str]) -> Result<Batches<'_>, FormatError> {
        Ok(Box::new(Self::row_group(self, index, columns)?))
    }
}

/// Calls `each` with every event until it breaks.
pub fn for_each(
    events: &dyn EventSource,
    mut each: impl FnMut(&Event) -> ControlFlow<()>,
) -> Result<(), FormatError> {
    batches(events, &all_columns(), |_, batch| Ok(batch.iter().try_for_each(|event| each(&event))))
}

/// Calls `each` with the row group and the events of every batch until it breaks. Decodes these columns, the
/// time and the kind.
pub fn batches(
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

/// Calls `each` with the index and the rows of each of these row groups until it breaks.
pub fn row_groups(
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
    let mut rows = Vec::new();
    for batch in events.row_group(group, &all_columns())? {
        rows.extend(batch?.iter());
    }
    Ok(rows)
}

fn all_columns() -> Vec<&'static str> {
    EVENTS.iter().map(|column| column.name).collect()
}
