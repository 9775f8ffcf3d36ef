//! A trace's events, one after the other, for whoever folds over them.

use std::ops::ControlFlow;

use trace_format::{Event, FormatError, Trace};

/// Calls `each` with every event in the order of the file, until it breaks.
pub fn for_each(trace: &Trace, mut each: impl FnMut(&Event) -> ControlFlow<()>) -> Result<(), FormatError> {
    for batch in trace.events()? {
        for event in batch?.iter() {
            if each(&event).is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}
