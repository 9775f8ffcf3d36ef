//! Recovery of half-written files, as a killed recorder leaves them.

use std::{
    fs::{self, OpenOptions},
    sync::LazyLock,
};

use proptest::prelude::*;

use super::*;
use crate::{
    event::{Event, EventKind, LockId, TaskId},
    paths::backlog_path,
    tables::{BareStack, Frame, LockKind, LockRow, SharedStack, TaskRow},
    writer::TraceWriter,
};

fn lock(id: i32, first_ns: i64) -> LockRow {
    LockRow {
        address: Some(64 * id as u64),
        name: (id == 0).then(|| "a".to_owned()),
        first_ns,
        last_ns: first_ns,
        ..LockRow::new(LockId(id), LockKind::Mutex)
    }
}

fn task(id: i32) -> TaskRow {
    TaskRow::new(TaskId(id), 1, 1 + id)
}

fn stack(id: i32) -> SharedStack {
    let frame = Frame { module: Some("a".into()), ..Frame::default() };
    SharedStack { id: StackId(id), frames: vec![[frame].into()] }
}

fn event(ts_ns: i64) -> Event {
    let (lock, stack) = (LockId((ts_ns % 3) as i32), StackId((ts_ns % 5) as i32));
    Event {
        lock: Some(lock),
        task: Some(TaskId(0)),
        stack: Some(stack),
        ..Event::new(ts_ns, EventKind::Acquire, 0)
    }
}

/// Writes the files of a recorder killed after `seconds` seconds of ten events each, and a few events after
/// the last checkpoint.
fn killed(path: &Path, seconds: i64) {
    let mut writer = TraceWriter::create(path, false).unwrap();
    let info = RunInfo { trace_id: "ab".into(), ..RunInfo::default() };
    for second in 0..seconds {
        for at in 0..10 {
            writer.push(&event(10 * second + at)).unwrap();
        }
        let side = match second {
            0 => SideRows {
                stacks: vec![stack(0)],
                locks: (0..3).map(|id| lock(id, id.into())).collect(),
                tasks: vec![task(0)],
                ..SideRows::default()
            },
            1 => SideRows { stacks: vec![stack(1), stack(2)], ..SideRows::default() },
            _ => SideRows::default(),
        };
        writer.checkpoint(&info, &side).unwrap();
    }
    for at in 0..7 {
        writer.push(&event(10 * seconds + at)).unwrap();
    }
    writer.end_row_group().unwrap();
    // Without its end: the footer and the side tables are missing.
    drop(writer);
}

fn times(trace: &Trace) -> Vec<i64> {
    let batches = trace.events().unwrap().map(Result::unwrap);
    batches.flat_map(|batch| batch.iter().map(|event| event.ts_ns).collect::<Vec<_>>()).collect()
}

#[test]
fn millions_of_events_that_are_alike_are_read_again_whether_or_not_the_recorder_was_killed() {
    let page: EventColumns = (0..65_536).map(|at| Event::new(at, EventKind::Wake, 1)).collect();
    for is_killed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let mut writer = TraceWriter::create(&path, false).unwrap();
        (0..40).for_each(|_| writer.push_columns(&page).unwrap());
        if is_killed {
            writer.checkpoint(&RunInfo::default(), &SideRows::default()).unwrap();
            drop(writer);
            recover(&path, &OutputOptions::default(), &mut without_backlog).unwrap();
        } else {
            writer.finish(&RunInfo::default(), &[], &[], &[]).unwrap();
        }
        let trace = Trace::open(&path).unwrap();
        assert_eq!(trace.events().unwrap().map(|batch| batch.unwrap().len()).sum::<usize>(), 40 * page.len());
        assert!(trace.verify().is_ok());
    }
}

#[test]
fn recovery_restores_everything_up_to_the_last_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    killed(&path, 3);
    assert!(matches!(Trace::open(&path), Err(FormatError::NoFooter { .. })));
    let recovered = recover(&path, &OutputOptions::default(), &mut without_backlog).unwrap();
    assert_eq!((recovered.events, recovered.bare_stacks), (30, 2));
    assert!(recovered.cut_bytes > 0);
    let trace = Trace::open(&path).unwrap();
    assert_eq!(times(&trace), (0..30).collect::<Vec<_>>());
    assert_eq!(
        (trace.info().complete, trace.info().stop_reason.as_str(), trace.info().events),
        (false, STOP_REASON, 30)
    );
    assert!(!journal_path(&path).exists());
    let locks = trace.locks().unwrap();
    assert_eq!(locks.iter().map(|lock| lock.last_ns).collect::<Vec<_>>(), [27, 28, 29]);
    assert_eq!(locks[0].name.as_deref(), Some("a"));
    assert_eq!(trace.stacks().unwrap().len(), 5);
    assert_eq!(trace.tasks().unwrap(), [task(0)]);
}

