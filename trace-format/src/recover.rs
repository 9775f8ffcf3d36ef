//! Finishes a trace whose recorder was killed, from its journal and its backlog. The result holds everything up to the last checkpoint,
//! and the records that waited to become rows then.
//!
//! The events file is cut after the last complete row group; the rows of the backlog are added, and the footer. The side tables are
//! rewritten. Entries that were not in the journal yet are missing: a stack that was not symbolized has no frames. The journal is
//! removed last, so that an interrupted recovery can be repeated.

use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::FileExt as _,
    path::Path,
};

use parquet::file::metadata::RowGroupMetaData;

use crate::{
    FormatError,
    columns::EventColumns,
    event::{LockId, StackId, TaskId},
    field::TableRow,
    footer,
    gate::file::check_complete,
    journal::{self, Checkpoint, SideRows},
    output::{OutputOptions, recording::UnfinishedFiles},
    paths::{TracePaths, journal_path},
    reader::Trace,
    run_info::RunInfo,
    tables::{BareStack, LockRow, SharedStack, SideTables, Stack, TaskRow},
    writer::{continued::Continued, write_table},
};

/// The [`RunInfo::stop_reason`] of a recovered trace.
pub const STOP_REASON: &str = "the recorder was killed; recovered";

/// The result of a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Number of events in the trace.
    pub events: u64,
    /// Number of bytes cut off after the last complete row group.
    pub cut_bytes: u64,
    /// Number of stacks that were not symbolized.
    pub bare_stacks: u64,
    /// Time of the last event, if there is one.
    pub last_ns: Option<i64>,
    /// The run information of the recovered trace.
    pub info: RunInfo,
}

