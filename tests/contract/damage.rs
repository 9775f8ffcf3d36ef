//! Damage: no bit of a trace changes without an error, and what a checkpoint has synced survives a disk that
//! fails.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;
use trace_format::{
    Event, FormatError, LockId, LockKind, LockRow, RunInfo, SideRows, TaskId, TaskRow, Trace, TraceWriter,
    output::OutputOptions,
    paths::{TracePaths, journal_path},
    recover::{recover, without_backlog},
};

use super::{event_at_extremes, read_all, small_trace, some_info, write};

fn verify(path: &Path) -> Result<(), FormatError> {
    Trace::open(path)?.verify()
}

/// Flips a bit of each `step` of all files, one after the other. Returns their number.
fn flip_bits(step: usize) -> usize {
    let (_directory, paths) = small_trace();
    let rows = read_all(&paths.events).unwrap();
    verify(&paths.events).unwrap();
    let mut flips = 0_usize;
    for file in paths.all() {
        let whole = fs::read(file).unwrap();
        for bit in (0..whole.len() * 8).step_by(step) {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            fs::write(file, damaged).unwrap();
            assert!(verify(&paths.events).is_err(), "bit {bit} of {}", file.display());
            if let Ok(read) = read_all(&paths.events) {
                assert_eq!(read, rows, "bit {bit} of {}", file.display());
            }
            flips += 1;
        }
        fs::write(file, whole).unwrap();
    }
    verify(&paths.events).unwrap();
    flips
}

#[test]
fn every_flipped_bit_is_found_and_none_changes_a_row() {
    let flips = flip_bits(23);
    assert!(flips > 1000, "{flips}");
}

#[test]
fn a_flipped_bit_of_the_checksum_itself_is_found() {
    const BEFORE: &[u8] = br#"{"footer":""#;
    let (_directory, TracePaths { events, .. }) = small_trace();
    let whole = fs::read(&events).unwrap();
    let found = whole.windows(BEFORE.len()).rposition(|bytes| bytes == BEFORE);
    let first = found.unwrap() + BEFORE.len();
    for bit in 0..8 * 8 {
        let mut damaged = whole.clone();
        damaged[first + bit / 8] ^= 1 << (bit % 8);
        fs::write(&events, damaged).unwrap();
        assert!(verify(&events).is_err(), "bit {bit}");
    }
}

#[test]
#[ignore = "full: thousands of damaged files take minutes"]
fn each_of_ten_thousand_flipped_bits_is_found() {
    let flips = flip_bits(5);
    assert!(flips > 10_000, "{flips}");
    flip_bits_of_the_journal(3);
}

#[test]
fn a_trace_that_is_cut_is_refused() {
    cut(&small_trace().1, 37);
}

#[test]
#[ignore = "full: thousands of damaged files take minutes"]
fn a_trace_that_is_cut_at_any_byte_is_refused() {
    cut(&small_trace().1, 1);
    cut_the_journal(1);
}

/// Cuts the files of a trace at a byte of each `step`, one after the other. Returns the number of cuts.
fn cut(paths: &TracePaths, step: usize) -> usize {
    let mut cuts = 0;
    for (at, path) in paths.all().into_iter().enumerate() {
        let whole = fs::read(path).unwrap();
        // A cut takes the end off what the last one left, so that nothing is written again.
        let file = File::options().write(true).open(path).unwrap();
        for length in (0..whole.len()).rev().step_by(step) {
            file.set_len(length as u64).unwrap();
            assert!(verify(&paths.events).is_err(), "{length} bytes of {}", path.display());
            assert!(at > 0 || Trace::open(&paths.events).is_err(), "{length} bytes of {}", path.display());
            cuts += 1;
        }
        fs::write(path, whole).unwrap();
    }
    verify(&paths.events).unwrap();
    cuts
}

#[test]
fn a_large_trace_that_is_cut_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let events: Vec<Event> = (0..150_000)
        .map(|at| {
            let noise = at as i64 * 7_919 % 1_000_003;
            Event { ts_ns: at as i64 * 1_000, count: Some(noise), ..event_at_extremes(at) }
        })
        .collect();
    let paths = write(&directory.path().join("t.parquet"), &some_info(), &events);
    let bytes: u64 = paths.all().into_iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    let step = usize::try_from(bytes / 1000).unwrap();
    let cuts = cut(&paths, step);
    assert!(cuts >= 1000 && bytes > 500_000, "{cuts} cuts of {bytes} bytes");
}

