//! A recorder for tests: answers the requests of a command's processes, reads their chunks while they run,
//! and returns the records of each thread. Checks what every reader relies on: known records, monotonic
//! times, stacks written before their use, and LOST records that add up.

#![allow(dead_code, reason = "each test file uses a part of it")]

mod chunks;
mod server;

use std::{
    collections::HashMap,
    fs,
    io::Read,
    mem,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use server::{Mapped, finish, listen, serve};
use trace_format::preload::{SOCKET_VARIABLE, pool::Cursor};

/// Returns the directory for build results.
fn scratch() -> PathBuf {
    option_env!("CARGO_TARGET_TMPDIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// Builds the library once, as it is loaded into programs, or returns KLOCK_TEST_LIBRARY.
pub(crate) fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(library) = std::env::var_os("KLOCK_TEST_LIBRARY") {
            return library.into();
        }
        let target = scratch().join("preload");
        let output = Command::new(option_env!("CARGO").unwrap_or("cargo"))
            .args(["build", "--quiet", "-p", "record-preload", "--profile", "preload", "--target-dir"])
            .arg(&target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        target.join("preload/librecord_preload.so")
    })
}

/// Builds a C program of tests/programs with these flags.
pub(crate) fn program(name: &str, flags: &[&str]) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let output = scratch().join(format!("{name}-{}-{count}", std::process::id()));
    let built = Command::new("cc")
        .args(["-g", "-O1", "-fno-omit-frame-pointer", "-D_GNU_SOURCE", "-pthread"])
        .arg(&source)
        .args(flags)
        .arg("-o")
        .arg(&output)
        .output()
        .expect("a C compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    output
}

/// Options of the region and the reader.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) pool_bytes: u64,
    pub(crate) chunk_bytes: u64,
    pub(crate) max_frames: u32,
    pub(crate) lossless: bool,
    /// Calls that do not wait are recorded one in so many times.
    pub(crate) sample: Option<u32>,
    pub(crate) no_spin: bool,
    /// Read chunks while the program runs; otherwise only afterwards.
    pub(crate) drain: bool,
    /// Clear `active` from the start.
    pub(crate) inactive: bool,
    /// Seal the memory of the region, so that it cannot shrink.
    pub(crate) sealed: bool,
    /// Give the path of the socket to another user. Needs root.
    pub(crate) foreign: bool,
    /// Maximum number of events kept per session; the rest is only counted.
    pub(crate) max_events: usize,
    /// Copy records and count their units: the fastest reader.
    pub(crate) skim: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pool_bytes: 256 << 20,
            chunk_bytes: 16 << 10,
            max_frames: 127,
            lossless: false,
            sample: None,
            no_spin: false,
            drain: true,
            inactive: false,
            sealed: true,
            foreign: false,
            max_events: 200_000,
            skim: false,
        }
    }
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) time: u64,
    pub(crate) op: u8,
    pub(crate) api: u8,
    pub(crate) call: u8,
    pub(crate) address: u64,
    pub(crate) first: u64,
    pub(crate) second: u64,
    /// The frames of its stack.
    pub(crate) stack: Option<Arc<Vec<u64>>>,
}

/// The records of a thread in a session of a slot.
#[derive(Debug, Default)]
pub(crate) struct ThreadSession {
    pub(crate) slot: usize,
    pub(crate) number: u64,
    pub(crate) tid: u32,
    pub(crate) comm: String,
    pub(crate) events: Vec<Event>,
    /// The records of starts, joins and ends of threads.
    pub(crate) thread_events: Vec<Event>,
    pub(crate) counts: HashMap<(u8, u8, u64), u64>,
    /// Number of records of locks; with `skim`, of units.
    pub(crate) delivered: u64,
    pub(crate) lost: u64,
    pub(crate) reported_lost: u64,
    /// Those that a signal handler lost.
    pub(crate) nested: u64,
    pub(crate) reported_nested: u64,
    pub(crate) ended: bool,
    pub(crate) names: Vec<String>,
    cursor: Cursor,
    is_revoked: bool,
    stacks: Vec<Arc<Vec<u64>>>,
    last_time: u64,
}

impl ThreadSession {
    /// Counts the records of this operation and kind.
    pub(crate) fn count(&self, op: u8, api: u8) -> u64 {
        self.counts.iter().filter(|((o, a, _), _)| (*o, *a) == (op, api)).map(|(_, count)| count).sum()
    }
}

/// The records of a process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) reason: u32,
    pub(crate) sessions: Vec<ThreadSession>,
    pub(crate) programs: u32,
    pub(crate) unrecorded_events: u64,
}

impl Process {
    /// Counts the records of all threads.
    pub(crate) fn count(&self, op: u8, api: u8) -> u64 {
        self.sessions.iter().map(|session| session.count(op, api)).sum()
    }

    pub(crate) fn delivered(&self) -> u64 {
        self.sessions.iter().map(|session| session.delivered).sum()
    }

