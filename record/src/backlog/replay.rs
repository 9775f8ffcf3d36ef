//! Composes what a backlog has and its trace does not: the file of a recorder that was killed in, rows out.

use std::{
    fs::File,
    io::{BufReader, Seek as _},
};

use trace_format::{EventColumns, FormatError, RunInfo, SideRows, Stack, recover::TakeRows};

use super::{
    frames::{Frame, Reader},
    snapshot::Restored,
};
use crate::{
    compose::Composer,
    order::{Orderer, Record},
    preload::{self, merge::Merger},
    stacks::{Half, RawStack},
    symbols::{CertainFrames, RawFrames},
};

/// Number of rows that are passed on at once.
const CHUNK_ROWS: usize = 1 << 14;

/// Composes the rows after the first `rows`, which the trace has. Passes them on, corrects the losses in `info`, and returns rows of the side
/// tables. A file without a whole snapshot, or whose snapshot is of a later moment than the trace, has no rows.
///
/// # Errors
///
/// Those of `each`.
pub fn replay(
    file: &File,
    rows: u64,
    info: &mut RunInfo,
    each: &mut TakeRows<'_>,
) -> Result<SideRows, FormatError> {
    let read = || {
        let mut file = file;
        file.rewind().ok()?;
        let mut reader = Reader::new(BufReader::with_capacity(1 << 20, file));
        let restored: Restored = reader.snapshot()?;
        Some((restored, reader))
    };
    let Some((Restored { rows: before, mut composer, merger, mut switches }, mut frames)) = read() else {
        return Ok(SideRows::default());
    };
    if before > rows {
        return Ok(SideRows::default());
    }
    // Stacks get their ids as they are drained.
    while let Some(frame) = frames.next() {
        match frame {
            Frame::Batch(batch) => batch.chunks.iter().for_each(|(id, chunk)| {
                composer.see(*id, chunk);
            }),
            Frame::Switches(more) => switches.extend(more),
        }
    }
    let Some((_, mut frames)) = read() else { return Ok(SideRows::default()) };
    let mut orderer = Orderer::default();
    switches.into_iter().for_each(|switch| orderer.push(Record::Switch(switch)));
    orderer.sort();
    let mut rest = Rest { composer, merger, orderer, rows: EventColumns::default(), skip: rows - before };
    rest.compose(each)?;
    while let Some(frame) = frames.next() {
        if let Frame::Batch(batch) = frame {
            rest.merger.add_batch(batch);
            rest.compose(each)?;
        }
    }
    rest.pass_on(0, each)?;
    let Rest { mut composer, merger, .. } = rest;
    preload::set_losses(&merger.stats(), info);
    let bare = |(id, raw): (_, RawStack)| Stack { id, frames: frames_of(raw).without_names() };
    let stacks = composer.stacks.take_new().into_iter().map(bare).collect();
    Ok(SideRows { stacks, locks: composer.locks.rows().to_vec(), tasks: composer.tasks.into_rows() })
}

/// The rest of a recording.
struct Rest {
    composer: Composer,
    merger: Merger,
    orderer: Orderer,
    rows: EventColumns,
    /// Number of rows that the trace has already.
    skip: u64,
}

impl Rest {
    /// Composes everything before which nothing can come any more.
    fn compose(&mut self, each: &mut TakeRows<'_>) -> Result<(), FormatError> {
        let settled_ns = self.merger.settled_ns();
        loop {
            let Self { composer, merger, orderer, rows, skip } = self;
            let next_ns = orderer.next_ns().filter(|&ns| ns <= settled_ns);
            let until_ns = next_ns.unwrap_or(settled_ns.saturating_add(1));
            let mut budget = CHUNK_ROWS;
            let reached_ns = merger.emit(until_ns, &mut budget, |ts_ns, session, step| {
                composer.step(ts_ns, session, &step, rows);
                drop_first(rows, skip);
            });
            let is_done = if reached_ns < until_ns {
                budget == CHUNK_ROWS
            } else if let Some(record) = next_ns.and_then(|ns| orderer.pop(ns)) {
                composer.record(&record, rows);
                drop_first(rows, skip);
                false
            } else {
                true
            };
            self.pass_on(CHUNK_ROWS, each)?;
            if is_done {
                return Ok(());
            }
        }
    }

    /// Passes rows on, if there are at least this many.
    fn pass_on(&mut self, at_least: usize, each: &mut TakeRows<'_>) -> Result<(), FormatError> {
        if !self.rows.is_empty() && self.rows.len() >= at_least {
            each(&self.rows)?;
            self.rows.clear();
        }
        Ok(())
    }
}

/// Drops rows that the trace has already. A step makes few rows, so they are dropped one step at a time.
fn drop_first(rows: &mut EventColumns, skip: &mut u64) {
    if *skip > 0 {
        let kept: Vec<_> = rows.iter().skip(usize::try_from(*skip).unwrap_or(usize::MAX)).collect();
        *skip = skip.saturating_sub(rows.len() as u64);
        rows.clear();
        rows.extend(kept);
    }
}

/// The frames of a stack of a program that records itself.
fn frames_of(raw: RawStack) -> RawFrames {
    match raw.user {
        // The call of the recorded function is certain.
        Half::Calls(frames) => RawFrames {
            user: frames.into_vec(),
            user_returns: true,
            certain: CertainFrames::ByPointers(1),
            ..RawFrames::default()
        },
        _ => RawFrames::default(),
    }
}