/// Returns the files of a recorder that was killed after three checkpoints of 100 events, and its events.
fn killed() -> (TempDir, PathBuf, Vec<Event>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let mut writer = TraceWriter::create(&path, false).unwrap();
    let events: Vec<Event> = (0..300).map(|at| Event { ts_ns: at as i64, ..event_at_extremes(at) }).collect();
    let lock = LockRow::new(LockId(0), LockKind::Mutex);
    for events in events.chunks(100) {
        events.iter().for_each(|event| writer.push(event).unwrap());
        let tasks = vec![TaskRow::new(TaskId(0), 1, 1)];
        let side = SideRows { locks: vec![lock.clone()], tasks, ..SideRows::default() };
        let info = RunInfo { trace_id: "ab".into(), ..RunInfo::default() };
        writer.checkpoint(&info, &side).unwrap();
    }
    drop(writer);
    (directory, path, events)
}

/// Recovers the trace with each of these journals. The events that are left are the first ones, and a
/// recovery says what it left out.
fn recover_with(journals: impl Fn(&[u8]) -> Vec<Vec<u8>>) {
    let (_directory, path, events) = killed();
    let journal = journal_path(&path);
    let (unfinished, whole) = (fs::read(&path).unwrap(), fs::read(&journal).unwrap());
    for (at, bytes) in journals(&whole).into_iter().enumerate() {
        fs::write(&path, &unfinished).unwrap();
        fs::write(&journal, &bytes).unwrap();
        let recovered = recover(&path, &OutputOptions::replacing(true), &mut without_backlog);
        if let Ok(recovered) = recovered {
            verify(&path).unwrap();
            let read = read_all(&path).unwrap();
            assert_eq!(read, events[..read.len()], "journal {at}");
            assert!(bytes.len() < whole.len() || recovered.journal_bytes_left > 0, "journal {at}");
        } else {
            assert_eq!(fs::read(&path).unwrap(), unfinished, "journal {at}");
        }
    }
}

fn flip_bits_of_the_journal(step: usize) {
    recover_with(|whole| {
        let flipped = |bit: usize| {
            let mut damaged = whole.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            damaged
        };
        (0..whole.len() * 8).step_by(step).map(flipped).collect()
    });
}

fn cut_the_journal(step: usize) {
    recover_with(|whole| (0..whole.len()).step_by(step).map(|length| whole[..length].to_vec()).collect());
}

#[test]
fn a_damaged_journal_gives_the_events_before_the_damage_and_no_others() {
    flip_bits_of_the_journal(1009);
    cut_the_journal(97);
}

#[test]
fn a_damaged_part_is_named() {
    let (_directory, paths) = small_trace();
    let flip = |path: &Path, at: usize| {
        let mut bytes = fs::read(path).unwrap();
        bytes[at] ^= 1;
        fs::write(path, bytes).unwrap();
    };
    flip(&paths.events, 60);
    let error = verify(&paths.events).unwrap_err().to_string();
    assert!(error.contains("t.parquet: column ts_ns of row group 0 is damaged"), "{error}");
    flip(&paths.events, 60);
    flip(&paths.locks, 60);
    let error = read_all(&paths.events).unwrap_err().to_string();
    assert!(error.contains("t.locks.parquet: the locks table is damaged"), "{error}");
}

#[test]
fn a_trace_without_checksums_is_read_and_cannot_be_verified() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/traces/shop.parquet");
    assert!(!read_all(&path).unwrap().is_empty());
    assert!(matches!(verify(&path), Err(FormatError::NoDigest { .. })));
}