    /// Counts the records of starts, joins and ends of threads.
    pub(crate) fn thread_records(&self) -> u64 {
        let counts = self.sessions.iter().flat_map(|session| &session.counts);
        counts
            .filter(|((_, api, _), _)| *api == trace_format::preload::api::THREAD)
            .map(|(_, count)| count)
            .sum()
    }

    pub(crate) fn lost(&self) -> u64 {
        self.sessions.iter().map(|session| session.lost).sum()
    }

    /// Counts the records that signal handlers lost.
    pub(crate) fn nested(&self) -> u64 {
        self.sessions.iter().map(|session| session.nested).sum()
    }

    /// Returns all events, by time.
    pub(crate) fn events(&self) -> Vec<&Event> {
        let mut events: Vec<_> = self.sessions.iter().flat_map(|session| &session.events).collect();
        events.sort_by_key(|event| event.time);
        events
    }
}

/// The result of a command, and the records of its processes.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) processes: Vec<Process>,
}

impl Outcome {
    /// Returns the number after `NAME ` in a line of the program's output.
    pub(crate) fn number(&self, name: &str) -> u64 {
        let line = self.stdout.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|rest| rest.trim().parse().ok())
            .unwrap_or_else(|| panic!("no {name} in {:?}, {:?}, {:?}", self.stdout, self.stderr, self.status))
    }

    /// Asserts that the program succeeded.
    pub(crate) fn successful(self) -> Self {
        assert!(self.status.success(), "{:?}: {} {}", self.status, self.stdout, self.stderr);
        self
    }
}

/// Bound on what a test waits for; ends only what hangs.
const HANGS: Duration = Duration::from_secs(300);

/// Repeats an attempt until it returns something. `None` means that the machine did not do its part; what the
/// library does wrong must panic instead.
pub(crate) fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(result) = attempt() {
            return result;
        }
        assert!(begun.elapsed() < HANGS, "not within {HANGS:?}: {what}");
    }
}

/// Runs a command with the library to its end, and returns its records.
pub(crate) fn record(options: &Options, command: &mut Command) -> Outcome {
    let killed_after = None;
    run(options, command, killed_after)
}

/// As [`record`], but kills the command after a time.
pub(crate) fn run(options: &Options, command: &mut Command, killed_after: Option<Duration>) -> Outcome {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("/tmp/klock-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let listener = listen(&name);
    if options.foreign {
        std::os::unix::fs::chown(&name, Some(65534), None).expect("root gives files away");
    }
    let over = Arc::new(AtomicBool::new(false));
    let regions: Arc<Mutex<Vec<Mapped>>> = Arc::default();
    let server = {
        let (over, regions, options) = (Arc::clone(&over), Arc::clone(&regions), options.clone());
        thread::spawn(move || serve(&listener, &over, &regions, &options))
    };
    let socket = format!("{name}:{:032x}", 0x5ec2e7);
    command.env("LD_PRELOAD", library()).env(SOCKET_VARIABLE, socket).process_group(0);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let group = -(child.id() as i32);
    let mut pipes = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let read = thread::spawn(move || {
        let mut text = String::new();
        pipes.0.read_to_string(&mut text).ok();
        text
    });
    let read_errors = thread::spawn(move || {
        let mut text = String::new();
        pipes.1.read_to_string(&mut text).ok();
        text
    });
    let started = Instant::now();
    let limit = killed_after.unwrap_or(HANGS);
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            break status;
        }
        if started.elapsed() > limit {
            // SAFETY: the group of a process that this test started.
            unsafe { libc::kill(group, libc::SIGKILL) };
            break child.wait().expect("a child of ours");
        }
        thread::sleep(Duration::from_micros(500));
    };
    let timed_out = killed_after.is_none() && status.signal() == Some(libc::SIGKILL);
    let (stdout, stderr) = (read.join().expect("it reads"), read_errors.join().expect("it reads"));
    assert!(!timed_out, "{command:?} did not end: {stdout} {stderr}");
    over.store(true, Ordering::Release);
    server.join().expect("valid records");
    fs::remove_file(&name).expect("the socket's name is ours");
    let mut regions = mem::take(&mut *regions.lock().expect("not poisoned"));
    let processes = regions.iter_mut().map(|mapped| finish(mapped, options)).collect();
    Outcome { status, stdout, stderr, processes }
}

/// Returns the function at an address of a static executable, from the symbols that `nm` prints.
pub(crate) fn function_of(program: &Path, offset: u64) -> String {
    let output = Command::new("nm").arg("-n").arg(program).output().expect("nm runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let symbols = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        let kind = words.next()?;
        kind.eq_ignore_ascii_case("t").then(|| (address, words.next().unwrap_or("").to_owned()))
    });
    symbols.take_while(|(address, _)| *address <= offset).last().map(|(_, name)| name).unwrap_or_default()
}

/// Whether the machine has a file.
pub(crate) fn exists(path: &str) -> bool {
    fs::metadata(path).is_ok()
}
