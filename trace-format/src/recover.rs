//! Finishes a trace whose recorder was killed, from its journal and its backlog. The result holds everything
//! up to the last checkpoint, and the records that waited to become rows then.
//!
//! The events file is cut after the last complete row group; the rows of the backlog are added, and the
//! footer. The side tables are rewritten. Entries that were not in the journal yet are missing: a stack that
//! was not symbolized has no frames. The journal is removed last, so that an interrupted recovery can be
//! repeated.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _},
    os::unix::fs::FileExt as _,
    path::Path,
    sync::Arc,
};

use parquet::file::metadata::RowGroupMetaData;

use crate::{
    FormatError,
    columns::EventColumns,
    digest::{Digest, SideDigests},
    event::StackId,
    field::TableRow,
    footer,
    gate::file::{TraceFile, check_complete},
    journal::JournalReader,
    journal_tables::{JournalPart, SideTables},
    output::{OutputOptions, recording::UnfinishedFiles},
    paths::{TracePaths, journal_path},
    reader::{Trace, catch_panics},
    run_info::RunInfo,
    tables::SideRows,
    writer::{SideTable, continued::Continued},
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
    /// Number of bytes of the journal that are incomplete or damaged, or whose part of the events is.
    pub journal_bytes_left: u64,
    /// Number of stacks that were not symbolized.
    pub bare_stacks: u64,
    /// Time of the last event, if there is one.
    pub last_ns: Option<i64>,
    /// The run information of the recovered trace.
    pub info: RunInfo,
}

