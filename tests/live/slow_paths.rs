//! Records waits for locks of Rust's standard library and for Go's `sync.Mutex`, by probes in the programs
//! (`fixtures/programs/known_rust.rs`, `known_go.go`): each wait that the program logged stands in the trace,
//! with the line of its call.
//!
//! needs: root, rustc
//! full needs: go

#![cfg(feature = "record")]
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use trace_format::{Event, EventKind, Frame, LockKind, LockRow, Stack, TaskRow, Trace};

use crate::support::{
    Running, cannot_record, csv_rows, events, hidden, klock, most_of, root, run, skip, until,
};

/// A wait that the program logged: the line of the call, and the times before and after it.
#[derive(Debug)]
struct Logged {
    line: i32,
    begin_ns: i64,
    end_ns: i64,
}

/// A trace in memory.
struct Recorded {
    events: Vec<Event>,
    locks: Vec<LockRow>,
    tasks: Vec<TaskRow>,
    stacks: Vec<Stack>,
    /// Number of stacks that klock says it could not unwind: on a busy machine, copies come too late.
    not_unwound: u64,
}

impl Recorded {
    fn read(path: &Path) -> Self {
        let trace = Trace::open(path).unwrap();
        assert_eq!(trace.info().loss.events(), 0);
        let not_unwound = trace.info().loss.stacks_not_unwound;
        let events = events(&trace);
        let (locks, tasks, stacks) =
            (trace.locks().unwrap(), trace.tasks().unwrap(), trace.stacks().unwrap());
        Self { events, locks, tasks, stacks, not_unwound }
    }

    /// The acquisitions of locks of these kinds that the program logs, with the kind.
    fn acquisitions(&self, names: &[&str]) -> Vec<(&Event, LockKind)> {
        let lock = |event: &Event| &self.locks[event.lock.unwrap().0 as usize];
        let acquired = self.events.iter().filter(|event| event.kind == EventKind::Acquire);
        let of_names = acquired.filter(|event| {
            lock(event).name.as_deref().is_some_and(|name| names.iter().any(|end| name.ends_with(end)))
        });
        of_names.map(|event| (event, lock(event).kind)).collect()
    }

    /// The first frame in this source file.
    fn site(&self, event: &Event, source: &str) -> Option<&Frame> {
        let stack = &self.stacks[event.stack?.0 as usize];
        let in_source = |frame: &&Frame| frame.file.as_deref().is_some_and(|file| file.ends_with(source));
        stack.frames.iter().find(in_source)
    }

    /// Its line.
    fn line(&self, event: &Event, source: &str) -> Option<i32> {
        let site = self.site(event, source)?;
        assert!(!site.guessed, "{site:#?}");
        site.line
    }

    /// Returns whether the stacks of these acquisitions were unwound in time. Those that were not are no more
    /// than klock says.
    #[track_caller]
    fn are_unwound(&self, names: &[&str], source: &str) -> bool {
        let is_late = |(row, _): &&(&Event, LockKind)| self.site(row, source).is_none_or(|site| site.guessed);
        let late = self.acquisitions(names).iter().filter(is_late).count() as u64;
        assert!(late <= self.not_unwound, "{late} guesses, {} stacks not unwound", self.not_unwound);
        late == 0
    }

    /// Checks that each logged wait is one row of the trace, with its line, and that there are no others.
    #[track_caller]
    fn assert_has(&self, log: &[Logged], names: &[&str], source: &str, kinds: &[LockKind]) {
        let rows = self.acquisitions(names);
        for wait in log {
            let is_inside = |row: &&(&Event, LockKind)| {
                let (begin, end) = (row.0.ts_ns - row.0.wait_ns.unwrap(), row.0.ts_ns);
                wait.begin_ns <= begin && end <= wait.end_ns && self.line(row.0, source) == Some(wait.line)
            };
            let found: Vec<_> = rows.iter().filter(is_inside).collect();
            let seen: Vec<_> = rows
                .iter()
                .map(|(row, _)| (row.ts_ns - row.wait_ns.unwrap_or(0), row.ts_ns, self.line(row, source)))
                .collect();
            assert_eq!(found.len(), 1, "{wait:?} in {seen:?}");
        }
        assert_eq!(rows.len(), log.len(), "{rows:#?}");
        assert!(rows.iter().all(|(_, kind)| kinds.contains(kind)), "{rows:#?}");
    }
}

