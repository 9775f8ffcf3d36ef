//! Writes traces: streams events to the events file, and writes the three side tables at the end.
//!
//! Memory is bounded: rows are buffered up to a batch, batches up to a row group, and the caller closes row
//! groups periodically ([`TraceWriter::end_row_group`], [`TraceWriter::checkpoint`]). [`TraceWriter::finish`]
//! writes the footer with the loss counters. Until then the file has no footer, so that an incomplete trace
//! cannot pass for a complete one; [`recover`](crate::recover()) can finish it from the
//! [`journal`](crate::journal).

use std::{
    collections::{BTreeMap, hash_map::RandomState},
    fmt,
    fs::File,
    hash::{BuildHasher, Hasher},
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use parquet::errors::ParquetError;

use crate::{
    FormatError,
    columns::EventColumns,
    digest::{Digest, SideDigests},
    event::{Event, StackId},
    field::TableRow,
    footer,
    journal::Journal,
    journal_tables::StackRows,
    output::{
        OutputOptions,
        kept::KeptFiles,
        recording::{NamedFile, RecordingFiles, RegularFiles},
    },
    run_info::{RunInfo, Version},
    tables::{LockRow, SharedStack, SideRows, Stack, TaskRow},
};

pub(crate) mod continued;
mod cut;
mod file;
mod pages;

pub(crate) use file::SideTable;

use file::{CountingFile, base_properties, cannot_write};
use pages::EventsFile;

/// Rows per batch, each of which becomes a page of each column: large enough to amortize the encoder's cost
/// per page, small enough for the cache.
const BATCH_ROWS: usize = 16 * 1024;

/// A writer of one trace. If it is dropped without [`finish`](Self::finish), the events file has no footer.
///
/// If the disk fills, the trace is finished with the events that are already on disk:
/// [`finish`](Self::finish) returns [`FormatError::CutShort`] then. If the disk fails, the files and the
/// journal stay as they are: [`FormatError::Kept`].
#[derive(Debug)]
pub struct TraceWriter {
    path: PathBuf,
    writer: EventsFile,
    buffer: EventColumns,
    rows: u64,
    /// The earliest and the latest time of a row.
    times: Option<(i64, i64)>,
    /// `None` if the output is not a regular file.
    regular: Option<Regular>,
    /// The first error of writing.
    failure: Option<FormatError>,
}

/// The regular files of a trace, and its journal.
#[derive(Debug)]
struct Regular {
    files: Box<RegularFiles>,
    journal: Journal,
    /// Number of row groups in the journal.
    journaled: usize,
    /// `None` if it could not be written: the journal has the stacks, too.
    stacks: Option<StackTable>,
}

/// The stacks table, which is written beside the journal, so that its end takes no longer however many stacks
/// there are.
struct StackTable {
    rows: StackRows,
    table: SideTable<Stack>,
}

impl fmt::Debug for StackTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StackTable").field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl StackTable {
    fn start(file: &NamedFile) -> Result<Self, FormatError> {
        Ok(Self { rows: StackRows::default(), table: SideTable::restart(file)? })
    }

    /// Adds the stacks of a checkpoint, or those after the last one.
    fn add(&mut self, side: &SideRows) -> Result<(), FormatError> {
        let Self { rows, table } = self;
        let take = &mut |stack| table.add(stack);
        rows.add_bare(&side.bare_stacks, take)?;
        side.stacks.iter().try_for_each(|stack| rows.add(stack.to_stack(), take))
    }

    /// Adds the stacks of a whole journal.
    fn add_journal(mut self, journal: &Journal) -> Result<Self, FormatError> {
        let Self { rows, table } = &mut self;
        rows.add_journal(journal.file(), u64::MAX, &mut |stack| table.add(stack))?;
        Ok(self)
    }

    fn finish(mut self, trace_id: &str) -> Result<(u64, u32), FormatError> {
        let Self { rows, table } = &mut self;
        rows.finish(StackId(-1), &mut |stack| table.add(stack))?;
        self.table.finish(trace_id)
    }
}

/// The size of a finished trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceSize {
    /// Number of events.
    pub events: u64,
    /// Size of the events file in bytes.
    pub event_bytes: u64,
    /// Size of all four files in bytes.
    pub total_bytes: u64,
}

impl TraceWriter {
    /// Creates the trace with the events file `path`. Existing files are an error unless `replace` is set.
    pub fn create(path: &Path, replace: bool) -> Result<Self, FormatError> {
        Self::create_with(path, &OutputOptions::replacing(replace))
    }