/// A library that makes calls on files fail: those with the name FAIL_CALL, from the one with the number
/// FAIL_FROM on, or that one alone.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int fails(const char *name) {
    static int count;
    const char *call = getenv("FAIL_CALL");
    if (!call || strcmp(call, name)) return 0;
    int from = atoi(getenv("FAIL_FROM"));
    count++;
    if (getenv("FAIL_ONCE") ? count != from : count < from) return 0;
    errno = atoi(getenv("FAIL_ERRNO"));
    return 1;
}
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
int fsync(int fd) { return fails("fsync") ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return fails("fdatasync") ? -1 : REAL(fdatasync)(fd); }
int ftruncate64(int fd, off64_t size) { return fails("ftruncate64") ? -1 : REAL(ftruncate64)(fd, size); }
int unlinkat(int fd, const char *path, int flags) { return fails("unlinkat") ? -1 : REAL(unlinkat)(fd, path, flags); }
ssize_t write(int fd, const void *from, size_t size) {
    return fd > 2 && fails("write") ? -1 : REAL(write)(fd, from, size);
}
ssize_t pwrite64(int fd, const void *from, size_t size, off64_t at) {
    return fails("pwrite64") ? -1 : REAL(pwrite64)(fd, from, size, at);
}
"#;

/// Writes a trace with four checkpoints, and prints after each how many events it has. It does something only
/// where the test of a failing disk runs it.
#[test]
fn a_recorder_on_a_failing_disk() {
    let Some(path) = std::env::var_os("FAIL_TRACE").map(PathBuf::from) else { return };
    let info = RunInfo { trace_id: "ab".into(), ..RunInfo::default() };
    let lock = LockRow::new(LockId(0), LockKind::Mutex);
    let task = TaskRow::new(TaskId(0), 1, 1);
    let Ok(mut writer) = TraceWriter::create(&path, false) else { return };
    for checkpoint in 0..4 {
        let pushed = (0..500).try_for_each(|at| writer.push(&event_at_extremes(checkpoint * 500 + at)));
        let side = SideRows { locks: vec![lock.clone()], tasks: vec![task.clone()], ..SideRows::default() };
        match pushed.and_then(|()| writer.checkpoint(&info, &side)) {
            Ok(()) => println!("synced {}", writer.rows()),
            Err(error) => {
                writer.fail(error);
                break;
            }
        }
    }
    if let Err(error) = writer.finish(&info, &[], &[lock], &[task]) {
        println!("error {error}");
    }
}

#[test]
fn a_failing_disk_loses_nothing_that_a_checkpoint_has() {
    const EIO: &str = "5";
    const ENOSPC: &str = "28";
    let folder = tempfile::tempdir().unwrap();
    let (source, shim) = (folder.path().join("shim.c"), folder.path().join("shim.so"));
    fs::write(&source, SHIM).unwrap();
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&shim, &source]).arg("-ldl").status();
    assert!(built.unwrap().success());
    let mut failures = 0;
    for (call, calls) in
        [("fsync", 5), ("fdatasync", 13), ("ftruncate64", 5), ("write", 24), ("pwrite64", 2), ("unlinkat", 3)]
    {
        for (from, errno, once) in
            (1..=calls).flat_map(|from| [(from, EIO, true), (from, EIO, false), (from, ENOSPC, false)])
        {
            let place = tempfile::tempdir_in(folder.path()).unwrap();
            let path = place.path().join("t.parquet");
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["damage::a_recorder_on_a_failing_disk", "--exact", "--nocapture"]);
            child.envs([("FAIL_CALL", call), ("FAIL_ERRNO", errno), ("FAIL_FROM", &from.to_string())]);
            child.env("FAIL_TRACE", &path).env("LD_PRELOAD", &shim);
            if once {
                child.env("FAIL_ONCE", "1");
            }
            let output = child.output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{call} {from} {errno}: {text}");
            let synced =
                text.lines().filter_map(|line| line.split("synced ").nth(1)?.parse::<u64>().ok()).max();
            failures += u32::from(text.contains("error "));
            let Some(synced) = synced else { continue };
            if Trace::open(&path).is_err() {
                recover(&path, &OutputOptions::default(), &mut without_backlog)
                    .unwrap_or_else(|error| panic!("{call} {from} {errno} {once}: {error}; {text}"));
            }
            verify(&path).unwrap();
            let events = Trace::open(&path).unwrap().event_count();
            assert!(events >= synced, "{call} {from} {errno} {once}: {events} of {synced}; {text}");
        }
    }
    assert!(failures > 20, "{failures}");
}
