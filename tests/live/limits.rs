//! Limits of the disk, of the size of files and of descriptors, while root records: the trace is cut short
//! and whole, or the error names the limit. klock's own memory stays within its limit, too.
//!
//! records the whole machine
//! needs: root, gcc

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use trace_format::Trace;

use crate::support::{Running, as_root, fixture, kill, klock, names, refused, run, send, soon};

/// Longest time for anything that must not hang.
const LIMIT: Duration = Duration::from_secs(180);

/// A mounted file system in memory.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn mount(at: PathBuf, size: &str) -> Self {
        fs::create_dir(&at).unwrap();
        let options = format!("size={size},mode=755");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&at).status();
        assert!(mount.unwrap().success());
        Self(at)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Waits until a checkpoint covers rows.
fn until_rows(output: &Path) {
    let bytes = |path: &Path| fs::metadata(path).map_or(0, |file| file.len());
    let journal = output.with_extension("parquet.journal");
    soon(LIMIT, "rows", || bytes(output) > 1000);
    let before = bytes(&journal);
    soon(LIMIT, "a checkpoint after them", || bytes(&journal) > before);
}

/// Checks a trace that was cut short: it is marked and whole.
fn check_cut(path: &Path) {
    let trace = Trace::open(path).unwrap();
    assert!(!trace.info().complete && trace.info().stop_reason.contains("could not be written"));
    let events: usize = trace.events().unwrap().map(|batch| batch.unwrap().iter().count()).sum();
    assert_eq!(events as u64, trace.info().events);
    assert!(events > 0 && !trace.tasks().unwrap().is_empty() && !trace.locks().unwrap().is_empty());
    trace.stacks().unwrap();
    assert!(!path.with_extension("parquet.journal").exists());
    let report = run(klock().args(["analyze", "report"]).arg(path));
    assert!(report.status.success() && report.stderr.contains("not finished"), "{}", report.stderr);
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_full_disk_ends_a_recording_with_a_valid_shorter_trace() {
    let place = tempfile::tempdir().unwrap();
    let disk = Tmpfs::mount(place.path().join("disk"), "3M");
    let output = disk.0.join("t.parquet");
    let mut record = as_root(&["record", "-q", "--locks", "pthread", "-o", output.to_str().unwrap(), "--"]);
    let recorder = Running::start(record.arg(fixture("steady")));
    let pid: i32 = recorder.line_after("running ").parse().unwrap();
    until_rows(&output);
    // Until the disk has no byte left.
    let _ = fs::write(disk.0.join("filler"), vec![1; 4 << 20]);
    let ended = recorder.end_within(LIMIT);
    kill(pid);
    refused(&ended, 5, &["t.parquet", "no space left", "ends early"]);
    check_cut(&output);
    assert_eq!(
        names(&disk.0),
        ["filler", "t.locks.parquet", "t.parquet", "t.stacks.parquet", "t.tasks.parquet"]
    );
}

fn limit(pid: i32, resource: libc::__rlimit_resource_t, value: u64) {
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: `limit` outlives the call.
    let result = unsafe { libc::prlimit(pid, resource, &raw const limit, std::ptr::null_mut()) };
    assert_eq!(result, 0);
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_limit_on_the_size_of_files_ends_a_recording_with_a_valid_shorter_trace() {
    let place = tempfile::tempdir().unwrap();
    let output = place.path().join("t.parquet");
    let mut record = as_root(&["record", "-q", "--locks", "pthread", "-o", output.to_str().unwrap(), "--"]);
    let recorder = Running::start(record.arg(fixture("steady")));
    let pid: i32 = recorder.line_after("running ").parse().unwrap();
    until_rows(&output);
    let recorder_pid = recorder.child.id().cast_signed();
    // The files grow until klock gets its limit, which must leave room for the end of each.
    send(recorder_pid, libc::SIGSTOP);
    let sizes = fs::read_dir(place.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
    limit(recorder_pid, libc::RLIMIT_FSIZE, sizes.max().unwrap() + 100_000);
    send(recorder_pid, libc::SIGCONT);
    let ended = recorder.end_within(LIMIT);
    kill(pid);
    refused(&ended, 5, &["limit on the size of files", "ulimit -f"]);
    // klock cuts rows off to make room for the end of the file, or says what to do.
    if ended.stderr.contains("ends early") {
        return check_cut(&output);
    }
    refused(&ended, 5, &["finish it with `klock recover"]);
    let recovered = run(klock().arg("recover").arg(&output));
    assert!(recovered.status.success(), "{}", recovered.stderr);
    assert!(Trace::open(&output).unwrap().event_count() > 0);
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_limit_on_descriptors_is_named() {
    assert_named(&[8, 32]);
}

#[test]
#[ignore = "full: more of the same, which takes long"]
fn further_limits_on_descriptors_are_named() {
    assert_named(&[16, 48, 64]);
}

/// Records different targets with at most so many descriptors. Each is recorded, or the error names the
/// limit.
#[track_caller]
fn assert_named(counts: &[u64]) {
    let place = tempfile::tempdir().unwrap();
    let output = place.path().join("t.parquet");
    for &count in counts {
        for target in [
            &["-a", "-d", "100ms"][..],
            &["-p", "1", "-d", "100ms"],
            &["--", "true"],
            &["--probes", "uprobe", "--", "true"],
        ] {
            let mut record = as_root(&["record", "-f", "-o", output.to_str().unwrap()]);
            record.args(target);
            let bound = libc::rlimit { rlim_cur: count, rlim_max: count };
            // SAFETY: setrlimit is safe to call between fork and exec; `bound` is a copy.
            unsafe {
                record.pre_exec(move || match libc::setrlimit(libc::RLIMIT_NOFILE, &raw const bound) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                })
            };
            let ended = run(&mut record);
            let words = &ended.stderr;
            assert!(!words.contains("tracefs"), "{count}: {words}");
            assert!(ended.status.success() || words.contains("ulimit -n"), "{count} {target:?}: {words}");
        }
    }
}

/// Maximum memory of a recorder and of a recovery, in KiB.
const MAX_KIB: i64 = 512 << 10;

/// Returns the memory of a process that is no file's, in KiB.
fn own_kib(pid: u32) -> i64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let own = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    own.unwrap().trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

#[test]
#[ignore = "full: hundreds of thousands of stacks take minutes"]
#[expect(clippy::zombie_processes, reason = "wait4 waits for the process, and returns its memory as well")]
fn stacks_that_are_ever_new_take_no_memory_beyond_the_limit() {
    let place = tempfile::tempdir().unwrap();
    let output = place.path().join("t.parquet");
    let path = output.to_str().unwrap();
    let mut record = as_root(&["record", "-q", "--off-cpu", "-o", path, "--"]);
    let mut recorder = Running::start(record.arg(fixture("new_stacks")));
    let program: i32 = recorder.line_after("running ").parse().unwrap();
    // Some 60 bytes of the journal are a stack.
    let journal = output.with_extension("parquet.journal");
    let mut most = 0;
    soon(LIMIT * 4, "200,000 stacks", || {
        most = most.max(own_kib(recorder.child.id()));
        fs::metadata(&journal).is_ok_and(|file| file.len() > 12_000_000)
    });
    recorder.child.kill().unwrap();
    kill(program);
    assert!(most < MAX_KIB, "klock record took {most} KiB");
    recorder.end_within(LIMIT);
    let recovery = klock().args(["recover", path]).spawn().unwrap();
    let mut status = 0;
    // SAFETY: rusage is plain numbers, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to valid places, and nothing else waits for the child.
    unsafe { libc::wait4(recovery.id().cast_signed(), &raw mut status, 0, &raw mut usage) };
    assert_eq!(status, 0, "klock recover failed");
    assert!(usage.ru_maxrss < MAX_KIB, "klock recover took {} KiB", usage.ru_maxrss);
    let stacks = Trace::open(&output).unwrap().stacks().unwrap().len();
    assert!(stacks > 100_000, "{stacks} stacks");
}
