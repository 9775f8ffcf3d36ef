//! Reads a trace while it is being recorded: the row groups up to the last checkpoint of its journal. Nothing
//! is written.

use std::{fs::File, io::ErrorKind, path::Path, sync::Arc};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use crate::{
    FormatError, footer,
    gate::file::TraceFile,
    paths::journal_path,
    reader::Trace,
    recover::{Intact, complete},
};

/// The [`RunInfo::stop_reason`](crate::RunInfo::stop_reason) of a trace that is being recorded.
pub const RUNNING: &str = "the recording is still running";

/// Opens a trace, also one that is being recorded.
///
/// # Errors
///
/// As [`Trace::open`]; or the recording has not written its first checkpoint yet.
pub fn open(path: &Path) -> Result<Trace, FormatError> {
    match Trace::open(path) {
        Err(FormatError::NoFooter { .. } | FormatError::NotParquet { .. }) if is_being_recorded(path) => {
            open_running(path)
        }
        opened => opened,
    }
}

/// Returns whether a recorder holds the lock on the file.
fn is_being_recorded(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    journal_path(path).exists()
        && matches!(flock(&file, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK))
}

fn open_running(path: &Path) -> Result<Trace, FormatError> {
    let too_early = || FormatError::BeingRecorded { path: path.to_owned() };
    let journal_path = journal_path(path);
    let (_, journal) = match TraceFile::open(&journal_path) {
        // The recording has ended meanwhile.
        Err(FormatError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            return Trace::open(path);
        }
        opened => opened?,
    };
    let (facts, events) = TraceFile::open(path)?;
    let intact = Intact::read((&journal_path, Arc::new(journal)), (&facts, &events), RUNNING)?;
    let intact = intact.filter(|intact| !intact.row_groups.is_empty());
    let Intact { row_groups, info, mut tables, .. } = intact.ok_or_else(too_early)?;
    let failed = |source| FormatError::parquet(path, "cannot read the journal", source);
    let footer = footer::encode(&row_groups, vec![footer::entry(path, &info)?]).map_err(failed)?;
    let trace = Trace::unfinished(facts, &footer, info)?;
    complete(&mut tables, &trace)?;
    Ok(trace.with_side_tables(tables))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        RunInfo,
        event::{Event, EventKind, LockId, TaskId},
        tables::{LockKind, LockRow, SideRows, TaskRow},
        writer::TraceWriter,
    };

    fn event(ts_ns: i64) -> Event {
        Event { lock: Some(LockId(0)), task: Some(TaskId(0)), ..Event::new(ts_ns, EventKind::Acquire, 0) }
    }

    fn side() -> SideRows {
        let lock = LockRow { name: Some("hot".to_owned()), ..LockRow::new(LockId(0), LockKind::Mutex) };
        let task = TaskRow::new(TaskId(0), 1, 1);
        SideRows { locks: vec![lock], tasks: vec![task], ..SideRows::default() }
    }

    #[test]
    fn a_trace_that_is_being_recorded_is_read_up_to_its_last_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let mut writer = TraceWriter::create(&path, false).unwrap();
        assert!(matches!(open(&path), Err(FormatError::BeingRecorded { .. })), "{:?}", open(&path));
        let info = RunInfo { trace_id: "ab".into(), ..RunInfo::default() };
        (0..10).for_each(|at| writer.push(&event(at)).unwrap());
        writer.checkpoint(&info, &side()).unwrap();
        (10..20).for_each(|at| writer.push(&event(at)).unwrap());
        let trace = open(&path).unwrap();
        assert_eq!((trace.event_count(), trace.info().events), (10, 10));
        assert_eq!((trace.info().complete, trace.info().stop_reason.as_str()), (false, RUNNING));
        let batches = trace.events().unwrap().map(Result::unwrap);
        assert_eq!(batches.flat_map(|b| b.iter().map(|e| e.ts_ns).collect::<Vec<_>>()).max(), Some(9));
        let locks = trace.locks().unwrap();
        assert_eq!((locks[0].name.as_deref(), locks[0].last_ns), (Some("hot"), 9));
        // Reading changes nothing: the recording goes on, and ends as it would have.
        writer.finish(&info, &[], &side().locks, &side().tasks).unwrap();
        assert_eq!(open(&path).unwrap().event_count(), 20);
        assert!(!journal_path(&path).exists());
    }

    #[test]
    fn a_trace_whose_recorder_was_killed_is_not_taken_for_one_that_is_being_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let mut writer = TraceWriter::create(&path, false).unwrap();
        writer.push(&event(1)).unwrap();
        writer.checkpoint(&RunInfo::default(), &side()).unwrap();
        drop(writer);
        assert!(matches!(open(&path), Err(FormatError::NoFooter { .. })));
    }
}
