//! Kills recorders and the programs that they record, some at random moments. Everything recorded until a
//! second before must be a trace, at once or after `klock recover`, and nothing else may be left behind.
//!
//! `KLOCK_KILLS` is the number of runs to kill at random moments (150).
//!
//! needs: gcc

#![allow(clippy::print_stdout, reason = "the figure is worth reading")]

use std::{
    fs,
    hash::{BuildHasher as _, RandomState},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use tempfile::TempDir;
use trace_format::{EventKind, Mode, Trace};

use crate::support::{self, Running, fixture, kill, monotonic_ns, most_of, set_mode, soon, until};
use xtask::host::{NOBODY, of_nobody};

/// Bound on every wait; generous, because the machine may be busy.
const LIMIT: Duration = Duration::from_secs(180);
/// Number of runs at a time; they mostly sleep.
const AT_ONCE: usize = 4;
/// The latest time of a kill after the start of the program.
const LATEST: Duration = Duration::from_millis(2500);
/// The time that may be missing at the end of a trace of a recorder that always gets a processor when it
/// needs one.
const MISSING_NS: i64 = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Recorder,
    Program,
}

fn is_there(pid: i32) -> bool {
    // A killed process may remain as a zombie of the process that adopts it.
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    !status.is_empty() && !status.contains("State:\tZ")
}

/// Returns the time that the threads of a process have waited for a processor, in ns.
fn delay_ns(pid: i32) -> i64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let waited = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').nth(1)?.parse::<i64>().ok()
    };
    tasks.filter_map(waited).sum()
}

/// The programs of all runs, in a directory that the ordinary user can read.
struct Programs {
    outer: TempDir,
    home: Option<TempDir>,
    klock: PathBuf,
    program: PathBuf,
}

impl Programs {
    fn new() -> Self {
        let outer = tempfile::tempdir().unwrap();
        set_mode(outer.path(), 0o777);
        let copy = |from: &Path, name: &str| -> PathBuf {
            let to = outer.path().join(name);
            fs::copy(from, &to).unwrap();
            to
        };
        let klock = copy(Path::new(env!("CARGO_BIN_EXE_klock")), "klock");
        let program = copy(&fixture("steady"), "steady");
        Self { outer, home: of_nobody().unwrap(), klock, program }
    }
}

/// A run that was killed.
struct Killed {
    /// The time that it ran.
    ran_ns: i64,
    /// The time that recorder and program waited for a processor.
    delayed_ns: i64,
    /// The time at the end that is missing in its trace; `None` if it was killed too early to have rows.
    missing_ns: Option<i64>,
}

/// Kills one run, of a program that needs all processors or of one that mostly sleeps. Everything is checked
/// but the times.
fn run(programs: &Programs, folder: &str, (victim, is_busy): (Victim, bool), after: Duration) -> Killed {
    let Programs { outer, home, klock, program } = programs;
    let folder = &outer.path().join(folder);
    let (trace, temporary) = (folder.join("t.parquet"), folder.join("tmp"));
    fs::create_dir_all(&temporary).unwrap();
    for path in [folder, &temporary] {
        set_mode(path, 0o777);
    }
    let mut command = Command::new(klock);
    command.args(["record", "-f", "-o"]).arg(&trace).arg("--").arg(program).args(is_busy.then_some("busy"));
    command.env("TMPDIR", &temporary).stdin(Stdio::null());
    if let Some(home) = home {
        command.env("HOME", home.path()).env_remove("XDG_CACHE_HOME").uid(NOBODY).gid(NOBODY);
    }
    let mut recorder = Running::start(&mut command);
    let pid: i32 = recorder.line_after("running ").parse().unwrap();
    let begun_ns = monotonic_ns();
    thread::sleep(after);
    let delayed_ns = delay_ns(recorder.child.id().cast_signed()) + delay_ns(pid);
    let killed_ns = monotonic_ns();
    let killed = Killed { ran_ns: killed_ns - begun_ns, delayed_ns, missing_ns: None };
    match victim {
        Victim::Program => {
            kill(pid);
            assert!(recorder.ends_within(LIMIT), "the recording does not end");
        }
        Victim::Recorder => {
            recorder.child.kill().unwrap();
            recorder.child.wait().unwrap();
            assert!(is_there(pid), "the command ended when klock was killed");
            kill(pid);
            let mut recover = Command::new(klock);
            recover.arg("recover").arg(&trace);
            if home.is_some() {
                // As root, klock does not write into directories of other users.
                recover.uid(NOBODY).gid(NOBODY);
            }
            let recovered = recover.output().unwrap();
            let words = String::from_utf8_lossy(&recovered.stderr);
            if words.contains("cannot recover") {
                fs::remove_dir_all(folder).unwrap();
                return killed;
            }
            assert!(recovered.status.success(), "{words}");
        }
    }
    soon(LIMIT, "something is left in the temporary folder", || {
        fs::read_dir(&temporary).unwrap().next().is_none()
    });
    let mut files: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, ["t.locks.parquet", "t.parquet", "t.stacks.parquet", "t.tasks.parquet", "tmp"]);
    let sockets = fs::read_to_string("/proc/net/unix").unwrap();
    assert!(!sockets.contains(&format!("/klock-{}-", recorder.child.id())), "a socket is left");
    soon(LIMIT, "the program still runs", || !is_there(pid));

    let trace = Trace::open(&trace).unwrap();
    assert_eq!(trace.info().complete, victim == Victim::Program);
    let (tasks, locks, stacks) =
        (trace.tasks().unwrap().len(), trace.locks().unwrap().len(), trace.stacks().unwrap().len());
    let inside = |id: Option<i32>, rows: usize| id.is_none_or(|id| (id as usize) < rows);
    let mut last_ns = i64::MIN;
    let mut holders = vec![None; locks];
    // Tasks whose last release is missing: they were killed between the release and the writing of its
    // record.
    let mut are_cut = vec![false; tasks];
    let loss = &trace.info().loss;
    let mut is_lossy = loss.events() > 0 || loss.late > 0;
    let mut odd = None;
    for batch in trace.events().unwrap() {
        for event in batch.unwrap().iter() {
            assert!(event.ts_ns >= last_ns, "out of order");
            last_ns = event.ts_ns;
            if let (EventKind::Acquire | EventKind::Release, Some(lock), Some(task), Some(Mode::Exclusive)) =
                (event.kind, event.lock, event.task, event.mode)
            {
                let holder = &mut holders[lock.0 as usize];
                let is_release = event.kind == EventKind::Release;
                let mut is_odd = are_cut[task.0 as usize];
                match *holder {
                    Some(before) if !is_release && victim == Victim::Program => {
                        are_cut[before as usize] = true;
                    }
                    before => is_odd |= before != is_release.then_some(task.0),
                }
                if is_odd {
                    odd.get_or_insert_with(|| format!("{event:?}"));
                }
                *holder = (!is_release).then_some(task.0);
            }
            is_lossy |= event.kind == EventKind::Lost;
            let ids = [(event.task.map(|id| id.0), tasks), (event.lock.map(|id| id.0), locks)];
            assert!(
                ids.into_iter().all(|(id, rows)| inside(id, rows))
                    && inside(event.stack.map(|id| id.0), stacks)
            );
        }
    }
    // A recorder that gets no processor for long loses records, or has some late, and says so.
    assert!(odd.is_none() || is_lossy, "a row is missing or comes twice: {odd:?}");
    fs::remove_dir_all(folder).unwrap();
    Killed { missing_ns: (last_ns > i64::MIN).then(|| killed_ns - last_ns), ..killed }
}

