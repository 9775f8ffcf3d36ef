//! A receiver of what is written to the trace, while it is recorded.

use std::fmt;

use trace_format::{EventColumns, LockRow, RunInfo, SideRows};

/// Receives rows after they were handed to the writer, on the writer's thread: it must return soon, and never wait for the disk or
/// for another thread.
pub trait Observer: fmt::Debug + Send {
    /// The recording begins. `info` has the sources.
    fn begin(&mut self, info: RunInfo);
    /// Rows were written. `locks` are those whose first events are among them, not named yet; they are in the order of their ids.
    fn rows(&mut self, rows: EventColumns, locks: Vec<LockRow>);
    /// A checkpoint was written: the losses so far, and rows of the side tables that are new or have changed.
    fn checkpoint(&mut self, info: RunInfo, side: SideRows);
    /// The recording has ended: all losses, and the whole side tables without tasks.
    fn end(&mut self, info: RunInfo, side: SideRows);
}