    /// Creates the trace with the events file `path`. A device, pipe or socket takes the events only, without
    /// side tables.
    pub fn create_with(path: &Path, options: &OutputOptions) -> Result<Self, FormatError> {
        let (file, regular) = match RecordingFiles::create(path, options)? {
            RecordingFiles::Stream(file) => (Arc::new(file), None),
            RecordingFiles::Regular(files) => {
                let (file, journal) =
                    (Arc::clone(&files.events.file), Journal::start(files.journal.clone())?);
                let stacks = StackTable::start(&files.stacks).ok();
                (file, Some(Regular { files, journal, journaled: 0, stacks }))
            }
        };
        Ok(Self {
            path: path.to_owned(),
            writer: EventsFile::start(CountingFile::new(file), base_properties().build())
                .map_err(|source| cannot_write(path, "the header", source))?,
            buffer: EventColumns::default(),
            rows: 0,
            times: None,
            regular,
            failure: None,
        })
    }

    /// Adds an event. Events should come in time order; the writer does not sort.
    pub fn push(&mut self, event: &Event) -> Result<(), FormatError> {
        self.buffer.push(*event);
        self.rows += 1;
        if self.buffer.len() >= BATCH_ROWS { self.encode() } else { Ok(()) }
    }

    /// Adds events, in time order, too.
    pub fn push_columns(&mut self, events: &EventColumns) -> Result<(), FormatError> {
        self.rows += events.len() as u64;
        if events.len() >= BATCH_ROWS {
            self.encode()?;
            self.add_times(events.times());
            return self.writer.add(events).map_err(|source| self.cannot_write(source));
        }
        self.buffer.append(events);
        if self.buffer.len() >= BATCH_ROWS { self.encode() } else { Ok(()) }
    }

    /// Closes the row group unless it is empty, and writes all events so far to the file.
    pub fn end_row_group(&mut self) -> Result<(), FormatError> {
        self.encode()?;
        self.writer.end_row_group().map_err(|source| self.cannot_write(source))?;
        self.writer.flush().map_err(FormatError::write(&self.path))
    }

    /// Closes the row group and adds a checkpoint to the journal: the run information with the losses so far,
    /// and the new or changed rows of the side tables. Every lock and task that the events refer to must be
    /// in this checkpoint or an earlier one. Stacks may follow later, in the order of their ids.
    ///
    /// When this returns, these files and the backlog are synced to disk.
    pub fn checkpoint(&mut self, info: &RunInfo, side: &SideRows) -> Result<(), FormatError> {
        self.end_row_group()?;
        let Some(Regular { files, journal, journaled, stacks }) = &mut self.regular else { return Ok(()) };
        let file = self.writer.inner();
        file.sync_data().map_err(FormatError::write(&self.path))?;
        files.backlog.file.sync_data().map_err(FormatError::write(files.backlog.path()))?;
        let row_groups = self.writer.row_groups();
        journal.add(file.bytes(), file.crc(), &row_groups[*journaled..], info, side)?;
        *journaled = row_groups.len();
        // The end writes the table again if this fails.
        stacks.take_if(|table| table.add(side).is_err());
        if let Some(reserve) = &mut files.reserve {
            // The side tables take about as much space as the rows in the journal.
            reserve.grow_for(journal.bytes())?;
        }
        Ok(files.events.check_exists()?)
    }

    /// Keeps an error of [`push`](Self::push) or [`checkpoint`](Self::checkpoint) for
    /// [`finish`](Self::finish), which cuts the trace short then. Nothing must be added after it.
    pub fn fail(&mut self, error: FormatError) {
        self.failure.get_or_insert(error);
    }

    /// Returns the file for records that wait to become events, which [`recover`](crate::recover()) reads;
    /// `None` if the output is not a regular file. Each [`checkpoint`](Self::checkpoint) syncs it.
    pub fn backlog(&self) -> Option<Arc<File>> {
        Some(Arc::clone(&self.regular.as_ref()?.files.backlog.file))
    }

    /// Returns the number of events so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the size of the events file in bytes, with an estimate for buffered rows.
    pub fn bytes(&self) -> u64 {
        self.writer.bytes() as u64
    }

    /// Finishes the trace: writes the last row group, the footer with `info`, and the side tables. The
    /// checkpoints have brought some stacks; `info` comes with further ones, by id.
    ///
    /// Sets `info.table`, `info.format` and `info.events`.
    pub fn finish(
        self,
        info: &RunInfo,
        stacks: &[Stack],
        locks: &[LockRow],
        tasks: &[TaskRow],
    ) -> Result<TraceSize, FormatError> {
        let frames = |stack: &Stack| vec![Arc::from(&*stack.frames)];
        let shared = |stack: &Stack| SharedStack { id: stack.id, frames: frames(stack) };
        let (stacks, locks, tasks) = (stacks.iter().map(shared).collect(), locks.to_vec(), tasks.to_vec());
        self.finish_with(info, &SideRows { stacks, locks, tasks, ..SideRows::default() })
    }

