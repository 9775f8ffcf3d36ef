//! Kills recorders and what they record, at random moments: what was recorded until less than a second before is a trace, at
//! once or after `klock recover`, and nothing else is left. No part of it needs root.
//!
//! `KLOCK_KILLS` is how many runs are killed (150).

#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]
#![allow(clippy::print_stdout, reason = "the figure is worth reading")]

use std::{
    fs,
    hash::{BuildHasher as _, RandomState},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use trace_format::Trace;

mod support;

use support::{Running, fixture, kill, monotonic_ns};

/// At the same time: they mostly sleep.
const AT_ONCE: usize = 4;
/// Killed at the latest so long after the program began.
const LATEST: Duration = Duration::from_millis(2500);
/// What may be missing at the end of a trace.
const MISSING_NS: i64 = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Recorder,
    Program,
}

fn is_there(pid: i32) -> bool {
    // A process that was killed may stay as a zombie of whoever adopts it.
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    !status.is_empty() && !status.contains("State:\tZ")
}

#[track_caller]
fn soon(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// One run. Returns how much of its end is missing from the trace, in ns, unless it had not lived for long enough.
fn run(folder: &Path, klock: &Path, program: &Path, victim: Victim, after: Duration) -> Option<i64> {
    let (trace, temporary) = (folder.join("t.parquet"), folder.join("tmp"));
    fs::create_dir_all(&temporary).unwrap();
    for path in [folder, &temporary] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let mut command = Command::new(klock);
    command.args(["record", "-f", "-o"]).arg(&trace).arg("--").arg(program);
    command.env("TMPDIR", &temporary).stdin(Stdio::null());
    // SAFETY: the call has no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        command.uid(65534).gid(65534);
    }
    let mut recorder = Running::start(&mut command);
    let pid: i32 = recorder.line_after("running ").parse().unwrap();
    let begun_ns = monotonic_ns();
    thread::sleep(after);
    let killed_ns = monotonic_ns();
    match victim {
        Victim::Program => {
            kill(pid);
            assert!(recorder.ends_within(Duration::from_secs(60)), "the recording does not end");
        }
        Victim::Recorder => {
            recorder.child.kill().unwrap();
            recorder.child.wait().unwrap();
            assert!(is_there(pid), "the command ended with klock");
            kill(pid);
            let recovered = Command::new(klock).arg("recover").arg(&trace).output().unwrap();
            let words = String::from_utf8_lossy(&recovered.stderr);
            if killed_ns - begun_ns < MISSING_NS && words.contains("nothing to finish it from") {
                return None;
            }
            assert!(recovered.status.success(), "{words}");
        }
    }
    soon("something is left in the temporary folder", || fs::read_dir(&temporary).unwrap().next().is_none());
    let mut files: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, ["t.locks.parquet", "t.parquet", "t.stacks.parquet", "t.tasks.parquet", "tmp"]);
    let sockets = fs::read_to_string("/proc/net/unix").unwrap();
    assert!(!sockets.contains(&format!("@klock-{}-", recorder.child.id())), "a socket is left");
    soon("the program lives on", || !is_there(pid));

    let trace = Trace::open(&trace).unwrap();
    assert_eq!(trace.info().complete, victim == Victim::Program);
    let (tasks, locks, stacks) =
        (trace.tasks().unwrap().len(), trace.locks().unwrap().len(), trace.stacks().unwrap().len());
    let inside = |id: Option<i32>, rows: usize| id.is_none_or(|id| (id as usize) < rows);
    let mut last_ns = i64::MIN;
    for batch in trace.events().unwrap() {
        for event in batch.unwrap().iter() {
            assert!(event.ts_ns >= last_ns, "out of order");
            last_ns = event.ts_ns;
            let ids = [(event.task.map(|id| id.0), tasks), (event.lock.map(|id| id.0), locks)];
            assert!(
                ids.into_iter().all(|(id, rows)| inside(id, rows))
                    && inside(event.stack.map(|id| id.0), stacks)
            );
        }
    }
    (killed_ns - begun_ns >= MISSING_NS || victim == Victim::Program).then(|| killed_ns - last_ns)
}

#[test]
#[ignore = "kills some hundred recorders; run by cargo xtask test"]
fn runs_that_are_killed_at_any_moment_leave_a_trace_up_to_a_second_before_and_nothing_else() {
    let kills: usize = std::env::var("KLOCK_KILLS").map_or(150, |text| text.parse().unwrap());
    let outer = tempfile::tempdir().unwrap();
    fs::set_permissions(outer.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let copy = |from: &Path, name: &str| -> PathBuf {
        let to = outer.path().join(name);
        fs::copy(from, &to).unwrap();
        to
    };
    let klock = copy(Path::new(env!("CARGO_BIN_EXE_klock")), "klock");
    let program = copy(&fixture("steady"), "steady");
    let next = AtomicUsize::new(0);
    let random = RandomState::new();
    let missing: Vec<i64> = thread::scope(|scope| {
        let worker = || {
            let mut missing = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= kills {
                    return missing;
                }
                let after = Duration::from_nanos(random.hash_one(at) % LATEST.as_nanos() as u64);
                let victim = if at.is_multiple_of(4) { Victim::Program } else { Victim::Recorder };
                let folder = outer.path().join(at.to_string());
                missing.extend(run(&folder, &klock, &program, victim, after));
                fs::remove_dir_all(&folder).unwrap();
            }
        };
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let most_ns = missing.iter().copied().max().unwrap();
    println!("{kills} killed, {} compared, {} ms missing at most", missing.len(), most_ns / 1_000_000);
    assert!(missing.len() > kills / 2);
    assert!(most_ns < MISSING_NS, "{most_ns} ns are missing");
}
