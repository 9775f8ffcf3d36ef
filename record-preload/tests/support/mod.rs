//! A klock for tests: answers the hellos of the processes that a command becomes, reads their rings while they run, and has
//! afterwards what each thread said. It checks what every reader relies on: known records, times that do not go back, stacks
//! that are there before they are named, LOST records that add up.

#![allow(dead_code, reason = "each test file uses a part of it")]

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
use trace_format::preload::SOCKET_VARIABLE;

/// Where to put what is built.
fn scratch() -> PathBuf {
    option_env!("CARGO_TARGET_TMPDIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// The library as it goes into programs, built once; or that of KLOCK_TEST_LIBRARY.
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

/// A C program of tests/programs, built with these flags.
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

/// How the region is made.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) bytes: u64,
    pub(crate) ring_bytes: u64,
    pub(crate) least_ring_bytes: u64,
    pub(crate) max_frames: u32,
    pub(crate) lossless: bool,
    /// Read rings while the program runs; otherwise only when it is over.
    pub(crate) drain: bool,
    /// Set active to 0 from the begin.
    pub(crate) inactive: bool,
    /// Keep so many events of a life, and count the rest.
    pub(crate) keep: usize,
    /// Only take away what is there, and count its bytes: the fastest reader.
    pub(crate) skim: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bytes: 256 << 20,
            ring_bytes: 4 << 20,
            least_ring_bytes: 4096,
            max_frames: 127,
            lossless: false,
            drain: true,
            inactive: false,
            keep: 200_000,
            skim: false,
        }
    }
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) time: u64,
    pub(crate) op: u8,
    pub(crate) api: u8,
    pub(crate) address: u64,
    pub(crate) first: u64,
    pub(crate) second: u64,
    /// The frames of its stack.
    pub(crate) stack: Option<Arc<Vec<u64>>>,
}

/// What one thread said in one life of a slot.
#[derive(Debug, Default)]
pub(crate) struct Life {
    pub(crate) slot: usize,
    pub(crate) life: u64,
    pub(crate) tid: u32,
    pub(crate) comm: String,
    pub(crate) events: Vec<Event>,
    pub(crate) counts: HashMap<(u8, u8, u64), u64>,
    /// Records, stacks and names aside; of a reader that skims, units.
    pub(crate) delivered: u64,
    pub(crate) lost: u64,
    pub(crate) said_lost: u64,
    pub(crate) ended: bool,
    pub(crate) ring_bytes: u64,
    pub(crate) names: Vec<String>,
    stacks: Vec<Arc<Vec<u64>>>,
    last_time: u64,
}

impl Life {
    /// How many records of this operation and kind it has.
    pub(crate) fn count(&self, op: u8, api: u8) -> u64 {
        self.counts.iter().filter(|((o, a, _), _)| (*o, *a) == (op, api)).map(|(_, count)| count).sum()
    }
}

/// What one process said.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) why: u32,
    pub(crate) lives: Vec<Life>,
    pub(crate) unplaced: u32,
    pub(crate) unplaced_events: u64,
}

impl Process {
    /// Over all its threads.
    pub(crate) fn count(&self, op: u8, api: u8) -> u64 {
        self.lives.iter().map(|life| life.count(op, api)).sum()
    }

    pub(crate) fn delivered(&self) -> u64 {
        self.lives.iter().map(|life| life.delivered).sum()
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lives.iter().map(|life| life.lost).sum()
    }

    /// All events, by time.
    pub(crate) fn events(&self) -> Vec<&Event> {
        let mut events: Vec<_> = self.lives.iter().flat_map(|life| &life.events).collect();
        events.sort_by_key(|event| event.time);
        events
    }
}

/// How a command ended, and what its processes said.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) processes: Vec<Process>,
}

impl Outcome {
    /// The number behind `NAME ` in a line of what the program printed.
    pub(crate) fn number(&self, name: &str) -> u64 {
        let line = self.stdout.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|rest| rest.trim().parse().ok())
            .unwrap_or_else(|| panic!("no {name} in {:?}, {:?}, {:?}", self.stdout, self.stderr, self.status))
    }

    /// Says that the program ended well.
    pub(crate) fn good(self) -> Self {
        assert!(self.status.success(), "{:?}: {} {}", self.status, self.stdout, self.stderr);
        self
    }
}

/// Runs a command with the library in it, for at most a minute, and reads everything that it says.
pub(crate) fn record(options: &Options, command: &mut Command) -> Outcome {
    let killed_after = None;
    run(options, command, killed_after)
}

/// The same, of a command that is killed at some time.
pub(crate) fn run(options: &Options, command: &mut Command, killed_after: Option<Duration>) -> Outcome {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("klock-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let listener = listen(&name);
    let over = Arc::new(AtomicBool::new(false));
    let regions: Arc<Mutex<Vec<Mapped>>> = Arc::default();
    let server = {
        let (over, regions, options) = (Arc::clone(&over), Arc::clone(&regions), options.clone());
        thread::spawn(move || serve(&listener, &over, &regions, &options))
    };
    command.env("LD_PRELOAD", library()).env(SOCKET_VARIABLE, &name).process_group(0);
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
    let begun = Instant::now();
    let limit = killed_after.unwrap_or(Duration::from_secs(60));
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            break status;
        }
        if begun.elapsed() > limit {
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
    server.join().expect("the rings hold what they should");
    let mut regions = mem::take(&mut *regions.lock().expect("nobody panicked with it"));
    let processes = regions.iter_mut().map(|mapped| finish(mapped, options)).collect();
    Outcome { status, stdout, stderr, processes }
}

/// The name of the function of a static executable address, by addr2line's means: the symbols that `nm` prints.
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
