//! What the outer tests share: running klock with a bound on its time, building the fixture programs, and saying why a test
//! can't run here.

#![allow(dead_code, unreachable_pub, reason = "each test program uses its own part of it")]
#![allow(clippy::print_stdout, reason = "a skip is told to the test command")]

use std::{
    collections::BTreeSet,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Mutex, OnceLock, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

pub mod conformance;
pub mod place;

/// The workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The built klock.
pub fn klock() -> Command {
    Command::new(env!("CARGO_BIN_EXE_klock"))
}

/// Says that the test can't run here. `cargo xtask test` reads the line and lists the reason.
pub fn skip(reason: &str) {
    println!("\nskipped: {reason}");
    assert!(!std::env::var("CI").is_ok_and(|v| v == "true"), "skipped under CI=true: {reason}");
}

/// CLOCK_MONOTONIC in nanoseconds, as a trace has it.
pub fn monotonic_ns() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is ours and lives through the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Kills a process; one that is gone already stays so.
pub fn kill(pid: i32) {
    // SAFETY: no memory is involved.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// A program that runs, with its output in files; killed when it is dropped.
#[derive(Debug)]
pub struct Running {
    pub child: Child,
    words: String,
    output: TempDir,
}

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Running {
    /// Starts it.
    pub fn start(command: &mut Command) -> Self {
        let output = tempfile::tempdir().expect("a temporary directory");
        let file = |name: &str| File::create(output.path().join(name)).expect("a temporary file");
        let child = command
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .spawn()
            .unwrap_or_else(|error| panic!("failed to start {command:?}: {error}"));
        Self { child, words: format!("{command:?}"), output }
    }

    /// Sends a signal: `INT`, `TERM`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(status.is_ok_and(|s| s.success()), "{} is gone", self.words);
    }

    /// Whether it ended by itself within this time.
    pub fn ends_within(&mut self, limit: Duration) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < limit {
            if self.child.try_wait().expect("the child is ours").is_some() {
                return true;
            }
            thread::sleep(Duration::from_millis(20));
        }
        false
    }

    /// Waits for its end.
    #[track_caller]
    pub fn end_within(mut self, limit: Duration) -> Ended {
        let in_time = self.ends_within(limit);
        let read = |name: &str| fs::read(self.output.path().join(name)).unwrap_or_default();
        let text = |name| String::from_utf8_lossy(&read(name)).into_owned();
        let (stdout, stderr) = (text("stdout"), text("stderr"));
        assert!(in_time, "{} did not end within {limit:?}\n{stdout}\n{stderr}", self.words);
        Ended { status: self.child.wait().expect("the child is ours"), stdout, stderr }
    }

    /// Waits until it printed a line that begins so, and returns the rest of the line.
    pub fn line_after(&self, begin: &str) -> String {
        let since = Instant::now();
        loop {
            let text = fs::read_to_string(self.output.path().join("stdout")).unwrap_or_default();
            let whole_lines = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
            if let Some(rest) = whole_lines.lines().find_map(|line| line.strip_prefix(begin)) {
                return rest.trim().to_owned();
            }
            assert!(since.elapsed() < Duration::from_secs(20), "{} never printed {begin:?}", self.words);
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until a recorder records: it holds attachments, and its main thread sleeps between two rounds.
    pub fn until_recording(&mut self) {
        let begin = Instant::now();
        while !is_recording(self.child.id()) {
            let ended = self.child.try_wait().expect("the child is ours");
            assert!(
                ended.is_none() && begin.elapsed() < Duration::from_secs(60),
                "{}: {ended:?}",
                self.words
            );
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail if it has ended, which is fine.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Attaching waits for the kernel in many ways, but never for a timer.
fn is_recording(pid: u32) -> bool {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
    let mut links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    let attached =
        links.any(|link| ["bpf", "perf_event"].iter().any(|word| link.to_string_lossy().contains(word)));
    attached
        && fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|place| place.contains("nanosleep"))
}

/// Runs it to its end, within a minute.
#[track_caller]
pub fn run(command: &mut Command) -> Ended {
    Running::start(command.stdin(Stdio::null())).end_within(Duration::from_secs(60))
}

/// Why nothing can be recorded here, in klock's own words; `None` if it can.
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

/// Builds a fixture program.
pub fn fixture(name: &str) -> PathBuf {
    static BUILT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if built.insert(name.to_owned()) {
        let source = root().join("fixtures/programs").join(format!("{name}.c"));
        let flags = ["-Wall", "-Wextra", "-Werror", "-g", "-O1", "-fno-omit-frame-pointer", "-pthread"];
        let status = Command::new("gcc").args(flags).arg(source).arg("-o").arg(&program).status();
        assert!(status.expect("gcc is installed").success(), "gcc could not build {name}");
    }
    program
}
