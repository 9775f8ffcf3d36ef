//! Checks the public interface of trace-format: the reader returns the rows that the writer got, and an
//! invalid file gives one line of error with the file and the next step.
//!
//! needs: gcc

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::{
    error::Error,
    fs::{self, File},
    path::Path,
    sync::Arc,
};

use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use parquet::{
    arrow::{ArrowWriter, arrow_reader::ParquetRecordBatchReaderBuilder},
    basic::{BrotliLevel, Compression, GzipLevel},
    file::{
        metadata::{KeyValue, ParquetMetaDataWriter},
        properties::WriterProperties,
    },
};
use tempfile::TempDir;
use trace_format::{
    CallKind, Event, EventKind, FORMAT_MAJOR, FormatError, Frame, LockId, LockKind, LockRow, Mode, RunInfo,
    Scope, Stack, StackId, Syscall, TaskId, TaskRow, TaskState, Trace, TraceWriter,
    event::MAX_TIME_NS,
    output::OutputError,
    paths::TracePaths,
    run_info::{KEY, Version},
};

#[path = "contract/damage.rs"]
mod damage;
#[path = "contract/refused.rs"]
mod refused;

/// Text that needs escaping somewhere: quotes, separators, control characters, text direction, formulas,
/// markup.
const HOSTILE: &[&str] = &[
    "",
    "a,b;c\td\"e'f",
    "two\nlines\r\n",
    "\u{0}\u{1b}[31mred\u{7f}",
    "=cmd|' /C calc'!A0",
    "</text><script>alert(1)</script>",
    "\u{202e}gnirts\u{2066}",
    "\u{1F512}\u{e9}\u{ffff}\u{10ffff}",
    "../../etc/passwd",
    "%s%n{}",
];

/// Returns an event with extreme and missing values, which depend on `index`.
fn event_at_extremes(index: usize) -> Event {
    let long = |at: usize| [Some(i64::MIN), Some(i64::MAX), Some(0), Some(-1), None][(index + at) % 5];
    let time = |at: usize| long(at).map(|ns| ns.clamp(-MAX_TIME_NS, MAX_TIME_NS));
    let int = |at: usize| [Some(i32::MIN), None, Some(i32::MAX), Some(0)][(index + at) % 4];
    Event {
        ts_ns: time(0).unwrap_or(1),
        kind: EventKind::ALL[index % EventKind::ALL.len()],
        mode: [None, Some(Mode::Exclusive), Some(Mode::Shared)][index % 3],
        lock: int(0).map(LockId),
        task: int(1).map(TaskId),
        cpu: Some(int(2).unwrap_or(7)),
        stack: int(3).map(StackId),
        wait_ns: time(1),
        blocked_ns: time(2),
        runq_ns: time(3),
        peer_task: int(1).map(TaskId),
        peer_stack: int(2).map(StackId),
        errno: int(0),
        count: long(4),
        state: [None, Some(TaskState::Runnable), Some(TaskState::Uninterruptible)][index % 3],
        call: [Some(CallKind::Try), None, Some(CallKind::Timed)][index % 3],
        syscall: [Some(-1), None, Some((index % 40_000) as i32), Some(32_767)][index % 4]
            .and_then(Syscall::of_number),
    }
}

fn texts() -> Vec<Option<String>> {
    let hostile = HOSTILE.iter().map(|text| Some((*text).to_owned()));
    hostile.chain([None, Some("n".repeat(16 * 1024)), Some("\u{1F512}".repeat(4 * 1024))]).collect()
}

fn stacks_at_extremes() -> Vec<Stack> {
    let number = |at: usize| [Some(u64::MAX), Some(0), None, Some(1 << 63), Some(u64::MAX >> 1)][at % 5];
    let frame = |(at, text): (usize, Option<String>)| Frame {
        address: number(at),
        module: text.clone(),
        build_id: text.clone(),
        offset: number(at + 1),
        symbol: text.clone(),
        symbol_offset: number(at + 2),
        file: text,
        line: [Some(i32::MAX), None, Some(i32::MIN)][at % 3],
        inlined: at % 2 == 0,
        guessed: at % 2 == 1,
        kernel: at % 3 == 0,
    };
    let deep: Vec<Frame> = (0..300).map(|at| frame((at, None))).collect();
    let lists = [Vec::new(), texts().into_iter().enumerate().map(frame).collect(), deep, Vec::new()];
    let stack = |(at, frames): (usize, Vec<Frame>)| Stack { id: StackId(i32::try_from(at).unwrap()), frames };
    lists.into_iter().enumerate().map(stack).collect()
}