#[test]
fn rows_of_the_backlog_follow_those_of_the_journal() {
    for seconds in [3, 0] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        killed(&path, seconds);
        if seconds == 0 {
            // A journal of a recording without rows.
            fs::remove_file(&path).unwrap();
            for path in [journal_path(&path), backlog_path(&path)] {
                fs::remove_file(path).unwrap();
            }
            TracePaths::of(&path).all()[1..].iter().for_each(|path| fs::remove_file(path).unwrap());
            let mut writer = TraceWriter::create(&path, false).unwrap();
            writer
                .checkpoint(&RunInfo { trace_id: "ab".into(), ..RunInfo::default() }, &SideRows::default())
                .unwrap();
        }
        fs::write(backlog_path(&path), b"what waits").unwrap();
        let known = 10 * seconds;
        let mut compose = |mut file: &File, rows: u64, info: &mut RunInfo, take: &mut TakeRows<'_>| {
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            assert_eq!((text.as_str(), rows), ("what waits", known as u64));
            for from in [known, known + 20_000] {
                take(&(from..from + 20_000).map(event).collect())?;
            }
            info.loss.ring_full = 9;
            let rename = |id| LockRow { name: Some("later".to_owned()), ..lock(id, 40_000) };
            let side = SideRows {
                bare_stacks: vec![BareStack { id: StackId(1), kernel: vec![], user: vec![7], certain: 1 }],
                locks: (0..4).map(rename).collect(),
                tasks: vec![TaskRow { exit_ns: Some(7), ..task(0) }],
                ..SideRows::default()
            };
            Ok(side)
        };
        let recovered = recover(&path, &OutputOptions::default(), &mut compose).unwrap();
        assert_eq!((recovered.events, recovered.info.loss.ring_full), (known as u64 + 40_000, 9));
        let trace = Trace::open(&path).unwrap();
        assert_eq!(times(&trace), (0..known + 40_000).collect::<Vec<_>>());
        assert_eq!((trace.info().events, trace.info().complete), (known as u64 + 40_000, false));
        assert!(!journal_path(&path).exists() && !backlog_path(&path).exists());
        // Rows of the journal have names already.
        let (locks, stacks) = (trace.locks().unwrap(), trace.stacks().unwrap());
        let first = if seconds > 0 { Some("a") } else { Some("later") };
        assert_eq!((locks[0].name.as_deref(), locks[3].name.as_deref()), (first, Some("later")));
        assert_eq!(stacks[1].frames[0].module.is_some(), seconds > 0);
        assert_eq!(trace.tasks().unwrap()[0].exit_ns, Some(7));
    }
}

#[test]
fn a_complete_trace_is_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let mut writer = TraceWriter::create(&path, false).unwrap();
    writer.checkpoint(&RunInfo::default(), &SideRows::default()).unwrap();
    writer.finish(&RunInfo::default(), &[], &[], &[]).unwrap();
    assert!(!journal_path(&path).exists(), "a trace with a footer needs no journal");
    let before = fs::read(&path).unwrap();
    assert!(matches!(
        recover(&path, &OutputOptions::default(), &mut without_backlog),
        Err(FormatError::AlreadyComplete { .. })
    ));
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_trace_without_a_checkpoint_cannot_be_recovered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    killed(&path, 0);
    assert!(matches!(
        recover(&path, &OutputOptions::default(), &mut without_backlog),
        Err(FormatError::NothingToRecover { .. })
    ));
    assert!(journal_path(&path).exists(), "nothing is removed");
    fs::remove_file(journal_path(&path)).unwrap();
    assert!(matches!(
        recover(&path, &OutputOptions::default(), &mut without_backlog),
        Err(FormatError::NothingToRecover { .. })
    ));
}

