//! Decodes row groups and splits their rows by lock, on threads that work ahead of the readers.
//!
//! All events of a lock go to the same reader, so each reader has an engine of its own; losses go to every
//! reader. No event is copied: a reader receives the batch and the indexes of its rows.

use std::sync::{
    Arc, Mutex, PoisonError,
    mpsc::{Receiver, SyncSender},
};

use trace_format::{Batch, Event, EventKind, EventRow as _, FormatError};

use super::{left_out::LeftOut, stats::ReadStats};
use crate::input::{selection::Selection, source::EventSource};

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
    pub(super) stats: Option<Box<ReadStats>>,
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
        let mut losses = Losses::new(self.events);
        for batch in batches {
            let batch = Arc::new(batch.map_err(Stop::Failed)?);
            let end = self.selection.window.end_in(batch.times());
            let used = end.unwrap_or(batch.len());
            let batch_losses = losses.of(index, &batch, used).map_err(Stop::Failed)?;
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
        let add = |rows: &mut [Vec<u32>], index: u32, lock: i32| {
            if self.selection.selects_lock(lock) {
                rows[lock as usize & (readers.len() - 1)].push(index);
            }
        };
        if let Some(locks) = batch.lock_ids() {
            (0..).zip(&locks[..used]).for_each(|(index, lock)| add(&mut rows, index, *lock));
        } else {
            for index in 0..used {
                let row = batch.row(index);
                match row.lock() {
                    Some(lock) => add(&mut rows, index as u32, lock.0),
                    None if row.kind() == EventKind::Lost => {
                        rows.iter_mut().for_each(|rows| rows.push(index as u32));
                    }
                    None => {}
                }
            }
        }
        losses.iter().for_each(|(_, event)| stats.add_loss(event));
        let (mut stats, mut losses) = (Some(Box::new(stats)), losses);
        for (reader, rows) in readers.iter().zip(rows) {
            let (stats, losses) = (stats.take(), std::mem::take(&mut losses));
            send(reader, Chunk::Rows(Rows { batch: Arc::clone(batch), rows, stats, losses }))?;
        }
        Ok(())
    }
}

/// The `lost` events of the row groups that are read. They are rare, so the columns that only they need are
/// decoded separately.
pub(super) struct Losses<'a> {
    events: &'a dyn EventSource,
    /// The row group of the last batch, and the row at which the next one begins.
    group: usize,
    next_row: usize,
    /// By row; `None` until one is seen.
    of_group: Option<Vec<(usize, Event)>>,
}

impl<'a> Losses<'a> {
    pub(super) fn new(events: &'a dyn EventSource) -> Self {
        Self { events, group: 0, next_row: 0, of_group: None }
    }

    /// Returns the `lost` events among the first `used` rows of the next batch, with all columns, by row of
    /// the batch.
    pub(super) fn of(
        &mut self,
        group: usize,
        batch: &Batch,
        used: usize,
    ) -> Result<Vec<(usize, Event)>, FormatError> {
        if group != self.group {
            (self.group, self.next_row, self.of_group) = (group, 0, None);
        }
        let first_row = self.next_row;
        self.next_row += batch.len();
        if !batch.kinds()[..used].contains(&EventKind::Lost) {
            return Ok(Vec::new());
        }
        if self.of_group.is_none() {
            self.of_group = Some(self.read(group)?);
        }
        let here = self.of_group.iter().flatten().filter(|(row, _)| row.wrapping_sub(first_row) < used);
        Ok(here.map(|(row, event)| (row - first_row, *event)).collect())
    }

    fn read(&self, group: usize) -> Result<Vec<(usize, Event)>, FormatError> {
        let (mut losses, mut first_row) = (Vec::new(), 0);
        for batch in self.events.row_group(group, &["task_id", "cpu", "count"])? {
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
