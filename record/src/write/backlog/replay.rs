//! Composes what the backlog of a recorder that was killed has, and its trace does not.

use std::{
    fs::File,
    io::{BufReader, Seek as _},
};

use trace_format::{EventColumns, FormatError, RunInfo, SideRows, recover::TakeRows};

use super::frames::{Frame, Reader, Restored};
use crate::{
    compose::{
        Composer, compose_ordered,
        stacks::{Half, RawStack},
    },
    kernel::order::{Orderer, Record},
    names::symbols::{CertainFrames, RawFrames},
    preload::{self, merge::Merger},
};

/// Number of rows that are passed on at once.
const CHUNK_ROWS: usize = 1 << 14;

/// Composes the rows after the first `rows`, which the trace has. Passes them on, corrects the losses in
/// `info`, and returns rows of the side tables. A file without a whole snapshot, or whose snapshot is of a
/// later moment than the trace, has no rows.
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
    let from_start = || {
        let mut file = file;
        file.rewind().map(|()| Reader::new(BufReader::with_capacity(1 << 20, file))).ok()
    };
    let read = || {
        let mut frames = from_start()?;
        Some((frames.snapshot::<Restored>()?, frames))
    };
    let Some((Restored { rows: before, mut composer, merger, mut switches }, mut frames)) = read() else {
        return Ok(SideRows::default());
    };
    if before > rows || !merger.is_valid() {
        return Ok(SideRows::default());
    }
    // Stacks get their ids as they are drained.
    while let Some(frame) = frames.next() {
        match frame {
            Frame::Batch(batch) if !merger.is_next(&batch) => break,
            Frame::Batch(batch) => batch.chunks.iter().for_each(|(id, chunk)| {
                composer.see(*id, chunk);
            }),
            Frame::Switches(more) => switches.extend(more),
        }
    }
    let Some(mut frames) = from_start() else { return Ok(SideRows::default()) };
    frames.skip_snapshot();
    let mut orderer = Orderer::default();
    switches.into_iter().for_each(|switch| orderer.push(Record::Switch(switch)));
    let mut rest = Rest { composer, merger, orderer, rows: EventColumns::default(), skip: rows - before };
    rest.compose(each)?;
    while let Some(frame) = frames.next() {
        if let Frame::Batch(batch) = frame {
            if !rest.merger.is_next(&batch) {
                break;
            }
            rest.merger.add_batch(batch);
            rest.compose(each)?;
        }
    }
    let Rest { mut composer, merger, rows, .. } = rest;
    if !rows.is_empty() {
        each(&rows)?;
    }
    preload::set_losses(&merger.stats(), info);
    let bare = |(id, raw): (_, RawStack)| frames_of(raw).without_names(id);
    let bare_stacks = composer.stacks.take_new().into_iter().map(bare).collect();
    let (locks, tasks) = (composer.locks.rows().to_vec(), composer.tasks.into_rows());
    Ok(SideRows { stacks: Vec::new(), bare_stacks, locks, tasks })
}

struct Rest {
    composer: Composer,
    merger: Merger,
    orderer: Orderer,
    rows: EventColumns,
    /// Number of rows that the trace has already.
    skip: u64,
}

impl Rest {
    /// Composes everything before which nothing can come any more, and passes rows on.
    fn compose(&mut self, each: &mut TakeRows<'_>) -> Result<(), FormatError> {
        let Self { composer, merger, orderer, rows, skip } = self;
        let settled_ns = merger.settled_ns();
        let mut passed = Ok(());
        let both = (orderer, Some(merger));
        compose_ordered(both, settled_ns, &mut { usize::MAX }, composer, rows, |rows, _| {
            drop_first(rows, skip);
            if rows.len() >= CHUNK_ROWS {
                if passed.is_ok() {
                    passed = each(rows);
                }
                rows.clear();
            }
        });
        passed
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
