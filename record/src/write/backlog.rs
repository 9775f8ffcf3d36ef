//! The backlog: batches of programs that record themselves, in memory and in a file, while recorded programs
//! need all processors and composing waits (`session/deferral.rs`).
//!
//! The file begins with the state of composer and merger at the moment when everything before was composed
//! and goes on with each batch and each switch (`frames.rs`). If the recorder is killed, [`replay`] composes
//! from it what the trace does not have yet, row for row as the recorder would have done. Nothing else needs
//! the file: the recorder itself composes from memory. memcached, which needs all processors, does twice as
//! much while composing waits.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    preload::{batch::Batch, queue::units_in_memory},
    sources::switches::records::Switch,
};

pub(crate) mod frames;
pub(crate) mod replay;

use frames::Snapshot;
use frames::Writer;

/// Maximum bytes of records in memory.
const MAX_BYTES: usize = 512 << 20;
/// Maximum fraction of the machine's memory.
const MEMORY_FRACTION: usize = 16;
/// Maximum time for which it is open: whoever reads the trace meanwhile sees none of it.
const MAX_TIME: Duration = Duration::from_secs(10);

/// The batches that wait, and their file.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// `None` if the output has no such file, or if it cannot be written.
    file: Option<Writer>,
    /// The time at which the file got its snapshot; it has what was drained since then. `None` if the backlog
    /// is closed.
    opened: Option<Instant>,
    batches: VecDeque<Batch>,
    units: usize,
    max_units: usize,
    /// Everything up to this time is in the file, CLOCK_MONOTONIC in ns.
    pub(crate) settled_ns: u64,
}

impl Backlog {
    pub(crate) fn new(file: Option<Arc<File>>) -> Self {
        let max_units = units_in_memory(MEMORY_FRACTION, MAX_BYTES);
        Self { file: file.map(Writer::new), max_units, ..Self::default() }
    }

    /// Whether batches can be added: there is a file.
    pub(crate) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Whether what is drained must be added, because what was drained before it is here.
    pub(crate) fn is_open(&self) -> bool {
        self.opened.is_some()
    }

    /// Whether there is room and time for more.
    pub(crate) fn has_room(&self) -> bool {
        self.units < self.max_units && self.opened.is_none_or(|opened| opened.elapsed() < MAX_TIME)
    }

    /// Whether a batch waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Number of records that wait, with parts of larger ones.
    pub(crate) fn records(&self) -> u64 {
        self.units as u64
    }

    /// Starts the file anew, with this state. Returns `false` if it cannot be written: then there is no file
    /// any more.
    pub(crate) fn open(&mut self, snapshot: &Snapshot<'_>) -> bool {
        let Some(file) = &mut self.file else { return false };
        match file.start(snapshot) {
            Ok(()) => self.opened = Some(Instant::now()),
            Err(_) => self.fail(),
        }
        self.is_open()
    }

    pub(crate) fn add(&mut self, batch: Batch) {
        self.settled_ns = self.settled_ns.max(batch.settled_ns);
        self.write(|file| file.batch(&batch));
        self.units += batch.units();
        self.batches.push_back(batch);
    }

    /// Adds switches that were drained. They wait elsewhere.
    pub(crate) fn add_switches(&mut self, switches: &[Switch]) {
        if !switches.is_empty() {
            self.write(|file| file.switches(switches));
        }
    }

    /// Takes the batch that has waited longest.
    pub(crate) fn take(&mut self) -> Option<Batch> {
        let batch = self.batches.pop_front()?;
        self.units -= batch.units();
        Some(batch)
    }

    /// Ends the wait: everything is composed. The file stays as it is until the next snapshot, as the trace
    /// may lack the last rows on disk.
    pub(crate) fn close(&mut self) {
        self.opened = None;
    }

    fn write(&mut self, write: impl FnOnce(&mut Writer) -> io::Result<()>) {
        if self.is_open()
            && let Some(file) = &mut self.file
            && write(file).is_err()
        {
            self.fail();
        }
    }

    /// Gives the file up: a disk that is full must not end the recording before its trace fails.
    fn fail(&mut self) {
        (self.file, self.opened) = (None, None);
    }
}

#[cfg(test)]
mod tests;
