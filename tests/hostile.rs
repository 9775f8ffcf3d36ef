//! Files that were made to harm: each is refused with the file and the number that is too large, or read in
//! time and within 300 MB.
//!
//! needs: gcc

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

#[path = "hostile/craft.rs"]
mod craft;
#[path = "cli/support.rs"]
#[allow(dead_code, reason = "the command line's tests use all of it")]
mod support;
#[path = "hostile/unfinished.rs"]
mod unfinished;
#[path = "hostile/wild.rs"]
mod wild;

use std::{
    fs::File,
    os::unix::{fs::symlink, process::CommandExt as _},
    path::Path,
    process::{Command, Output},
};

use craft::Values;
use parquet::file::metadata::RowGroupMetaData;
use support::{Folder, Outcome, one_wait, run_info};
use trace_format::{LockId, LockKind, LockRow, TaskId, TaskRow, TraceWriter};

/// Maximum memory of a command in KiB.
const MAX_KIB: i64 = 300 << 10;
/// Maximum time of processors that a command takes, in seconds.
const MAX_SECONDS: u64 = 60;
/// Ends what hangs.
const HANG_SECONDS: &str = "1200";

/// Returns the peak of this test's own memory.
fn own_peak_kib() -> i64 {
    // SAFETY: rusage is plain numbers, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a valid place.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    usage.ru_maxrss
}

/// Runs klock with an end to its time and checks that its memory stays within the limit.
#[expect(clippy::zombie_processes, reason = "wait4 waits for the process, and returns its memory as well")]
fn klock(folder: &Folder, args: &[&str]) -> Outcome {
    let (out, err) = (folder.path("stdout"), folder.path("stderr"));
    let mut command = Command::new("timeout");
    command
        .args([HANG_SECONDS, env!("CARGO_BIN_EXE_klock")])
        .args(args)
        .current_dir(folder.path(""))
        .stdout(File::create(&out).unwrap())
        .stderr(File::create(&err).unwrap());
    let limit = libc::rlimit { rlim_cur: MAX_SECONDS, rlim_max: MAX_SECONDS };
    // SAFETY: setrlimit is async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            libc::setrlimit(libc::RLIMIT_CPU, &raw const limit);
            Ok(())
        });
    }
    let child = command.spawn().unwrap();
    let mut status = 0;
    // SAFETY: rusage is plain numbers, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to valid places, and the process is a child that nothing else waits for.
    let waited = unsafe { libc::wait4(child.id() as i32, &raw mut status, 0, &raw mut usage) };
    assert_eq!(waited, child.id() as i32);
    let status = std::os::unix::process::ExitStatusExt::from_raw(status);
    let output = Output { status, stdout: std::fs::read(out).unwrap(), stderr: std::fs::read(err).unwrap() };
    let outcome = Outcome::from(output);
    let stderr = &outcome.stderr;
    // The kernel counts the memory of this test before the program is started, too.
    assert!(
        usage.ru_maxrss <= MAX_KIB.max(own_peak_kib()),
        "klock {args:?} took {} KiB: {stderr}",
        usage.ru_maxrss
    );
    assert_ne!(outcome.code, Some(124), "klock {args:?} did not end in {HANG_SECONDS} s");
    let used = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec;
    assert!(used < MAX_SECONDS as i64, "klock {args:?} took {used} s of processors: {stderr}");
    outcome
}

const READERS: [&[&str]; 3] =
    [&["info"], &["report", "--allow-loss"], &["export", "--format", "perfetto", "-o", "out", "--force"]];

/// Checks that all readers refuse the trace with exit code 2.
fn is_refused(folder: &Folder, parts: &[&str]) {
    for args in READERS {
        klock(folder, args).fails(2, parts);
    }
}

#[test]
fn a_side_table_of_more_rows_than_its_bytes_can_hold_is_refused() {
    let folder = Folder::new().with_trace(&one_wait());
    let ids = |column: &str| if column == "task_id" { Values::Ids } else { Values::Equal };
    craft::table(&folder.path("trace.tasks.parquet"), "tasks", 100_000_000, ids);
    is_refused(&folder, &["trace.tasks.parquet", "100000000 rows"]);
}