    /// Finishes the trace as [`finish`](Self::finish) does, with all locks and tasks, and the stacks that no
    /// checkpoint has.
    pub fn finish_with(mut self, info: &RunInfo, side: &SideRows) -> Result<TraceSize, FormatError> {
        let mut ended = match self.failure.take() {
            Some(error) => Err(error),
            None => self.end_row_group(),
        };
        let info = RunInfo {
            format: Version::default(),
            table: "events".to_owned(),
            events: self.rows,
            lived_ns: self
                .times
                .zip(last_exit(&side.tasks))
                .map(|(times, exit_ns)| (times.0, times.1.max(exit_ns))),
            ..info.clone()
        };
        let Some(Regular { mut files, journal, journaled, stacks: table }) = self.regular.take() else {
            let event_bytes = ended.and_then(|()| self.end_events(&info, SideDigests::default()))?;
            return Ok(TraceSize { events: self.rows, event_bytes, total_bytes: event_bytes });
        };
        files.events.check_exists()?;
        if ended.is_err() {
            files.reserve = None;
        }
        let write_side = |files: &RegularFiles, table| -> Result<(u64, SideDigests), FormatError> {
            let id = &info.trace_id;
            let mut table = match table {
                Some(table) => table,
                None => StackTable::start(&files.stacks)?.add_journal(&journal)?,
            };
            table.add(side)?;
            let (stack_bytes, stacks) = table.finish(id)?;
            let (lock_bytes, locks) = write_table(&files.locks, id, &side.locks)?;
            let (task_bytes, tasks) = write_table(&files.tasks, id, &side.tasks)?;
            Ok((stack_bytes + lock_bytes + task_bytes, SideDigests { stacks, locks, tasks }))
        };
        // The files on the disk stay there with the journal, for `klock recover`.
        let path = self.path.clone();
        let kept = |source| FormatError::Kept { path: path.clone(), source: Box::new(source) };
        let written = write_side(&files, table).or_else(|error| match files.reserve.take() {
            Some(_) if error.is_out_of_space() => write_side(&files, None),
            _ => Err(error),
        });
        let (side_bytes, sides) = written.map_err(kept)?;
        let event_bytes = match ended.and_then(|()| self.end_events(&info, sides)) {
            Ok(bytes) => {
                ended = Ok(());
                bytes
            }
            Err(error) if error.is_out_of_space() => {
                self.writer.inner_mut().close();
                files.reserve = None;
                let (row_groups, checksums) = (self.writer.row_groups(), self.writer.checksums());
                let all =
                    cut::Written { row_groups, checksums, written: self.writer.inner().bytes(), journaled };
                let Ok(cut) = cut::end(&files.events, all, &info, sides) else { return Err(kept(error)) };
                ended = Err(FormatError::CutShort { events: cut.events, source: Box::new(error) });
                cut.bytes
            }
            Err(error) => return Err(kept(error)),
        };
        files.journal.remove()?;
        files.backlog.remove()?;
        files.events.unlock();
        ended.map(|()| TraceSize { events: self.rows, event_bytes, total_bytes: event_bytes + side_bytes })
    }

    /// Returns the events file of the earlier trace of this name, if it was kept under another one.
    pub fn kept(&self) -> Option<&Path> {
        self.regular.as_ref()?.files.kept.as_ref()?.path()
    }

    /// Removes all files, and gives an earlier trace its name back.
    pub fn discard(self) -> Result<(), FormatError> {
        let Some(Regular { files, .. }) = &self.regular else { return Ok(()) };
        let RegularFiles { events, journal, backlog, stacks, locks, tasks, kept, .. } = &**files;
        [journal, backlog, stacks, locks, tasks, events].into_iter().try_for_each(NamedFile::remove)?;
        kept.iter().for_each(KeptFiles::restore);
        Ok(())
    }

    fn add_times(&mut self, times: Option<(i64, i64)>) {
        self.times = match (self.times, times) {
            (Some(all), Some(more)) => Some((all.0.min(more.0), all.1.max(more.1))),
            (all, more) => all.or(more),
        };
    }

    /// Encodes the buffered events.
    fn encode(&mut self) -> Result<(), FormatError> {
        self.add_times(self.buffer.times());
        let added = self.writer.add(&self.buffer);
        self.buffer.clear();
        added.map_err(|source| self.cannot_write(source))
    }