fn locks_at_extremes() -> Vec<LockRow> {
    let kinds = LockKind::ALL.iter().copied().cycle();
    let row = |(at, (name, kind)): (usize, (Option<String>, LockKind))| LockRow {
        id: LockId(i32::try_from(at).unwrap()),
        address: [Some(u64::MAX), Some(0), None, Some(1 << 63)][at % 4],
        kind,
        scope: Scope::ALL[at % 2],
        pid: [None, Some(i32::MAX), Some(i32::MIN)][at % 3],
        name,
        shared: None,
        init_stack: [None, Some(StackId(i32::MAX))][at % 2],
        first_ns: [i64::MIN, i64::MAX][at % 2],
        last_ns: [i64::MAX, i64::MIN][at % 2],
    };
    let names = texts().into_iter().chain(texts());
    names.zip(kinds).enumerate().map(row).collect()
}

fn tasks_at_extremes() -> Vec<TaskRow> {
    let row = |(at, comm): (usize, Option<String>)| TaskRow {
        id: TaskId(i32::try_from(at).unwrap()),
        pid: [i32::MIN, i32::MAX, 0][at % 3],
        tid: [i32::MAX, 0, i32::MIN][at % 3],
        cgroup: comm.clone(),
        comm,
        start_ns: [None, Some(i64::MIN), Some(i64::MAX)][at % 3],
        exit_ns: [Some(i64::MAX), None, Some(i64::MIN)][at % 3],
        parent: [Some(TaskId(0)), None, Some(TaskId(i32::MAX))][at % 3],
        process_cpu_ns: [Some(i64::MAX), Some(i64::MIN), None][at % 3],
        throttled_periods: [None, Some(i64::MAX), Some(i64::MIN)][at % 3],
        throttled_ns: [Some(i64::MIN), None, Some(i64::MAX)][at % 3],
    };
    texts().into_iter().enumerate().map(row).collect()
}

fn some_info() -> RunInfo {
    RunInfo { trace_id: "00112233445566778899aabbccddeeff".to_owned(), complete: true, ..RunInfo::default() }
}

fn write(path: &Path, info: &RunInfo, events: &[Event]) -> TracePaths {
    let mut writer = TraceWriter::create(path, true).unwrap();
    for event in events {
        writer.push(event).unwrap();
    }
    writer.finish(info, &stacks_at_extremes(), &locks_at_extremes(), &tasks_at_extremes()).unwrap();
    TracePaths::of(path)
}

fn small_trace() -> (TempDir, TracePaths) {
    let directory = tempfile::tempdir().unwrap();
    let events: Vec<Event> = (0..100).map(event_at_extremes).collect();
    let paths = write(&directory.path().join("t.parquet"), &some_info(), &events);
    (directory, paths)
}