#[test]
#[ignore = "kills recorders; run by cargo xtask test"]
fn a_killed_run_leaves_a_trace_and_nothing_else() {
    let programs = Programs::new();
    for victim in [Victim::Program, Victim::Recorder] {
        for is_busy in [false, true] {
            let mut after = Duration::from_millis(250);
            until("a run that is killed after its first checkpoint", || {
                after *= 2;
                run(&programs, "run", (victim, is_busy), after).missing_ns
            });
        }
    }
}

#[test]
#[ignore = "full: kills some hundred recorders at random moments, and compares times"]
fn runs_killed_at_any_moment_leave_a_trace_up_to_a_second_before_and_nothing_else() {
    most_of(2, 1, kill_at_any_moment);
}

fn kill_at_any_moment() {
    let kills: usize = std::env::var("KLOCK_KILLS").map_or(150, |text| text.parse().unwrap());
    let programs = Programs::new();
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
                // The records of programs that need all processors wait to be composed.
                let is_busy = at % 3 == 1;
                let killed = run(&programs, &at.to_string(), (victim, is_busy), after);
                let Killed { ran_ns, delayed_ns, missing_ns } = killed;
                let is_early = ran_ns - delayed_ns < MISSING_NS;
                assert!(missing_ns.is_some() || is_early, "no trace after {ran_ns} ns");
                let is_compared = ran_ns >= MISSING_NS || victim == Victim::Program;
                missing.extend(missing_ns.filter(|_| is_compared).map(|ns| ns - delayed_ns));
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

#[test]
#[ignore = "records a program that locks without pause; run by cargo xtask test"]
fn a_second_signal_ends_a_recording_with_a_trace_of_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let program = format!("echo running $$; exec {} 2 2000000000 1", fixture("known_counts").display());
    let mut command = support::klock();
    command.args(["record", "-f", "-o"]).arg(&path).args(["--", "sh", "-c", &program]);
    let mut recorder = Running::start(command.stdin(Stdio::null()));
    let pid: i32 = recorder.line_after("running ").parse().unwrap();
    let bytes = |path: &Path| fs::metadata(path).map_or(0, |file| file.len());
    let journal = path.with_extension("parquet.journal");
    soon(LIMIT, "some row groups", || bytes(&path) > 60_000);
    let before = bytes(&journal);
    soon(LIMIT, "a checkpoint after them", || bytes(&journal) > before);
    recorder.signal("INT");
    thread::sleep(Duration::from_millis(100));
    // Two of the same signal would be one to a recorder that was not running meanwhile.
    recorder.signal("TERM");
    assert!(recorder.ends_within(LIMIT), "the recording does not end");
    kill(pid);
    if Trace::open(&path).map_or(true, |trace| !trace.info().complete) {
        let recovered = support::run(support::klock().arg("recover").arg(&path));
        assert!(recovered.status.success(), "{}", recovered.stderr);
    }
    let trace = Trace::open(&path).unwrap();
    let acquired = trace.event_count();
    assert!(acquired > 1000, "{acquired} events");
    println!("{acquired} events, {} lost, complete: {}", trace.info().loss.events(), trace.info().complete);
}