#[test]
fn damaged_events_end_the_trace_at_the_checkpoint_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    killed(&path, 3);
    let file = File::open(journal_path(&path)).unwrap();
    let mut journal = JournalReader::open(&path, &file).unwrap();
    let ends: Vec<u64> = std::iter::from_fn(|| journal.next().unwrap()).map(|read| read.end).collect();
    let mut bytes = fs::read(&path).unwrap();
    bytes[ends[1] as usize + 3] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert_eq!(recover(&path, &OutputOptions::default(), &mut without_backlog).unwrap().events, 20);
    assert_eq!(times(&Trace::open(&path).unwrap()).len(), 20);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn truncated_files_yield_whole_seconds_or_a_clear_error(events in 0_u64..4000, journal in 0_u64..4000) {
        // In memory where possible: each checkpoint is synced to the disk.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let path = folder.path().join("t.parquet");
        killed(&path, 3);
        let cut = |path: &Path, at: u64| {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            let length = file.metadata().unwrap().len();
            file.set_len(at % (length + 1)).unwrap();
        };
        cut(&path, events);
        cut(&journal_path(&path), journal);
        match recover(&path, &OutputOptions::default(), &mut without_backlog) {
            Ok(recovered) => {
                prop_assert_eq!(recovered.events % 10, 0);
                let times = times(&Trace::open(&path).unwrap());
                prop_assert_eq!(times, (0..recovered.events as i64).collect::<Vec<_>>());
            }
            Err(error) => prop_assert!(matches!(error, FormatError::NothingToRecover { .. }), "{}", error),
        }
    }
}

/// Builds a journal with right checksums. For each checkpoint, `text` has the end of its events (8 bytes),
/// the length of its footer (2), the length of its JSON (3), the footer, and the JSON.
fn journal_of(mut text: &[u8], events: &[u8]) -> Vec<u8> {
    let mut journal = b"klockJ3\n".to_vec();
    while let Some((head, rest)) = text.split_first_chunk::<13>() {
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        let (footer, json) = (number(&head[8..10]), number(&head[10..]));
        let (footer, rest) = rest.split_at(footer.min(rest.len()));
        let (json, rest) = rest.split_at(json.min(rest.len()));
        let before = &events[..number(&head[..8]).min(events.len())];
        let payload = [
            &head[..8],
            &crc32fast::hash(before).to_le_bytes(),
            &u32::try_from(footer.len()).unwrap().to_le_bytes(),
            footer,
            &zstd::encode_all(json, 1).unwrap(),
        ]
        .concat();
        journal.extend(u32::try_from(payload.len()).unwrap().to_le_bytes());
        journal.extend(crc32fast::hash(&payload).to_le_bytes());
        journal.extend(payload);
        text = rest;
    }
    journal
}

/// The events of a killed recorder.
static EVENTS: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    killed(&path, 3);
    fs::read(&path).unwrap()
});

// Whatever a journal has, the trace that `recover` makes of it is one that can be read.
fuzz_target!(journal, |text: &[u8]| {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let path = folder.path().join("t.parquet");
    fs::write(&path, &*EVENTS).unwrap();
    fs::write(journal_path(&path), journal_of(text, &EVENTS)).unwrap();
    if recover(&path, &OutputOptions::default(), &mut without_backlog).is_ok() {
        let trace = Trace::open(&path).unwrap();
        trace.verify().unwrap();
        times(&trace);
        trace.each_stack(drop).unwrap();
        trace.locks().and_then(|_| trace.tasks()).unwrap();
    }
});

/// Reads everything of a trace, up to the first error.
fn read_all(path: &Path) -> Result<(), FormatError> {
    let trace = Trace::open(path)?;
    for batch in trace.events()? {
        batch?.iter().count();
    }
    for row_group in 0..trace.row_groups() {
        trace.row_group(row_group, &["task", "lock"])?.try_for_each(|batch| batch.map(drop))?;
    }
    trace.events_by_kind()?;
    trace.stack_counts()?;
    trace.each_stack(drop)?;
    trace.locks()?;
    trace.tasks()?;
    trace.verify()
}

// The first byte says which file of a trace has the bytes: the events, the stacks, the locks, or the tasks.
// The other ones are whole.
fuzz_target!(trace, |bytes: &[u8]| {
    static WHOLE: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/fuzz/trace");
        for (file, seed) in
            ["", ".stacks", ".locks", ".tasks"].into_iter().zip(["events", "stacks", "locks", "tasks"])
        {
            let bytes = fs::read(corpus.join(seed)).unwrap();
            fs::write(folder.path().join(format!("t{file}.parquet")), &bytes[1..]).unwrap();
        }
        folder
    });
    let Some((which, bytes)) = bytes.split_first() else { return };
    let file =
        ["t.parquet", "t.stacks.parquet", "t.locks.parquet", "t.tasks.parquet"][usize::from(which % 4)];
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    for entry in fs::read_dir(WHOLE.path()).unwrap().map(Result::unwrap) {
        if entry.file_name() != file {
            std::os::unix::fs::symlink(entry.path(), folder.path().join(entry.file_name())).unwrap();
        }
    }
    fs::write(folder.path().join(file), bytes).unwrap();
    let _ = read_all(&folder.path().join("t.parquet"));
});