/// Returns the error with its causes, as the program prints it.
fn error_line(error: &FormatError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// Reads all tables of a trace and returns the events.
fn read_all(path: &Path) -> Result<Vec<Event>, FormatError> {
    let trace = Trace::open(path)?;
    trace.stacks()?;
    trace.locks()?;
    trace.tasks()?;
    let mut events = Vec::new();
    for batch in trace.events()? {
        events.extend(batch?.iter());
    }
    Ok(events)
}

/// Checks that reading `trace` gives one line of error that names the file `at_fault` and contains
/// `expected`.
#[track_caller]
fn assert_error(trace: &Path, at_fault: &Path, expected: &[&str]) {
    let line = error_line(&read_all(trace).expect_err("the trace is damaged"));
    assert!(line.starts_with("cannot read "), "{line}");
    assert!(line.contains(&at_fault.display().to_string()), "{line}\ndoes not name {}", at_fault.display());
    for part in expected {
        assert!(line.contains(part), "{line}\ndoes not contain {part:?}");
    }
    assert!(!line.contains('\n'), "{line}\nis more than one line");
}

fn write_parquet(path: &Path, columns: Vec<(&str, ArrayRef)>, entry: Option<String>) {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    if let Some(json) = entry {
        writer.append_key_value_metadata(KeyValue::new(KEY.to_owned(), json));
    }
    writer.close().unwrap();
}

/// Writes a trace of one event with one column changed or removed.
fn write_events(path: &Path, change: impl Fn(&str, ArrayRef) -> Option<ArrayRef>) {
    write_events_in_minor(trace_format::FORMAT_MINOR, path, change);
}

/// Writes a trace of one event, as [`write_events`] does, in a minor version of the format.
fn write_events_in_minor(minor: u32, path: &Path, change: impl Fn(&str, ArrayRef) -> Option<ArrayRef>) {
    write(path, &some_info(), &[]);
    let int = || Arc::new(Int32Array::from(vec![0])) as ArrayRef;
    let long = || Arc::new(Int64Array::from(vec![0])) as ArrayRef;
    let text = |value: &str| Arc::new(StringArray::from(vec![value])) as ArrayRef;
    let columns = trace_format::schema::EVENTS.iter().filter_map(|column| {
        let array = match (column.name, column.column_type.name()) {
            ("event", _) => text("acquire"),
            ("mode", _) => text("exclusive"),
            ("state", _) => text("runnable"),
            ("call", _) => text("try"),
            ("syscall", _) => text("read"),
            (_, "int32") => int(),
            _ => long(),
        };
        change(column.name, array).map(|array| (column.name, array))
    });
    let format = Version { major: FORMAT_MAJOR, minor };
    let entry = RunInfo { format, table: "events".to_owned(), ..some_info() };
    write_parquet(path, columns.collect(), Some(serde_json::to_string(&entry).unwrap()));
}

#[test]
fn every_column_comes_back_as_it_was_written_at_its_extremes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let events: Vec<Event> = (0..70_000).map(event_at_extremes).collect();
    let mut info = some_info();
    info.command_line = HOSTILE.iter().map(|text| (*text).to_owned()).collect();
    info.loss.ring_full = u64::MAX;
    info.clocks_start.monotonic_ns = i64::MIN;
    write(&path, &info, &events);

    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.info().command_line, info.command_line);
    assert_eq!((trace.info().loss.ring_full, trace.info().clocks_start.monotonic_ns), (u64::MAX, i64::MIN));
    assert_eq!((trace.info().events, trace.event_count()), (70_000, 70_000));
    assert_eq!(trace.stacks().unwrap(), stacks_at_extremes());
    assert_eq!(trace.locks().unwrap(), locks_at_extremes());
    assert_eq!(trace.tasks().unwrap(), tasks_at_extremes());
    let read = read_all(&path).unwrap();
    assert!(
        read == events,
        "the first difference is at {:?}",
        read.iter().zip(&events).position(|(a, b)| a != b)
    );
}

#[test]
fn a_trace_without_rows_is_valid() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    TraceWriter::create(&path, false).unwrap().finish(&some_info(), &[], &[], &[]).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!((trace.event_count(), trace.events().unwrap().count()), (0, 0));
    assert!(trace.stacks().unwrap().is_empty() && trace.locks().unwrap().is_empty());
}

#[test]
fn a_row_group_ends_on_request_and_the_file_grows_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let mut writer = TraceWriter::create(&path, false).unwrap();
    let mut sizes = vec![fs::metadata(&path).unwrap().len()];
    for group in 0..3 {
        for at in 0..1_000 {
            writer.push(&event_at_extremes(group * 7 + at)).unwrap();
        }
        let before = writer.bytes();
        writer.end_row_group().unwrap();
        assert!(writer.bytes() > before.min(sizes[group]), "bytes() follows what was written");
        sizes.push(writer.bytes());
    }
    assert!(sizes.is_sorted_by(|a, b| a < b), "{sizes:?}");
    // No row was pushed since then, so no row group ends.
    writer.end_row_group().unwrap();
    assert_eq!(writer.rows(), 3_000);
    writer.finish(&some_info(), &[], &[], &[]).unwrap();
    assert_eq!(Trace::open(&path).unwrap().row_groups(), 3);
}

#[test]
fn an_existing_file_is_kept_unless_it_may_be_replaced() {
    let (_directory, paths) = small_trace();
    let before = fs::read(&paths.events).unwrap();
    let error = TraceWriter::create(&paths.events, false).unwrap_err();
    assert!(matches!(error, FormatError::Output(OutputError::Exists { .. })));
    assert!(error_line(&error).contains("-f to replace it"));
    // An existing side table alone is an error too.
    let stacks = paths.stacks.with_file_name("u.stacks.parquet");
    fs::copy(&paths.stacks, &stacks).unwrap();
    let error = TraceWriter::create(&paths.events.with_file_name("u.parquet"), false).unwrap_err();
    assert!(error_line(&error).contains(&stacks.display().to_string()));
    assert_eq!(fs::read(&paths.events).unwrap(), before);
}

