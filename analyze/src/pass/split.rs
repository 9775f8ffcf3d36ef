//! Row groups to batches, and of each batch which rows are for whom: what threads do that decode ahead.
//!
//! A lock's events all go to the same reader, so each reader has an engine of its own; losses go to all. Nothing is copied: a
//! reader gets the batch and the numbers of its rows.

use std::sync::{Arc, mpsc::SyncSender};

use trace_format::{Batch, Event, EventKind, EventRow as _, FormatError, Trace};

use super::walk::Walk;
use crate::{intervals::Stride, scope::Chosen};

/// What a reader gets next.
pub(super) enum Parcel {
    /// Rows of a batch.
    Rows(Rows),
    /// The row group is read.
    EndOfGroup,
    /// The window ends here, and so does the reading.
    EndOfWindow,
    /// The row group could not be read further.
    Failed,
}

/// Rows of a batch, for one reader.
pub(super) struct Rows {
    pub(super) batch: Arc<Batch>,
    /// Which, ascending.
    pub(super) rows: Vec<u32>,
    /// What is to be known of all rows of the batch; for one of the readers.
    pub(super) walk: Option<Walk>,
    /// The losses among them, with the columns that nobody else needs.
    pub(super) losses: Vec<(usize, Event)>,
}

/// What to decode, and for how many readers.
#[derive(Clone, Copy)]
pub(super) struct Splitter<'a> {
    pub(super) trace: &'a Trace,
    pub(super) chosen: &'a Chosen,
    pub(super) columns: &'a [&'a str],
}

/// Why decoding stops.
pub(super) enum Stop {
    /// Nobody listens any more, or nothing that comes later is wanted.
    Enough,
    /// The file is damaged.
    Failed(FormatError),
}

impl Splitter<'_> {
    /// Decodes a row group and hands out its rows.
    pub(super) fn group(&self, index: usize, readers: &[SyncSender<Parcel>]) -> Result<(), Stop> {
        let batches = self.trace.row_group(index, self.columns).map_err(Stop::Failed)?;
        let (mut losses, mut first_row) = (None, 0);
        for batch in batches {
            let batch = Arc::new(batch.map_err(Stop::Failed)?);
            let to_ns = self.chosen.window.to_ns;
            let end = to_ns.and_then(|to_ns| batch.times().iter().position(|&ts_ns| ts_ns >= to_ns));
            let used = end.unwrap_or(batch.len());
            let lost = batch.kinds()[..used].contains(&EventKind::Lost);
            let lost: Vec<(usize, Event)> = if lost {
                if losses.is_none() {
                    losses = Some(self.losses(index).map_err(Stop::Failed)?);
                }
                let here = losses.iter().flatten().filter(|(row, _)| row.wrapping_sub(first_row) < used);
                here.map(|(row, event)| (row - first_row, *event)).collect()
            } else {
                Vec::new()
            };
            first_row += batch.len();
            self.hand_out(&batch, used, lost, readers)?;
            if end.is_some() {
                readers.iter().for_each(|reader| drop(reader.send(Parcel::EndOfWindow)));
                return Err(Stop::Enough);
            }
        }
        readers.iter().try_for_each(|reader| hand(reader, Parcel::EndOfGroup))
    }

    fn hand_out(
        &self,
        batch: &Arc<Batch>,
        used: usize,
        losses: Vec<(usize, Event)>,
        readers: &[SyncSender<Parcel>],
    ) -> Result<(), Stop> {
        let mut rows: Vec<Vec<u32>> =
            readers.iter().map(|_| Vec::with_capacity(used * 5 / 4 / readers.len() + 16)).collect();
        let mut walk = Walk { idle_waits: idle_waits(batch, used, self.chosen), ..Walk::default() };
        walk.see(&batch.times()[..used]);
        let shards = Stride::of(readers.len() as u32);
        for at in 0..used {
            let row = batch.row(at);
            let place = at as u32;
            match row.lock() {
                Some(lock) if self.chosen.wants(lock.0) => {
                    rows[shards.remainder(lock.0 as u32) as usize].push(place);
                }
                None if row.kind() == EventKind::Lost => {
                    rows.iter_mut().for_each(|rows| rows.push(place));
                }
                _ => {}
            }
        }
        losses.iter().for_each(|(_, event)| walk.lose(event));
        let (mut walk, mut losses) = (Some(walk), losses);
        for (reader, rows) in readers.iter().zip(rows) {
            let (walk, losses) = (walk.take(), std::mem::take(&mut losses));
            let parcel = Rows { batch: Arc::clone(batch), rows, walk, losses };
            hand(reader, Parcel::Rows(parcel))?;
        }
        Ok(())
    }

    /// The losses of a row group, by row. There are few, so the columns that only they need are read for them alone.
    fn losses(&self, index: usize) -> Result<Vec<(usize, Event)>, FormatError> {
        let (mut losses, mut first_row) = (Vec::new(), 0);
        for batch in self.trace.row_group(index, &["task_id", "cpu", "count"])? {
            let batch = batch?;
            let rows = batch.kinds().iter().enumerate().filter(|(_, kind)| **kind == EventKind::Lost);
            losses.extend(rows.map(|(row, _)| (first_row + row, batch.event(row))));
            first_row += batch.len();
        }
        Ok(losses)
    }
}

/// Of the first `used` rows, waits for locks that the table leaves out because waiting for them is idling.
pub(super) fn idle_waits(batch: &Batch, used: usize, chosen: &Chosen) -> u64 {
    if !chosen.has_idle() {
        return 0;
    }
    let waits = (0..used).filter(|&at| batch.kinds()[at] == EventKind::Wait);
    waits.filter(|&at| batch.row(at).lock().is_some_and(|lock| chosen.is_idle(lock.0))).count() as u64
}

/// Sends it; a reader that is gone has had enough.
fn hand(reader: &SyncSender<Parcel>, parcel: Parcel) -> Result<(), Stop> {
    if reader.send(parcel).is_ok() { Ok(()) } else { Err(Stop::Enough) }
}