fn log(output: &str) -> Vec<Logged> {
    let numbers = |line: &str| -> Vec<i64> { line.split(' ').map(|word| word.parse().unwrap()).collect() };
    let waits = output.lines().filter_map(|line| line.strip_prefix("WAIT ")).map(numbers);
    let log: Vec<_> = waits.map(|n| Logged { line: n[0] as i32, begin_ns: n[1], end_ns: n[2] }).collect();
    assert!(!log.is_empty(), "{output}");
    log
}

fn known_rust(directory: &Path, flags: &[&str]) -> PathBuf {
    let program = directory.join("known_rust");
    let mut compiler = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let source = root().join("fixtures/programs/known_rust.rs");
    let compiler = compiler.args(["--edition", "2024", "-g", "-O"]).args(flags);
    assert!(run(compiler.arg(source).arg("-o").arg(&program)).status.success());
    program
}

/// Returns the program as it is built by default, without frame pointers.
fn default_rust() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| known_rust(Path::new(env!("CARGO_TARGET_TMPDIR")), &[]))
}

/// Returns `None` where there is no Go.
fn known_go(directory: &Path, flags: &[&str]) -> Option<PathBuf> {
    let program = directory.join("known_go");
    let source = root().join("fixtures/programs/known_go.go");
    let mut go = Command::new("go");
    go.env("HOME", directory).env("GOCACHE", directory.join("cache")).arg("build").args(flags).arg("-o");
    let built = go.arg(&program).arg(source).output().ok()?;
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(program)
}

/// Records a command with these options, until all files were read in time. Returns its output and what klock
/// wrote on stderr.
#[track_caller]
fn record(options: &[&str], trace: &Path, command: &[&str]) -> (String, String) {
    until("klock reads all files in time", || {
        let mut record = klock();
        let ended =
            run(record.arg("record").args(options).arg("-f").arg("-o").arg(trace).arg("--").args(command));
        assert!(ended.status.success(), "{}", ended.stderr);
        (!ended.stderr.contains("could not be examined")).then_some((ended.stdout, ended.stderr))
    })
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Records the program, and checks that each wait that it logged is one row. Returns how many of them seem to
/// be spent on the CPU, as those do whose switch is hidden, and the number of all.
#[track_caller]
fn assert_waits_of_rust_are_recorded(program: &Path, options: &[&str]) -> (usize, usize) {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("t.parquet");
    let (output, recorded) = until("klock unwinds all stacks in time", || {
        let (output, _) = record(options, &trace, &[text(program), "turns", "10"]);
        let recorded = Recorded::read(&trace);
        recorded.are_unwound(&["HOT", "RESULT"], "known_rust.rs").then_some((output, recorded))
    });
    let kinds = [LockKind::RustMutex, LockKind::RustRwLock];
    recorded.assert_has(&log(&output), &["HOT", "RESULT"], "known_rust.rs", &kinds);
    let rows = recorded.acquisitions(&["HOT", "RESULT"]);
    let main = recorded.tasks.iter().find(|task| task.pid == task.tid).unwrap();
    for (row, _) in &rows {
        assert!(row.blocked_ns.is_some_and(|ns| ns <= row.wait_ns.unwrap()), "{row:?}");
        assert_eq!(row.peer_task, Some(main.id), "the main thread wakes");
    }
    (rows.iter().filter(|(row, _)| row.blocked_ns == Some(0)).count(), rows.len())
}

#[test]
#[ignore = "needs root and rustc; run by cargo xtask test"]
fn every_wait_for_a_lock_of_rust_is_recorded_at_the_line_of_its_call() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    // By default, these locks are recorded.
    assert_waits_of_rust_are_recorded(default_rust(), &[]);
}