    /// Writes the footer behind the last row group, syncs the events file and returns its size.
    fn end_events(&mut self, info: &RunInfo, sides: SideDigests) -> Result<u64, FormatError> {
        let digest = Digest::new(self.writer.checksums(), sides);
        let footer = footer::whole(&self.path, self.writer.row_groups(), info, &digest)?;
        let file = self.writer.inner_mut();
        file.write_all(&footer).map_err(FormatError::write(&self.path))?;
        file.sync_all().map_err(FormatError::write(&self.path))?;
        let bytes = file.bytes();
        // The Parquet writer has nothing to add.
        file.close();
        Ok(bytes)
    }

    fn cannot_write(&self, source: ParquetError) -> FormatError {
        cannot_write(&self.path, &format!("row {}", self.rows), source)
    }
}

/// Writes a side table at once, and returns its size in bytes and its CRC-32.
fn write_table<T: TableRow + Clone>(
    file: &NamedFile,
    id: &str,
    rows: &[T],
) -> Result<(u64, u32), FormatError> {
    let mut table = SideTable::restart(file)?;
    table.add_all(rows)?;
    table.finish(id)
}

/// Returns the time at which the last process ended, by its first thread, or by all others if the trace does
/// not have that; `None` if it is not known of each process.
fn last_exit(tasks: &[TaskRow]) -> Option<i64> {
    let mut by_process: BTreeMap<i32, (bool, Option<i64>)> = BTreeMap::new();
    for task in tasks.iter().filter(|task| task.tid >= 0) {
        let last = by_process.entry(task.pid).or_default();
        if task.tid == task.pid {
            // A process that runs another program has a further row.
            *last = (true, task.exit_ns);
        } else if !last.0 {
            last.1 = last.1.max(task.exit_ns);
        }
    }
    by_process.into_values().map(|(_, exit_ns)| exit_ns).collect::<Option<Vec<i64>>>()?.into_iter().max()
}

/// Returns a new, unique trace id of 32 hex digits.
pub fn new_trace_id() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let half = || {
        // The operating system seeds RandomState.
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u128(now);
        hasher.finish()
    };
    format!("{:016x}{:016x}", half(), half())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{event::TaskId, reader::Trace, tables::Frame};

    #[test]
    fn deep_stacks_that_differ_in_one_frame_are_read_back_however_small_their_table_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let recursion: Vec<Frame> =
            vec![Frame { symbol: Some("walk_the_whole_tree".into()), ..Frame::default() }; 126];
        let stack = |id| {
            let own = Frame { address: Some(64 * id as u64), ..Frame::default() };
            Stack { id: StackId(id), frames: [recursion.as_slice(), &[own]].concat() }
        };
        let stacks: Vec<Stack> = (0..9_000).map(stack).collect();
        let writer = TraceWriter::create(&path, false).unwrap();
        writer.finish(&RunInfo::default(), &stacks, &[], &[]).unwrap();
        let counts = Trace::open(&path).unwrap().stack_counts().unwrap();
        assert_eq!((counts.stacks, counts.frames, counts.named), (9_000, 127 * 9_000, 126 * 9_000));
    }

    #[test]
    fn a_finished_trace_is_unlocked_although_a_child_still_has_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let writer = TraceWriter::create(&path, false).unwrap();
        let of_child = Arc::clone(&writer.regular.as_ref().unwrap().files.events.file);
        let again = || TraceWriter::create(&path, true).map(drop);
        assert!(again().is_err(), "locked while it is written");
        writer.finish(&RunInfo::default(), &[], &[], &[]).unwrap();
        again().unwrap();
        drop(of_child);
    }

    #[test]
    fn a_process_ends_with_its_first_thread_and_otherwise_with_its_last() {
        let last = |tasks: &[(i32, i32, Option<i64>)]| {
            let row = |(pid, tid, exit_ns): &(i32, i32, Option<i64>)| TaskRow {
                exit_ns: *exit_ns,
                ..TaskRow::new(TaskId(0), *pid, *tid)
            };
            last_exit(&tasks.iter().map(row).collect::<Vec<_>>())
        };
        assert_eq!(
            last(&[(7, 7, Some(50)), (7, 8, None), (7, -1, None)]),
            Some(50),
            "its threads end with it"
        );
        assert_eq!(last(&[(7, 8, Some(30)), (7, 7, None)]), None, "it was killed");
        assert_eq!(last(&[(7, 7, Some(20)), (7, 7, None)]), None, "it runs another program");
        assert_eq!(last(&[(7, 8, Some(30)), (7, 9, Some(40)), (9, 9, Some(35))]), Some(40));
        assert_eq!(last(&[(7, 7, Some(50)), (9, 10, None)]), None);
        assert_eq!(last(&[]), None);
    }
}
