//! Damage: no bit of a trace changes without an error, and what a checkpoint has synced survives a disk that fails.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use trace_format::{
    FormatError, LockId, LockKind, LockRow, RunInfo, SideRows, TaskId, TaskRow, Trace, TraceWriter,
    output::OutputOptions,
    recover::{recover, without_backlog},
};

use super::{event_at_extremes, read_all, small_trace};

fn verify(path: &Path) -> Result<(), FormatError> {
    Trace::open(path)?.verify()
}

#[test]
fn every_flipped_bit_is_found_and_none_changes_a_row() {
    let (_directory, paths) = small_trace();
    let rows = read_all(&paths.events).unwrap();
    verify(&paths.events).unwrap();
    let mut flips = 0_usize;
    for file in paths.all() {
        let whole = fs::read(file).unwrap();
        for bit in (0..whole.len() * 8).step_by(23) {
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
    assert!(flips > 1000, "{flips}");
    verify(&paths.events).unwrap();
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

/// A library that makes calls on files fail: those with the name FAIL_CALL, from the one with the number FAIL_FROM on, or that one alone.
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

/// Writes a trace with four checkpoints, and prints after each how many events it has. It does something only where the test of a failing
/// disk runs it.
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
