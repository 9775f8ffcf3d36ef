//! Decodes row groups and splits their rows by lock, on threads that work ahead of the readers.
//!
//! All events of a lock go to the same reader, so each reader has an engine of its own; losses go to every reader. No event is
//! copied: a reader receives the batch and the indexes of its rows.

use std::sync::{
    Arc, Mutex, PoisonError,
    mpsc::{Receiver, SyncSender},
};

use trace_format::{Batch, Event, EventKind, EventRow as _, FormatError};

use super::stats::{LeftOut, ReadStats};
use crate::{
    engine::Stride,
    input::{selection::Selection, source::EventSource},
};

/// A message from a decoder to a reader.
pub(super) enum Chunk {
    /// Rows of a batch.
    Rows(Rows),
    /// The row group ends.
    EndOfGroup,
    /// The window ends here; nothing follows.
    EndOfWindow,
    /// The row group cannot be read any further.
    Failed,
}

/// The rows of a batch that one reader gets.
pub(super) struct Rows {
    pub(super) batch: Arc<Batch>,
    /// Indexes of the rows, ascending.
    pub(super) rows: Vec<u32>,
    /// Statistics of the whole batch. Only one of the readers gets them.
    pub(super) stats: Option<ReadStats>,
    /// The `lost` events of the batch with all columns, by row. The same reader gets them.
    pub(super) losses: Vec<(usize, Event)>,
}

/// The chunks that one reader receives. Decoder `i` of `n` decodes row groups `i`, `i + n`, ...
pub(super) struct Chunks {
    pub(super) groups: usize,
    pub(super) by_decoder: Vec<Receiver<Chunk>>,
}

/// The first failure in the order of the file: the row group and the error.
pub(super) type FirstFailure = Mutex<Option<(usize, FormatError)>>;

/// Decodes row groups for several readers.
#[derive(Clone, Copy)]
pub(super) struct Decoder<'a> {
    pub(super) events: &'a dyn EventSource,
    pub(super) selection: &'a Selection,
    pub(super) columns: &'a [&'a str],
}

/// The reason why a decoder stops.
enum Stop {
    /// No reader listens any more, or the window has ended.
    Done,
    /// The file is damaged.
    Failed(FormatError),
}

impl Decoder<'_> {
    /// Decodes row groups one after the other. Keeps the error of the first row group that fails.
    pub(super) fn run(
        &self,
        groups: impl Iterator<Item = usize>,
        readers: &[SyncSender<Chunk>],
        failure: &FirstFailure,
    ) {
        for group in groups {
            match self.group(group, readers) {
                Ok(()) => {}
                Err(Stop::Done) => return,
                Err(Stop::Failed(error)) => {
                    let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
                    if failure.as_ref().is_none_or(|(first, _)| group < *first) {
                        *failure = Some((group, error));
                    }
                    drop(failure);
                    readers.iter().for_each(|reader| drop(reader.send(Chunk::Failed)));
                    return;
                }
            }
        }
    }

    fn group(&self, index: usize, readers: &[SyncSender<Chunk>]) -> Result<(), Stop> {
        let batches = self.events.row_group(index, self.columns).map_err(Stop::Failed)?;
        let (mut losses, mut first_row) = (None, 0);
        for batch in batches {
            let batch = Arc::new(batch.map_err(Stop::Failed)?);
            let end = self.selection.window.end_in(batch.times());
            let used = end.unwrap_or(batch.len());
            let has_losses = batch.kinds()[..used].contains(&EventKind::Lost);
            let batch_losses: Vec<(usize, Event)> = if has_losses {
                if losses.is_none() {
                    losses = Some(self.losses(index).map_err(Stop::Failed)?);
                }
                let here = losses.iter().flatten().filter(|(row, _)| row.wrapping_sub(first_row) < used);
                here.map(|(row, event)| (row - first_row, *event)).collect()
            } else {
                Vec::new()
            };
            first_row += batch.len();
            self.split(&batch, used, batch_losses, readers)?;
            if end.is_some() {
                readers.iter().for_each(|reader| drop(reader.send(Chunk::EndOfWindow)));
                return Err(Stop::Done);
            }
        }
        readers.iter().try_for_each(|reader| send(reader, Chunk::EndOfGroup))
    }

    /// Sends each reader its rows among the first `used` rows of the batch.
    fn split(
        &self,
        batch: &Arc<Batch>,
        used: usize,
        losses: Vec<(usize, Event)>,
        readers: &[SyncSender<Chunk>],
    ) -> Result<(), Stop> {
        let mut rows: Vec<Vec<u32>> =
            readers.iter().map(|_| Vec::with_capacity(used * 5 / 4 / readers.len() + 16)).collect();
        let mut stats = ReadStats { left_out: left_out(batch, used, self.selection), ..ReadStats::default() };
        stats.add_times(&batch.times()[..used]);
        let shards = Stride::of(readers.len() as u32);
        for index in 0..used {
            let row = batch.row(index);
            match row.lock() {
                Some(lock) if self.selection.selects_lock(lock.0) => {
                    rows[shards.remainder(lock.0 as u32) as usize].push(index as u32);
                }
                None if row.kind() == EventKind::Lost => {
                    rows.iter_mut().for_each(|rows| rows.push(index as u32));
                }
                _ => {}
            }
        }
        losses.iter().for_each(|(_, event)| stats.add_loss(event));
        let (mut stats, mut losses) = (Some(stats), losses);
        for (reader, rows) in readers.iter().zip(rows) {
            let (stats, losses) = (stats.take(), std::mem::take(&mut losses));
            send(reader, Chunk::Rows(Rows { batch: Arc::clone(batch), rows, stats, losses }))?;
        }
        Ok(())
    }

    /// Returns the `lost` events of a row group by row. They are rare, so the columns that only they need are decoded separately.
    fn losses(&self, index: usize) -> Result<Vec<(usize, Event)>, FormatError> {
        let (mut losses, mut first_row) = (Vec::new(), 0);
        for batch in self.events.row_group(index, &["task_id", "cpu", "count"])? {
            let batch = batch?;
            let rows = batch.kinds().iter().enumerate().filter(|(_, kind)| **kind == EventKind::Lost);
            losses.extend(rows.map(|(row, _)| (first_row + row, batch.event(row))));
            first_row += batch.len();
        }
        Ok(losses)
    }
}

/// Counts the waits among the first `used` rows that the selection leaves out because they are idle.
pub(super) fn left_out(batch: &Batch, used: usize, selection: &Selection) -> LeftOut {
    let mut left_out = LeftOut::default();
    if selection.leaves_out_idle() {
        (0..used).for_each(|at| left_out.add(&batch.row(at), selection));
    }
    left_out
}

/// Sends a chunk, and stops the decoder if the reader is gone.
fn send(reader: &SyncSender<Chunk>, chunk: Chunk) -> Result<(), Stop> {
    reader.send(chunk).or(Err(Stop::Done))
}
