//! Helpers of the live tests of this crate: the program of known calls, and a recording of it in this
//! process, so that a test can reach the maps of the kernel side.

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]
#![allow(clippy::print_stdout, reason = "cargo xtask test reads the reasons for skips")]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{OnceLock, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use record::{LockSources, Options, RecordError, SchedRows, Stop, Summary, Target};
use tempfile::TempDir;
use trace_format::{Event, EventKind, LockRow, Stack, TaskRow, Trace, run_info::Loss};

/// Lets the test program be a helper process of the recorder that it runs.
#[used]
#[unsafe(link_section = ".init_array")]
static RUN_HELPER: extern "C" fn() = {
    extern "C" fn run() {
        if let Some(code) = record::run_helper() {
            std::process::exit(code);
        }
    }
    run
};

/// Returns whether nothing can be recorded here, and then reports a skip with the reason.
pub fn skipped() -> bool {
    let Err(refusal) = record::check(&record::OutputOptions::default()).plan else { return false };
    println!("\nskipped: {refusal}");
    assert!(!std::env::var("CI").is_ok_and(|v| v == "true"), "skipped under CI=true: {refusal}");
    true
}

/// Bound on every wait, and on repeating what the world must do; generous, because the machine may be busy.
pub const LIMIT: Duration = Duration::from_secs(300);

/// Repeats an attempt until it returns something. `None` means that the world did not do its part; what klock
/// gets wrong must panic instead.
#[track_caller]
pub fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(result) = attempt() {
            return result;
        }
        assert!(begun.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
    }
}

/// Builds `fixtures/programs/known_calls.c`, once in a test program.
fn known_calls() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    BUILT.get_or_init(|| xtask::fixture::build("known_calls", directory, &[]).expect("gcc builds it"))
}

/// A run of `fixtures/programs/known_calls.c` that waits for its next round. Dropping it kills it.
pub struct Program {
    child: Child,
    lines: BufReader<ChildStdout>,
    /// Thread IDs, in the order of their CPUs.
    pub threads: Vec<u32>,
}

impl Program {
    pub fn start(what: &str, threads: u64, calls: u64) -> Self {
        let mut child = Command::new(known_calls())
            .args([what, &threads.to_string(), &calls.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut program = Self { child, lines, threads: Vec::new() };
        let mut threads: Vec<(u32, u32)> = Vec::new();
        loop {
            let line = program.line();
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["thread", tid, cpu] => threads.push((cpu.parse().unwrap(), tid.parse().unwrap())),
                _ => break,
            }
        }
        threads.sort_unstable();
        program.threads = threads.into_iter().map(|(_, tid)| tid).collect();
        program
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Makes its calls once.
    pub fn round(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        let line = self.line();
        assert!(line.starts_with("called "), "{line}");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail if it has ended, which is fine.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A recording of a program's futex calls, on a thread of this process.
pub struct Recording {
    directory: TempDir,
    stop: Stop,
    thread: JoinHandle<Result<Summary, RecordError>>,
}

impl Recording {
    /// Starts a recording, and returns when events are recorded.
    pub fn begin(program: &Program, ring_bytes: Option<usize>) -> Self {
        let futexes = Some(LockSources { futex: true, ..LockSources::NONE });
        Self::of(program, Options { locks: futexes, ring_bytes, ..Options::default() })
    }

    /// Starts a recording of its off-CPU time.
    pub fn begin_off_cpu(program: &Program) -> Self {
        Self::of(program, Options { sched: SchedRows::All, ..Options::default() })
    }

    fn of(program: &Program, options: Options) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = Options {
            output: directory.path().join("t.parquet"),
            target: Target::Processes(vec![program.pid()]),
            ..options
        };
        let stop = Stop::new();
        let asked = stop.clone();
        let (began, begun) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            record::record(&options, &asked, &mut |_| {
                began.send(()).ok();
            })
        });
        begun.recv_timeout(LIMIT).expect("it began to record; is this root?");
        Self { directory, stop, thread }
    }

    /// Ends it and reads its trace.
    pub fn end(self) -> Recorded {
        self.stop.request("test");
        let summary = self.thread.join().unwrap().unwrap();
        let has_names = !summary.warnings.iter().any(|warning| warning.contains("could not be examined"));
        let trace = Trace::open(&self.directory.path().join("t.parquet")).unwrap();
        let mut events = Vec::new();
        for batch in trace.events().unwrap() {
            events.extend(batch.unwrap().iter());
        }
        let (locks, tasks, stacks) =
            (trace.locks().unwrap(), trace.tasks().unwrap(), trace.stacks().unwrap());
        Recorded { trace, events, locks, tasks, stacks, has_names }
    }
}

/// The trace of a recording.
pub struct Recorded {
    trace: Trace,
    pub events: Vec<Event>,
    pub locks: Vec<LockRow>,
    pub tasks: Vec<TaskRow>,
    pub stacks: Vec<Stack>,
    /// Whether klock read the program's files in time. Otherwise, it says that names are missing.
    pub has_names: bool,
}

impl Recorded {
    pub fn loss(&self) -> &Loss {
        &self.trace.info().loss
    }

    pub fn rows(&self, kind: EventKind) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(move |event| event.kind == kind)
    }

    /// Returns the stack of an event, if it has frames of the program.
    pub fn user_stack(&self, event: &Event) -> Option<&Stack> {
        let stack = &self.stacks[usize::try_from(event.stack?.0).unwrap()];
        stack.frames.iter().any(|frame| !frame.kernel).then_some(stack)
    }

    /// Returns the task of an event.
    pub fn task(&self, event: &Event) -> &TaskRow {
        &self.tasks[usize::try_from(event.task.expect("it has a task").0).unwrap()]
    }

    /// Counts the rows of one thread.
    pub fn rows_of(&self, kind: EventKind, tid: u32) -> u64 {
        self.rows(kind).filter(|event| self.task(event).tid == tid.cast_signed()).count() as u64
    }

    /// Adds up the loss that the rows report.
    pub fn lost_in_rows(&self) -> u64 {
        self.rows(EventKind::Lost).map(|event| event.count.unwrap().cast_unsigned()).sum()
    }

    /// Returns the guard's counter of one program, on all CPUs.
    pub fn guard(&self, program: &str) -> u64 {
        self.loss().by_program.iter().filter(|row| row.program == program).map(|row| row.guard).sum()
    }
}

/// Returns the number that a stack spells: the program calls itself through bit_1 and bit_0, the highest bit
/// first.
pub fn spelt(stack: &Stack) -> Option<usize> {
    let bits = stack.frames.iter().rev().filter_map(|frame| match frame.symbol.as_deref() {
        Some("bit_0") => Some(0),
        Some("bit_1") => Some(1),
        _ => None,
    });
    let bits: Vec<usize> = bits.collect();
    (bits.len() == 15).then(|| bits.into_iter().fold(0, |number, bit| number << 1 | bit))
}
