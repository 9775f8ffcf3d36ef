//! Helpers of the outer tests: running klock and the fixture programs, with a bound on every wait, and
//! reporting a skip.

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]
#![allow(clippy::print_stdout, reason = "cargo xtask test reads the reasons for skips")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write as _,
    ops::{Deref, DerefMut},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use trace_format::{Event, Trace};
pub use xtask::process::Ended;
use xtask::process::Running as Process;

pub mod arena;
pub mod conformance;
pub mod known_counts;
pub mod place;

/// The user who attacks, by number: it has no entry in /etc/passwd.
pub const ATTACKER: u32 = 64201;

/// More than the difference between a hold by the clock of the records and by the clock of a program.
pub const CLOCKS_NS: i64 = 200;

/// The workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the number of switches that a machine may hide: some have tasks of their own whose switches reach
/// no tracepoint. The guests of `cargo xtask vm` hide none, and there none may be missing.
pub fn hidden(switches: usize) -> usize {
    switches.div_ceil(20)
}

/// The built klock.
pub fn klock() -> Command {
    Command::new(env!("CARGO_BIN_EXE_klock"))
}

/// The Python of `cargo xtask setup`, if it is installed.
pub fn python() -> Option<PathBuf> {
    let python = root().join("target/tools/python/bin/python3");
    python.exists().then_some(python)
}

/// Reports that the test cannot run here. `cargo xtask test` reads the line and lists the reason.
pub fn skip(reason: &str) {
    println!("\nskipped: {reason}");
    assert!(!std::env::var("CI").is_ok_and(|v| v == "true"), "skipped under CI=true: {reason}");
}

/// Reads CSV with a header: the fields of each line, by the name of their column.
pub fn csv_rows(text: &str) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let head = reader.headers().expect("CSV has a header").clone();
    let row = |record: Result<csv::StringRecord, csv::Error>| {
        let record = record.expect("every line has as many fields as the header");
        head.iter().map(str::to_owned).zip(record.iter().map(str::to_owned)).collect()
    };
    reader.records().map(row).collect()
}

/// Returns a number of a row of CSV.
#[track_caller]
pub fn number(row: &BTreeMap<String, String>, column: &str) -> i64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column} in {row:?}"))
}

/// Returns CLOCK_MONOTONIC in nanoseconds, the clock of a trace.
pub fn monotonic_ns() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is ours and outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Waits until something holds, and fails after the limit.
#[track_caller]
pub fn soon(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < limit, "not within {limit:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Bound on repeating what the world must do: contention, a preemption, a recording without loss.
const WORLD: Duration = Duration::from_secs(300);

/// Repeats an attempt until it returns something. `None` means that the world did not do its part, such as a
/// contention that did not come about; what klock gets wrong must panic instead. Fails after five minutes.
#[track_caller]
pub fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    let mut attempts = 0;
    loop {
        attempts += 1;
        if let Some(result) = attempt() {
            return result;
        }
        assert!(begun.elapsed() < WORLD, "{what}: not in {attempts} attempts within {WORLD:?}");
    }
}

/// Decides what no single recording can decide, for tests of the full size: an attempt that panics has
/// failed, and at most `may_fail` of `attempts` may. Ends as soon as the decision is certain.
#[track_caller]
pub fn most_of(attempts: u32, may_fail: u32, mut attempt: impl FnMut()) {
    let mut failed = 0;
    for n in 0..attempts {
        if n - failed >= attempts - may_fail {
            return;
        }
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(&mut attempt)).is_err() {
            failed += 1;
            println!("attempt {} of {attempts} failed", n + 1);
        }
        assert!(failed <= may_fail, "{failed} of {} attempts failed; {may_fail} of {attempts} may", n + 1);
    }
}

/// Sets a flag at the end of a scope, also if the test fails there: threads that run until it is set end.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sets the permissions of a file.
#[track_caller]
pub fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permissions");
}

/// Kills a process, if it still exists.
pub fn kill(pid: i32) {
    // SAFETY: the call involves no memory.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// Sends a signal to a process; to a process group if the number is negative.
#[track_caller]
pub fn send(to: i32, signal: i32) {
    // SAFETY: the call involves no memory.
    assert_eq!(unsafe { libc::kill(to, signal) }, 0);
}

/// A program in the background, started by the shared process runner. Its failures fail the test.
#[derive(Debug)]
pub struct Running(Process);

impl Deref for Running {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.0
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.0
    }
}

impl Running {
    /// Starts it.
    pub fn start(command: &mut Command) -> Self {
        Self(passed(Process::start(command)))
    }

    /// Sends a signal: `INT`, `TERM`, `STOP` or `CONT`.
    pub fn signal(&self, name: &str) {
        let signal = match name {
            "INT" => libc::SIGINT,
            "TERM" => libc::SIGTERM,
            "STOP" => libc::SIGSTOP,
            "CONT" => libc::SIGCONT,
            "KILL" => libc::SIGKILL,
            _ => panic!("invalid signal '{name}'"),
        };
        passed(self.0.signal(signal));
    }