/// Composes the rows of a backlog, without the first ones: the trace has this number of them already. Passes rows on in the order of time, adds
/// to the losses, and returns the rows of the side tables that are new or changed.
pub type ComposeBacklog<'a> =
    dyn FnMut(&File, u64, &mut RunInfo, &mut TakeRows<'_>) -> Result<SideRows, FormatError> + 'a;

/// Takes rows.
pub type TakeRows<'a> = dyn FnMut(&EventColumns) -> Result<(), FormatError> + 'a;

/// A [`ComposeBacklog`] that leaves the backlog out.
pub fn without_backlog(
    _: &File,
    _: u64,
    _: &mut RunInfo,
    _: &mut TakeRows<'_>,
) -> Result<SideRows, FormatError> {
    Ok(SideRows::default())
}

/// Finishes the trace with this events file.
pub fn recover(
    path: &Path,
    options: &OutputOptions,
    compose: &mut ComposeBacklog<'_>,
) -> Result<Recovery, FormatError> {
    let Some(files) = UnfinishedFiles::open(path, options)? else { return Err(without_journal(path)) };
    let file = files.events.file.as_ref();
    let io = FormatError::io(path);
    let mut journal = Vec::new();
    let read = files.journal.file.as_ref().read_to_end(&mut journal);
    read.map_err(FormatError::io(files.journal.path()))?;
    let size = file.metadata().map_err(&io)?.len();
    let intact = Intact::read(&journal, file, STOP_REASON).map_err(&io)?;
    let Intact { mut row_groups, mut end, mut info, mut tables } =
        intact.ok_or_else(|| nothing_to_recover(path))?;
    let mut rest = SideRows::default();
    if let Some(backlog) = files.backlog.as_ref() {
        let mut continued = Continued::start(path, &files.events.file, end)?;
        let events = info.events;
        rest = compose(&backlog.file, events, &mut info, &mut |rows| continued.push(rows))?;
        let (groups, rows, behind) = continued.finish()?;
        row_groups.extend(groups);
        (info.events, end) = (events + rows, behind);
    }
    if row_groups.is_empty() {
        return Err(nothing_to_recover(path));
    }
    let footer = footer::encode(&row_groups, Some(footer::entry(path, &info)?))
        .map_err(|source| FormatError::parquet(path, "cannot encode the footer", source))?;
    finish_events(file, end, &footer).map_err(FormatError::write(path))?;

    // Names were found only while it was recorded.
    rest.locks.retain(|lock| lock.id.0 as usize >= tables.locks.len());
    let has_frames =
        |id: StackId| tables.stacks.get(id.0 as usize).is_some_and(|known| !known.frames.is_empty());
    rest.bare_stacks.retain(|stack| !has_frames(stack.id));
    put_all(&mut tables, rest);
    let paths = TracePaths::of(path);
    write(&tables, &files, &paths, &info)?;
    let last_ns = complete(&mut tables, &Trace::open(path)?.with_recorded_ids())?;
    write(&tables, &files, &paths, &info)?;
    files.journal.remove()?;
    if let Some(backlog) = &files.backlog {
        backlog.remove()?;
    }
    let bare = |stack: &&Stack| stack.frames.iter().all(|frame| frame.module.is_none());
    let bare = tables.stacks.iter().filter(bare).count();
    Ok(Recovery {
        events: info.events,
        cut_bytes: size.saturating_sub(end),
        bare_stacks: bare as u64,
        last_ns,
        info,
    })
}

/// Returns the error for a trace without a journal: it is complete, or cannot be recovered.
fn without_journal(path: &Path) -> FormatError {
    match check_complete(path) {
        Ok(()) => FormatError::AlreadyComplete { path: path.to_owned() },
        Err(FormatError::NoFooter { .. }) => nothing_to_recover(path),
        Err(error) => error,
    }
}

fn nothing_to_recover(path: &Path) -> FormatError {
    FormatError::NothingToRecover { path: path.to_owned(), journal: journal_path(path) }
}

/// The part of an unfinished trace that its checkpoints vouch for.
pub(crate) struct Intact {
    pub(crate) row_groups: Vec<RowGroupMetaData>,
    /// End of the last row group.
    pub(crate) end: u64,
    /// Run information of the last checkpoint.
    pub(crate) info: RunInfo,
    /// The rows of all checkpoints.
    pub(crate) tables: SideTables,
}

impl Intact {
    /// Reads the checkpoints whose part of the events file is intact. `None` if there are none.
    pub(crate) fn read(journal: &[u8], events: &File, stop_reason: &str) -> io::Result<Option<Self>> {
        let mut checkpoints = journal::checkpoints(journal);
        checkpoints.truncate(count_intact(events, &checkpoints)?);
        let Some(last) = checkpoints.last() else { return Ok(None) };
        let row_groups: Vec<RowGroupMetaData> =
            checkpoints.iter().flat_map(|checkpoint| checkpoint.row_groups.iter().cloned()).collect();
        let (end, info) = (last.end, last.info.unfinished(footer::rows(&row_groups), stop_reason));
        let mut tables = SideTables::default();
        checkpoints.into_iter().for_each(|checkpoint| put_all(&mut tables, checkpoint.side));
        Ok(Some(Self { row_groups, end, info, tables }))
    }
}

/// Counts the checkpoints whose part of the events file is intact, by its checksum.
fn count_intact(mut file: &File, checkpoints: &[Checkpoint]) -> io::Result<usize> {
    let mut buffer = vec![0; 1 << 20];
    let (mut hasher, mut offset) = (crc32fast::Hasher::new(), 0);
    for (index, checkpoint) in checkpoints.iter().enumerate() {
        while offset < checkpoint.end {
            let max = usize::try_from(checkpoint.end - offset).unwrap_or(usize::MAX).min(buffer.len());
            let read = file.read(&mut buffer[..max])?;
            if read == 0 {
                return Ok(index);
            }
            hasher.update(&buffer[..read]);
            offset += read as u64;
        }
        if hasher.clone().finalize() != checkpoint.crc {
            return Ok(index);
        }
    }
    Ok(checkpoints.len())
}

/// Cuts the events file at `end` and appends the footer.
fn finish_events(file: &File, end: u64, footer: &[u8]) -> io::Result<()> {
    file.set_len(end)?;
    file.write_all_at(footer, end)?;
    file.sync_all()
}

/// Adds new rows, and replaces older ones.
fn put_all(tables: &mut SideTables, side: SideRows) {
    let stacks = side.bare_stacks.iter().map(BareStack::to_stack);
    for stack in stacks.chain(side.stacks.iter().map(SharedStack::to_stack)) {
        let id = stack.id.0;
        put(&mut tables.stacks, id, stack, bare_stack);
    }
    for lock in side.locks {
        // New locks are journaled in id order, so there is no gap to fill.
        let id = lock.id.0;
        put(&mut tables.locks, id, lock.clone(), |id| LockRow { id: LockId(id), ..lock.clone() });
    }
    for task in side.tasks {
        let id = task.id.0;
        put(&mut tables.tasks, id, task.clone(), |id| TaskRow { id: TaskId(id), ..task.clone() });
    }
}

/// Fills in what only the events know: the last time of each lock, and stacks that were not journaled. Returns the time of
/// the last event.
pub(crate) fn complete(tables: &mut SideTables, trace: &Trace) -> Result<Option<i64>, FormatError> {
    let mut last_ns = None;
    let init = tables.locks.iter().filter_map(|lock| lock.init_stack).map(|stack| stack.0).max();
    let mut highest = init.unwrap_or(-1);
    for batch in trace.events()? {
        for event in batch?.iter() {
            last_ns = last_ns.max(Some(event.ts_ns));
            let stacks = event.stack.into_iter().chain(event.peer_stack);
            highest = stacks.map(|stack| stack.0).fold(highest, i32::max);
            let lock = event.lock.and_then(|lock| tables.locks.get_mut(usize::try_from(lock.0).ok()?));
            if let Some(lock) = lock {
                lock.last_ns = lock.last_ns.max(event.ts_ns);
            }
        }
    }
    while (tables.stacks.len() as i64) <= i64::from(highest) {
        tables.stacks.push(bare_stack(tables.stacks.len() as i32));
    }
    Ok(last_ns)
}

fn write(
    tables: &SideTables,
    files: &UnfinishedFiles,
    paths: &TracePaths,
    info: &RunInfo,
) -> Result<(), FormatError> {
    fn table<T: TableRow>(
        files: &UnfinishedFiles,
        path: &Path,
        rows: &[T],
        trace_id: &str,
    ) -> Result<(), FormatError> {
        let file = files.side_table(path)?;
        write_table(path, file.file(), trace_id, rows)?;
        Ok(file.finish()?)
    }
    table(files, &paths.stacks, &tables.stacks, &info.trace_id)?;
    table(files, &paths.locks, &tables.locks, &info.trace_id)?;
    table(files, &paths.tasks, &tables.tasks, &info.trace_id)
}

fn bare_stack(id: i32) -> Stack {
    Stack { id: StackId(id), frames: Vec::new() }
}

/// Maximum number of placeholder rows before a journaled row. Stacks are symbolized out of order, but not by this much.
const MAX_PLACEHOLDERS: usize = 1 << 22;

/// Stores a row at the index of its id, and fills a gap before it with placeholders.
fn put<T>(rows: &mut Vec<T>, id: i32, row: T, placeholder: impl Fn(i32) -> T) {
    let Ok(index) = usize::try_from(id) else { return };
    if index > rows.len() + MAX_PLACEHOLDERS {
        return;
    }
    while rows.len() < index {
        rows.push(placeholder(rows.len() as i32));
    }
    match rows.get_mut(index) {
        Some(old) => *old = row,
        None => rows.push(row),
    }
}

#[cfg(test)]
mod tests;