/// Writes a file again with another compression, as other tools do.
fn rewrite(path: &Path, compression: Compression) {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let (schema, metadata) = (Arc::clone(reader.schema()), Arc::clone(reader.metadata()));
    let entries = metadata.file_metadata().key_value_metadata().cloned();
    let batches: Vec<RecordBatch> = reader.build().unwrap().map(Result::unwrap).collect();
    let entry = entries.unwrap().into_iter().find(|entry| entry.key == KEY).unwrap();
    let properties = WriterProperties::builder().set_compression(compression).build();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), schema, Some(properties)).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.append_key_value_metadata(entry);
    writer.close().unwrap();
}

fn files(paths: &TracePaths) -> [&Path; 4] {
    [&paths.events, &paths.stacks, &paths.locks, &paths.tasks]
}

#[test]
fn tables_that_were_rewritten_with_another_compression_are_read() {
    let gzip = Compression::GZIP(GzipLevel::default());
    for compression in
        [Compression::SNAPPY, Compression::LZ4_RAW, Compression::LZ4, gzip, Compression::UNCOMPRESSED]
    {
        let (_directory, paths) = small_trace();
        let expected = read_all(&paths.events).unwrap();
        files(&paths).into_iter().for_each(|path| rewrite(path, compression));
        assert!(read_all(&paths.events).unwrap() == expected, "{compression}");
        assert_eq!(Trace::open(&paths.events).unwrap().locks().unwrap(), locks_at_extremes());
    }
}

#[test]
fn a_compression_that_klock_does_not_read_is_an_error_that_names_it() {
    let brotli = Compression::BROTLI(BrotliLevel::default());
    for (compression, name) in [(brotli, "brotli"), (Compression::LZO, "lzo")] {
        let (_directory, paths) = small_trace();
        // No file of this kind can be written here. What it says of itself is enough.
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&paths.locks).unwrap()).unwrap();
        let mut metadata = reader.metadata().as_ref().clone().into_builder();
        let groups = metadata.take_row_groups().into_iter().map(|group| {
            let mut group = group.into_builder();
            let columns = group.take_columns().into_iter();
            let columns = columns.map(|c| c.into_builder().set_compression(compression).build().unwrap());
            group.set_column_metadata(columns.collect()).build().unwrap()
        });
        let metadata = metadata.set_row_groups(groups.collect()).build();
        let mut bytes = Vec::from(b"PAR1");
        ParquetMetaDataWriter::new(&mut bytes, &metadata).finish().unwrap();
        fs::write(&paths.locks, bytes).unwrap();
        assert_error(&paths.events, &paths.locks, &[name, "zstd", "pyarrow: compression='zstd'"]);
    }
}

#[test]
fn a_newer_major_version_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let json = format!(r#"{{"format":{{"major":{},"minor":0}},"table":"events"}}"#, FORMAT_MAJOR + 1);
    write_parquet(&path, vec![("a", Arc::new(Int64Array::from(vec![1])))], Some(json));
    let newer = format!("trace format {}", FORMAT_MAJOR + 1);
    assert_error(&path, &path, &[&newer, "use a newer klock"]);
}

#[test]
fn the_known_columns_of_a_newer_minor_version_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    write_events(&path, |_, array| Some(array));
    assert_eq!(read_all(&path).unwrap().len(), 1);
}

#[test]
fn a_column_of_a_later_minor_version_is_null_in_older_traces_and_required_in_others() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    for column in trace_format::schema::EVENTS.iter().filter(|column| column.since > 0) {
        let without = |name: &str, array: ArrayRef| (name != column.name).then_some(array);
        write_events_in_minor(column.since - 1, &path, without);
        let events = read_all(&path).unwrap();
        let value = match column.name {
            "state" => events[0].state.map(TaskState::as_str),
            "call" => events[0].call.map(CallKind::as_str),
            "syscall" => events[0].syscall.map(|_| "a call"),
            other => panic!("this test does not read the column {other}"),
        };
        assert_eq!((events.len(), value), (1, None), "{}", column.name);
        write_events_in_minor(column.since, &path, without);
        assert_error(&path, &path, &[&format!("column {}", column.name), "found nothing"]);
    }
}