    /// Returns whether it ends by itself within this time.
    pub fn ends_within(&mut self, limit: Duration) -> bool {
        passed(self.0.ends_within(limit))
    }

    /// Waits for its end.
    #[track_caller]
    pub fn end_within(self, limit: Duration) -> Ended {
        passed(self.0.end_within(limit))
    }

    /// Waits until it has printed a line that begins with `prefix`, and returns the rest of the line.
    #[track_caller]
    pub fn line_after(&self, prefix: &str) -> String {
        passed(self.0.line_after(prefix))
    }

    /// Sends the line for which a program waits on its standard input, and waits until it prints `done`.
    #[track_caller]
    pub fn go(&mut self) {
        let stdin = self.child.stdin.as_mut().expect("its standard input is a pipe");
        stdin.write_all(b"go\n").expect("it reads");
        self.line_after("done");
    }

    /// Waits until a recorder records.
    #[track_caller]
    pub fn until_recording(&mut self) {
        passed(self.0.until_recording());
    }
}

/// Unwraps a result, and panics with its error.
#[track_caller]
fn passed<T, E: std::fmt::Debug>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{error:?}"))
}

/// Runs it to its end, within ten minutes: the limit ends what hangs.
#[track_caller]
pub fn run(command: &mut Command) -> Ended {
    Running::start(command.stdin(Stdio::null())).end_within(SESSION)
}

/// Returns what a command printed, without the breaks of lines.
pub fn said(ended: &Ended) -> String {
    format!("{} {}", ended.stdout, ended.stderr).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns all events of a trace.
#[track_caller]
pub fn events(trace: &Trace) -> Vec<Event> {
    let batches = trace.events().expect("events").map(|batch| batch.expect("a batch"));
    batches.flat_map(|batch| batch.iter().collect::<Vec<_>>()).collect()
}

/// Returns the names of the files in a directory, sorted.
pub fn names(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory)
        .expect("a directory with names")
        .map(|entry| entry.expect("a directory with names").file_name());
    let mut names: Vec<String> =
        names.map(|name| name.into_string().expect("a directory with names")).collect();
    names.sort();
    names
}

/// Runs klock as root, not through sudo.
pub fn as_root(args: &[&str]) -> Command {
    let mut command = klock();
    for name in ["SUDO_UID", "SUDO_GID", "PKEXEC_UID"] {
        command.env_remove(name);
    }
    command.args(args);
    command
}

/// Checks that klock ended with this exit code and an error with these words.
#[track_caller]
pub fn refused(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.status.code(), Some(code), "{}", ended.stderr);
    for word in words {
        assert!(ended.stderr.contains(word), "no '{word}' in: {}", ended.stderr);
    }
}

/// Returns klock's reason why nothing can be recorded here; `None` if it can record.
pub fn cannot_record() -> Option<&'static str> {
    static ANSWER: OnceLock<Option<String>> = OnceLock::new();
    let answer = ANSWER.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let output = directory.path().join("t.parquet");
        let ended = run(klock()
            .args(["record", "-a", "-d", "100ms", "--locks", "kernel", "--contended-only", "-o"])
            .arg(output));
        (ended.status.code() == Some(3)).then(|| ended.stderr.trim().replace('\n', "; "))
    });
    answer.as_deref()
}

/// Bound on a recording of a program; generous, because the machine may be busy.
const SESSION: Duration = Duration::from_secs(600);

/// Starts a program that prints `ready PID`, records it from the line that lets it go on until its `done`,
/// and returns its output.
///
/// # Panics
/// If the recording fails.
#[track_caller]
pub fn record_between(program: &mut Command, options: &[&str], trace: &Path) -> String {
    let mut running = Running::start(program.stdin(Stdio::piped()));
    let pid = running.line_after("ready ");
    let mut recorder = Running::start(klock().args(["record", "-p", &pid, "-o"]).arg(trace).args(options));
    recorder.until_recording();
    running.go();
    recorder.signal("INT");
    let ended = recorder.end_within(SESSION);
    assert!(ended.status.success(), "{}", ended.stderr);
    drop(running.child.stdin.take());
    running.end_within(SESSION).stdout
}

/// Runs a `klock record` of such a program, and returns what both printed.
///
/// # Panics
/// If the recording fails.
#[track_caller]
pub fn record_whole(record: &mut Command) -> Ended {
    let mut recorder = Running::start(record.stdin(Stdio::piped()));
    recorder.line_after("ready ");
    recorder.go();
    drop(recorder.child.stdin.take());
    let ended = recorder.end_within(SESSION);
    assert!(ended.status.success(), "{}", ended.stderr);
    ended
}

/// Builds a fixture program, once in a test program.
pub fn fixture(name: &str) -> PathBuf {
    static BUILT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if built.insert(name.to_owned()) {
        passed(xtask::fixture::build(name, directory, &[]));
    }
    directory.join(name)
}
