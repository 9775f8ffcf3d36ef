//! A trace whose recorder was killed, and its journal enter; a whole trace leaves, of everything up to the last checkpoint.
//!
//! The events' file keeps its row groups, loses what came after the last whole one, and gets its footer; the side tables are
//! written anew. What the recorder had not told by then is missing: a stack whose frames were not looked up has none. Nothing is
//! removed before everything is written, so that a recovery that is cut short can be made again.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use parquet::file::metadata::{KeyValue, RowGroupMetaData};

use crate::{
    FormatError,
    event::{LockId, StackId},
    journal::{self, Checkpoint},
    paths::TracePaths,
    reader::{self, Trace},
    run_info::{KEY, RunInfo, Version},
    tables::{LockRow, Stack, TaskRow},
    writer,
};

/// Why a recovered trace ended.
pub const STOP_REASON: &str = "the recorder was killed; recovered";

/// What a recovery brought back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Events in the trace.
    pub events: u64,
    /// Bytes behind the last whole row group, which were cut off.
    pub cut_bytes: u64,
    /// Stacks of addresses alone: they were not looked up yet.
    pub bare_stacks: u64,
    /// Time of the last event, if there is one.
    pub last_ns: Option<i64>,
    /// How it was made, as the trace says it now.
    pub info: RunInfo,
}

/// What the journal tells of the side tables.
#[derive(Debug, Default)]
struct Tables {
    stacks: Vec<Stack>,
    locks: Vec<LockRow>,
    tasks: Vec<TaskRow>,
}

/// Finishes the trace whose events are in `path`.
pub fn recover(path: &Path) -> Result<Recovered, FormatError> {
    let journal_path = journal::path_of(path);
    let journal = match fs::read(&journal_path) {
        Ok(journal) => journal,
        Err(source) if source.kind() == io::ErrorKind::NotFound => {
            return Err(without_journal(path, journal_path));
        }
        Err(source) => return Err(FormatError::Io { path: journal_path, source }),
    };
    let io = |source| FormatError::Io { path: path.to_owned(), source };
    let mut checkpoints = journal::checkpoints(&journal);
    let size = fs::metadata(path).map_err(io)?.len();
    checkpoints.truncate(on_the_disk(path, &checkpoints).map_err(io)?);
    let row_groups: Vec<RowGroupMetaData> =
        checkpoints.iter().flat_map(|checkpoint| checkpoint.row_groups.iter().cloned()).collect();
    let (Some(last), false) = (checkpoints.last(), row_groups.is_empty()) else {
        return Err(FormatError::NothingToRecover { path: path.to_owned(), journal: journal_path });
    };
    let end = last.end;
    let events = row_groups.iter().map(|group| u64::try_from(group.num_rows()).unwrap_or(0)).sum();
    let info = RunInfo {
        format: Version::default(),
        table: "events".to_owned(),
        events,
        complete: false,
        stop_reason: STOP_REASON.to_owned(),
        ..last.info.clone()
    };
    let json = serde_json::to_string(&info)
        .map_err(|source| FormatError::BadRunInfo { path: path.to_owned(), source })?;
    let footer =
        journal::footer_of(&row_groups, Some(KeyValue::new(KEY.to_owned(), json))).map_err(|source| {
            FormatError::Parquet { path: path.to_owned(), place: "the footer".to_owned(), source }
        })?;
    finish_events(path, end, &footer).map_err(io)?;

    let mut tables = Tables::of(checkpoints);
    let paths = TracePaths::of(path);
    tables.write(&paths, &info)?;
    let last_ns = tables.complete(&Trace::open(path)?)?;
    tables.write(&paths, &info)?;
    fs::remove_file(&journal_path).map_err(|source| FormatError::Io { path: journal_path, source })?;
    let bare = |stack: &&Stack| stack.frames.iter().all(|frame| frame.module.is_none());
    let bare = tables.stacks.iter().filter(bare).count();
    Ok(Recovered { events, cut_bytes: size.saturating_sub(end), bare_stacks: bare as u64, last_ns, info })
}