#[test]
fn an_events_file_of_more_rows_than_its_bytes_can_hold_is_refused() {
    let folder = Folder::new().with_trace(&one_wait());
    craft::table(&folder.path("trace.parquet"), "events", 2_000_000_000, |_| Values::Equal);
    is_refused(&folder, &["trace.parquet", "2000000000 events"]);
}

#[test]
fn a_dictionary_that_claims_more_values_than_it_has_bytes_is_refused() {
    let folder = Folder::new().with_trace(&one_wait());
    let huge = |column: &str| if column == "pid" { Values::HugeDictionary } else { Values::Ids };
    craft::table(&folder.path("trace.tasks.parquet"), "tasks", 100, huge);
    is_refused(&folder, &["trace.tasks.parquet", "column pid", "2147483647 values"]);
}

#[test]
fn groups_in_groups_are_refused() {
    let folder = Folder::new().with_trace(&one_wait());
    craft::nested_groups(&folder.path("trace.parquet"), 15_000);
    is_refused(&folder, &["trace.parquet", "15000 columns"]);
}

/// Writes the trace with a task of this name.
fn with_name(folder: &Folder, bytes: usize) {
    let mut writer = TraceWriter::create(&folder.path("trace.parquet"), true).unwrap();
    one_wait().iter().for_each(|event| writer.push(event).unwrap());
    let task = |id| TaskRow::new(TaskId(id), 10, 10 + id);
    let named = TaskRow { comm: Some("n".repeat(bytes)), ..task(0) };
    let lock =
        LockRow { address: Some(64), pid: Some(10), ..LockRow::new(LockId(0), LockKind::PthreadMutex) };
    writer.finish(&run_info("ab"), &[], &[lock], &[named, task(1)]).unwrap();
}

#[test]
fn a_long_name_is_cut_and_a_longer_one_is_refused() {
    let folder = Folder::new();
    with_name(&folder, 2 << 20);
    let report = klock(&folder, &["report", "--by", "process", "--allow-loss", "--format", "csv"]);
    assert!(report.succeeds().contains("nnn\u{2026}"), "{}", &report.stdout[..1000]);
    assert!(report.stdout.len() < 100_000, "{}", report.stdout.len());
    with_name(&folder, 18 << 20);
    is_refused(&folder, &["trace.tasks.parquet", "column comm", "bytes uncompressed"]);
}

#[test]
fn pipes_and_devices_are_refused_at_once() {
    for name in ["trace.parquet", "trace.stacks.parquet", "trace.locks.parquet", "trace.tasks.parquet"] {
        let folder = Folder::new().with_trace(&one_wait());
        let path = folder.path(name);
        std::fs::remove_file(&path).unwrap();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        klock(&folder, &["report"]).fails(2, &[name, "not a regular file"]);
        std::fs::remove_file(&path).unwrap();
        symlink(Path::new("/dev/ptmx"), &path).unwrap();
        klock(&folder, &["report"]).fails(2, &[name, "not a regular file"]);
    }
}

#[test]
fn statistics_that_claim_nulls_hide_nothing() {
    let folder = Folder::new().with_trace(&one_wait());
    let honest = klock(&folder, &["report"]).succeeds().to_owned();
    let all_null = |group: RowGroupMetaData| {
        let rows = group.num_rows() as u64;
        let columns = group.columns().iter().map(|chunk| {
            let null = parquet::file::statistics::Statistics::int64(None, None, None, Some(rows), false);
            chunk.clone().into_builder().set_statistics(null).build().unwrap()
        });
        group.clone().into_builder().set_column_metadata(columns.collect()).build().unwrap()
    };
    craft::change_row_groups(&folder.path("trace.parquet"), all_null);
    craft::change_row_groups(&folder.path("trace.locks.parquet"), all_null);
    assert_eq!(klock(&folder, &["report"]).succeeds(), honest);
}