/// Composes the rows of a backlog, without the first ones: the trace has this number of them already. Passes
/// rows on in the order of time, adds to the losses, and returns the rows of the side tables that are new or
/// changed.
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
    let facts = TraceFile::of(path, file)?;
    let size = facts.bytes;
    let journal = (files.journal.path(), Arc::clone(&files.journal.file));
    let intact = Intact::read(journal, (&facts, file), STOP_REASON)?;
    let Intact { mut row_groups, mut end, mut info, mut tables, journal_bytes_left } =
        intact.ok_or_else(|| nothing_to_recover(path))?;
    if let Some(backlog) = files.backlog.as_ref() {
        let mut continued = Continued::start(path, &files.events.file, end)?;
        let events = info.events;
        let mut push = |rows: &EventColumns| continued.push(rows);
        let composed =
            catch_panics(backlog.path(), || Ok(compose(&backlog.file, events, &mut info, &mut push)));
        let failed = |source| FormatError::parquet(backlog.path(), "cannot decode the backlog", source);
        tables.add_backlog(composed.map_err(failed)??);
        let (groups, rows, behind) = continued.finish()?;
        row_groups.extend(groups);
        (info.events, end) = (events + rows, behind);
    }
    if row_groups.is_empty() {
        return Err(nothing_to_recover(path));
    }
    let footer = footer::encode(&row_groups, vec![footer::entry(path, &info)?])
        .map_err(|source| FormatError::parquet(path, "cannot encode the footer", source))?;
    let facts = TraceFile::of(path, file)?;
    let trace = Trace::unfinished(facts.clone(), &footer, info.clone())?;
    let last_ns = complete(&mut tables, &trace)?;
    let (sides, bare_stacks) = write(&tables, &files, &TracePaths::of(path), &info)?;
    let digest = Digest::new(&facts.chunk_checksums(file, &row_groups)?, sides);
    let footer = footer::whole(path, &row_groups, &info, &digest)?;
    finish_events(file, end, &footer).map_err(FormatError::write(path))?;
    files.journal.remove()?;
    if let Some(backlog) = &files.backlog {
        backlog.remove()?;
    }
    Ok(Recovery {
        events: info.events,
        cut_bytes: size.saturating_sub(end),
        journal_bytes_left,
        bare_stacks,
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
    /// The locks and tasks of all checkpoints, and where their stacks are.
    pub(crate) tables: SideTables,
    /// Bytes of the journal behind these checkpoints.
    pub(crate) journal_bytes_left: u64,
}

impl Intact {
    /// Reads the checkpoints whose part of the events file is intact, by its checksum. A checkpoint that was
    /// read before ends the journal: its row groups do not lie behind those before. `None` if there are none.
    pub(crate) fn read(
        (journal_path, journal_file): (&Path, Arc<File>),
        (facts, mut events): (&TraceFile, &File),
        stop_reason: &str,
    ) -> Result<Option<Self>, FormatError> {
        let io = FormatError::io(facts.path());
        events.rewind().map_err(&io)?;
        let mut journal = JournalReader::open(journal_path, &journal_file)?;
        let mut checksum = Checksum::default();
        let (mut row_groups, mut last, mut tables) = (Vec::new(), None, SideTables::default());
        let (mut checkpoints, mut journal_bytes_left) = (0, journal.bytes_left());
        while let Some(checkpoint) = journal.next()? {
            let before = checksum.bytes;
            let is_intact = checkpoint.end >= before
                && checksum.read(events, checkpoint.end).map_err(&io)?
                && checksum.hasher.clone().finalize() == checkpoint.crc
                && facts.check_row_groups(&checkpoint.row_groups, before..checkpoint.end).is_ok();
            if !is_intact {
                break;
            }
            row_groups.extend(checkpoint.row_groups);
            tables.add(checkpoint.rows.locks, checkpoint.rows.tasks);
            checkpoints += 1;
            last = Some((checkpoint.end, checkpoint.info));
            journal_bytes_left = journal.bytes_left();
        }
        tables.stacks = Some(JournalPart {
            path: journal_path.to_owned(),
            journal: journal_file,
            checkpoints,
            highest: StackId(-1),
            bare_stacks: Vec::new(),
        });
        Ok(last.map(|(end, info)| {
            let info = info.unfinished(footer::rows(&row_groups), stop_reason);
            Self { row_groups, end, info, tables, journal_bytes_left }
        }))
    }
}

/// The CRC-32 of the first bytes of a file.
#[derive(Default)]
struct Checksum {
    hasher: crc32fast::Hasher,
    bytes: u64,
}

impl Checksum {
    /// Reads on up to `end`. Returns `false` if the file ends before.
    fn read(&mut self, mut file: &File, end: u64) -> io::Result<bool> {
        let mut buffer = vec![0; 1 << 20];
        while self.bytes < end {
            let max = usize::try_from(end - self.bytes).unwrap_or(usize::MAX).min(buffer.len());
            let read = file.read(&mut buffer[..max])?;
            if read == 0 {
                return Ok(false);
            }
            self.hasher.update(&buffer[..read]);
            self.bytes += read as u64;
        }
        Ok(true)
    }
}

/// Cuts the events file at `end` and appends the footer.
fn finish_events(file: &File, end: u64, footer: &[u8]) -> io::Result<()> {
    file.set_len(end)?;
    file.write_all_at(footer, end)?;
    file.sync_all()
}

/// Fills in what only the events know: the last time of each lock, and stacks that were not journaled.
/// Returns the time of the last event.
pub(crate) fn complete(tables: &mut SideTables, trace: &Trace) -> Result<Option<i64>, FormatError> {
    let mut last_ns = None;
    let init = tables.locks.iter().filter_map(|lock| lock.init_stack).max();
    let mut highest = init.unwrap_or(StackId(-1));
    for batch in trace.events()? {
        for event in batch?.iter() {
            last_ns = last_ns.max(Some(event.ts_ns));
            let stacks = event.stack.into_iter().chain(event.peer_stack);
            highest = stacks.fold(highest, StackId::max);
            let lock = event.lock.and_then(|lock| tables.locks.get_mut(usize::try_from(lock.0).ok()?));
            if let Some(lock) = lock {
                lock.last_ns = lock.last_ns.max(event.ts_ns);
            }
        }
    }
    if let Some(stacks) = &mut tables.stacks {
        stacks.highest = highest;
    }
    Ok(last_ns)
}

/// Writes the side tables. Returns their checksums, and the number of stacks of which no module is known.
fn write(
    tables: &SideTables,
    files: &UnfinishedFiles,
    paths: &TracePaths,
    info: &RunInfo,
) -> Result<(SideDigests, u64), FormatError> {
    fn table<T: TableRow, N>(
        files: &UnfinishedFiles,
        path: &Path,
        trace_id: &str,
        add: impl FnOnce(&mut SideTable<T>) -> Result<N, FormatError>,
    ) -> Result<(u32, N), FormatError> {
        let file = files.side_table(path)?;
        let mut table = SideTable::start(path, file.file())?;
        let added = add(&mut table)?;
        let (_, crc) = table.finish(trace_id)?;
        file.finish()?;
        Ok((crc, added))
    }
    let id = &info.trace_id;
    let (stacks, without_modules) =
        table(files, &paths.stacks, id, |table| tables.each_stack(&mut |stack| table.add(stack)))?;
    let (locks, ()) = table(files, &paths.locks, id, |table| table.add_all(&tables.locks))?;
    let (tasks, ()) = table(files, &paths.tasks, id, |table| table.add_all(&tables.tasks))?;
    Ok((SideDigests { stacks, locks, tasks }, without_modules))
}

#[cfg(test)]
mod tests;