/// Without a journal it is whole, or beyond help.
fn without_journal(path: &Path, journal: PathBuf) -> FormatError {
    match reader::check_whole(path) {
        Ok(()) => FormatError::Whole { path: path.to_owned() },
        Err(FormatError::NoFooter { .. }) => FormatError::NothingToRecover { path: path.to_owned(), journal },
        Err(error) => error,
    }
}

/// How many of the checkpoints speak of bytes that are in the file as they were written.
fn on_the_disk(path: &Path, checkpoints: &[Checkpoint]) -> io::Result<usize> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    let (mut hasher, mut at) = (crc32fast::Hasher::new(), 0);
    for (index, checkpoint) in checkpoints.iter().enumerate() {
        while at < checkpoint.end {
            let most = usize::try_from(checkpoint.end - at).unwrap_or(usize::MAX).min(buffer.len());
            let read = file.read(&mut buffer[..most])?;
            if read == 0 {
                return Ok(index);
            }
            hasher.update(&buffer[..read]);
            at += read as u64;
        }
        if hasher.clone().finalize() != checkpoint.crc {
            return Ok(index);
        }
    }
    Ok(checkpoints.len())
}

/// Cuts off what is no whole row group, and adds the footer.
fn finish_events(path: &Path, end: u64, footer: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.set_len(end)?;
    file.seek(SeekFrom::Start(end))?;
    file.write_all(footer)?;
    file.sync_all()
}

impl Tables {
    fn of(checkpoints: Vec<Checkpoint>) -> Self {
        let mut tables = Self::default();
        for side in checkpoints.into_iter().map(|checkpoint| checkpoint.side) {
            for stack in side.stacks {
                let id = stack.id.0;
                put(&mut tables.stacks, id, stack, bare_stack);
            }
            for lock in side.locks {
                // Ids are told in their order: there is nothing between the last and a new one.
                let id = lock.id.0;
                put(&mut tables.locks, id, lock.clone(), |id| LockRow { id: LockId(id), ..lock.clone() });
            }
            for task in side.tasks {
                let id = task.id.0;
                put(&mut tables.tasks, id, task.clone(), |id| TaskRow {
                    id: crate::TaskId(id),
                    ..task.clone()
                });
            }
        }
        tables
    }

    /// What only the events know: when each lock was last seen, and which stacks there must be. Returns the time of the last
    /// event.
    fn complete(&mut self, trace: &Trace) -> Result<Option<i64>, FormatError> {
        let mut last_ns = None;
        let init = self.locks.iter().filter_map(|lock| lock.init_stack).map(|stack| stack.0).max();
        let mut highest = init.unwrap_or(-1);
        for batch in trace.events()? {
            for event in batch?.iter() {
                last_ns = last_ns.max(Some(event.ts_ns));
                let stacks = event.stack.into_iter().chain(event.peer_stack);
                highest = stacks.map(|stack| stack.0).fold(highest, i32::max);
                let lock = event.lock.and_then(|lock| self.locks.get_mut(usize::try_from(lock.0).ok()?));
                if let Some(lock) = lock {
                    lock.last_ns = lock.last_ns.max(event.ts_ns);
                }
            }
        }
        while (self.stacks.len() as i64) <= i64::from(highest) {
            self.stacks.push(bare_stack(self.stacks.len() as i32));
        }
        Ok(last_ns)
    }

    fn write(&self, paths: &TracePaths, info: &RunInfo) -> Result<(), FormatError> {
        writer::write_side_tables(paths, &info.trace_id, &self.stacks, &self.locks, &self.tasks).map(drop)
    }
}

fn bare_stack(id: i32) -> Stack {
    Stack { id: StackId(id), frames: Vec::new() }
}

/// The most rows that are made up before one that was told: stacks are looked up out of order, but not by so many.
const MOST_MADE_UP: usize = 1 << 22;

/// Puts a row where its id says; rows between the last and this one are made up.
fn put<T>(rows: &mut Vec<T>, id: i32, row: T, made_up: impl Fn(i32) -> T) {
    let Ok(at) = usize::try_from(id) else { return };
    if at > rows.len() + MOST_MADE_UP {
        return;
    }
    while rows.len() < at {
        rows.push(made_up(rows.len() as i32));
    }
    match rows.get_mut(at) {
        Some(old) => *old = row,
        None => rows.push(row),
    }
}

#[cfg(test)]
mod tests;