#[test]
#[ignore = "full: a host may hide the switches that show a sleep"]
fn waits_for_locks_of_rust_are_recorded_with_the_sleep_in_them() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let framed = known_rust(directory.path(), &["-C", "force-frame-pointers=yes"]);
    for (program, options) in [(default_rust(), &["--locks", "rust"][..]), (framed.as_path(), &[])] {
        most_of(3, 1, || {
            let (on_cpu, waits) = assert_waits_of_rust_are_recorded(program, options);
            assert!(on_cpu <= hidden(waits), "{on_cpu} of {waits} waits without a switch");
        });
    }
}

#[test]
#[ignore = "full: go builds its library first, which takes a minute"]
fn every_wait_of_a_goroutine_for_a_mutex_is_recorded_at_the_line_of_its_call() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = known_go(directory.path(), &[]) else { return skip("no go here") };
    let trace = directory.path().join("t.parquet");
    for options in [&["--locks", "go"][..], &[]] {
        let (output, _) = record(options, &trace, &[text(&program), "turns", "20"]);
        let recorded = Recorded::read(&trace);
        recorded.assert_has(&log(&output), &["main.hot"], "known_go.go", &[LockKind::GoMutex]);
        let rows = recorded.acquisitions(&["main.hot"]);
        for (row, _) in &rows {
            let task = &recorded.tasks[row.task.unwrap().0 as usize];
            assert_eq!(task.comm.as_deref(), Some("goroutine"));
            assert!(task.tid < 0 && row.peer_task.is_some_and(|peer| peer != task.id), "{row:?}");
        }
        let tasks: BTreeSet<_> = rows.iter().map(|(row, _)| row.task).collect();
        assert!(tasks.len() >= 2, "two goroutines wait in each round");
    }
    // Holds are not recorded: the time is divided by who released the lock.
    let blame = run(klock().args(["analyze", "blame", "--kind", "go_mutex", "--format", "csv"]).arg(&trace));
    let rows = csv_rows(&blame.stdout);
    assert!(
        !rows.is_empty() && rows.iter().all(|row| row.values().any(|value| value.contains("woken by"))),
        "{rows:?}"
    );
}

#[test]
#[ignore = "needs root and rustc; run by cargo xtask test"]
fn a_program_of_rust_that_a_recorded_shell_starts_is_probed_too() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("t.parquet");
    // It is probed some milliseconds after its start, later on a busy machine.
    let mut turns = 100;
    until("klock probes the program while it runs", || {
        let command = format!("{} turns {turns}; true", text(default_rust()));
        turns = (3 * turns).min(1000);
        let (output, _) = record(&["--locks", "rust"], &trace, &["/bin/sh", "-c", &command]);
        let rows = Recorded::read(&trace).acquisitions(&["HOT", "RESULT"]).len();
        assert!(rows <= log(&output).len(), "{rows}");
        (rows > 0).then_some(())
    });
}

#[test]
#[ignore = "full: go builds its library first, which takes a minute"]
fn mutexes_of_a_running_go_program_are_recorded_and_those_of_a_stripped_one_are_named_as_unseen() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("t.parquet");
    let Some(program) = known_go(directory.path(), &[]) else { return skip("no go here") };
    let running = Running::start(Command::new(program).args(["8", "1000000"]));
    let pid = running.pid().to_string();
    let mut record_running = klock();
    record_running
        .args(["record", "--locks", "go", "--probes", "uprobe", "-d", "1s", "-p", &pid, "-f", "-o"])
        .arg(&trace);
    let ended = run(&mut record_running);
    assert!(ended.status.success(), "{}", ended.stderr);
    drop(running);
    let recorded = Recorded::read(&trace);
    let rows = recorded.acquisitions(&["main.hot"]);
    assert!(rows.len() > 10, "{rows:?}");
    assert!(rows.iter().all(|(row, _)| recorded.line(row, "known_go.go").is_some()));
    let stripped = known_go(directory.path(), &["-ldflags=-s -w"]).unwrap();
    let (_, said) = record(&[], &trace, &[text(&stripped), "turns", "1"]);
    assert!(said.contains("is a Go program") && said.contains("no symbol table"), "{said}");
}
