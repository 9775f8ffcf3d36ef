//! A recording of an honest program by root, and attackers that join it: the trace with exact counts leaves,
//! the limits that it lists, and the memory and time that klock took.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;
use trace_format::{EventKind, LockKind, Trace};

use crate::support::{ATTACKER, Running, arena::Arena, fixture, klock, set_mode};

/// Maximum resident memory of klock under attack.
pub(crate) const MAX_RSS_KB: u64 = 500 << 10;
/// Bound on the end of klock after its command, and on other steps: it ends hangs only.
pub(crate) const END_LIMIT: Duration = Duration::from_secs(300);

/// The honest command: waits, runs a program with known counts some times, and waits again.
const SCRIPT: &str = "#!/bin/sh
echo \"running $$\"
while [ ! -e go ]; do sleep 0.05; done
i=0
while [ $i -lt ${ROUNDS} ] && [ ! -e enough ]; do ./known_pairs 2 ${PAIRS} || exit 1; sleep ${PAUSE}; i=$((i+1)); done
echo honest done
while [ ! -e end ]; do sleep 0.05; done
";

/// A recording by root, which has not ended.
pub(crate) struct Recording {
    pub(crate) folder: TempDir,
    pub(crate) klock: Running,
    /// The first process of the command.
    pub(crate) pid: u32,
    /// The value of `KLOCK_PRELOAD`.
    pub(crate) variable: String,
    /// The path of the library.
    library: String,
}

impl Recording {
    /// Starts to record. The honest program waits until [`go`](Self::go).
    pub(crate) fn start(rounds: u32, pairs: u32, pause: f32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        set_mode(folder.path(), 0o755);
        for program in ["known_pairs", "join"] {
            fs::copy(fixture(program), folder.path().join(program)).unwrap();
        }
        let script = folder.path().join("honest.sh");
        fs::write(&script, SCRIPT).unwrap();
        set_mode(&script, 0o755);
        let mut command = klock();
        command.args(["record", "-q", "-f", "--locks", "pthread", "-o"]).arg(folder.path().join("t.parquet"));
        command.arg("--").arg(&script).current_dir(folder.path()).stdin(Stdio::null()).process_group(0);
        command
            .env("ROUNDS", rounds.to_string())
            .env("PAIRS", pairs.to_string())
            .env("PAUSE", pause.to_string());
        let klock = Running::start(&mut command);
        let pid: u32 = klock.line_after("running ").parse().unwrap();
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
        let value_of = |name: &[u8]| {
            let value = environment.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(name));
            String::from_utf8(value.unwrap().to_owned()).unwrap()
        };
        let (variable, library) = (value_of(b"KLOCK_PRELOAD="), value_of(b"LD_PRELOAD="));
        Self { folder, klock, pid, variable, library }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts an attacker, and waits until it attacks.
    pub(crate) fn attack(&self, how: &str, variable: &str, number: u32) -> Attacker {
        let mut command = Command::new(self.path("join"));
        command.args([how, variable, &number.to_string()]).stdin(Stdio::null()).current_dir("/");
        if how != "probe" {
            command.uid(ATTACKER).gid(ATTACKER);
        }
        let running = Running::start(command.process_group(0));
        running.line_after("attacking ");
        Attacker(running)
    }

    /// Starts a program of the attacker that maps hostile files, and records itself with klock's library.
    pub(crate) fn map(&self, arena: &Arena, files: &[&str]) -> Attacker {
        let mut command = Command::new(arena.path("hostile_files"));
        command.args(files).env("LD_PRELOAD", &self.library).env("KLOCK_PRELOAD", &self.variable);
        Attacker(arena.start(command.process_group(0)).0)
    }

    /// Lets the honest program run to its end, and returns what it printed.
    pub(crate) fn go(&self) {
        fs::write(self.path("go"), "").unwrap();
        self.klock.line_after("honest done");
    }

    /// Returns the most memory that klock had so far, in kB; 0 if it has ended.
    pub(crate) fn peak_kb(&self) -> u64 {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.klock.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        line.map_or(0, |line| line.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap())
    }

    /// Waits until klock ends. Returns the time that it takes, and the most memory that it had, in kB.
    #[track_caller]
    pub(crate) fn wait_for_end(&mut self) -> (Duration, u64) {
        let (begun, mut peak_kb) = (Instant::now(), self.peak_kb());
        while !self.klock.ends_within(Duration::from_millis(50)) {
            assert!(begun.elapsed() < END_LIMIT, "klock does not end");
            peak_kb = peak_kb.max(self.peak_kb());
        }
        assert!(peak_kb < MAX_RSS_KB, "klock took {} MB", peak_kb >> 10);
        (begun.elapsed(), peak_kb)
    }

    /// The number of descriptors that klock has open.
    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.klock.child.id())).unwrap().count()
    }

    /// Ends the command, and checks the trace. Returns it with the limits that it lists.
    #[track_caller]
    pub(crate) fn end(mut self) -> Attacked {
        fs::write(self.path("end"), "").unwrap();
        let (ended_after, peak_kb) = self.wait_for_end();
        let ended = self.klock.end_within(END_LIMIT);
        assert!(ended.status.success(), "{}", ended.stderr);
        let trace = self.folder.path().join("t.parquet");
        assert_exact(&trace, &ended.stdout);
        let limits =
            Trace::open(&trace).unwrap().info().sources.iter().flat_map(|s| s.limits.clone()).collect();
        Attacked { folder: self.folder, limits, peak_kb, ended_after }
    }
}

/// A recording that has ended.
pub(crate) struct Attacked {
    pub(crate) folder: TempDir,
    pub(crate) limits: Vec<String>,
    pub(crate) peak_kb: u64,
    pub(crate) ended_after: Duration,
}

impl Attacked {
    #[track_caller]
    pub(crate) fn assert_limit(&self, words: &str) {
        assert!(
            self.limits.iter().any(|limit| limit.contains(words)),
            "'{words}' is not in {:#?}",
            self.limits
        );
    }
}

/// A program that attacks until it is dropped.
pub(crate) struct Attacker(pub(crate) Running);

impl Attacker {
    /// The number of regions that klock gave it so far.
    pub(crate) fn regions(&self) -> u64 {
        let lines = self.0.printed("stdout");
        lines
            .lines()
            .filter_map(|line| line.strip_prefix("regions "))
            .next_back()
            .map_or(0, |n| n.parse().unwrap())
    }

    pub(crate) fn pid(&self) -> i32 {
        self.0.child.id().cast_signed()
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        // The children of this attacker are in its group.
        // SAFETY: the call involves no memory.
        unsafe { libc::kill(-self.pid(), libc::SIGKILL) };
    }
}

/// The number of acquisitions or of releases, by process.
pub(crate) type Counts = BTreeMap<i32, u64>;

/// Returns the counts that the honest programs printed.
pub(crate) fn printed_counts(stdout: &str) -> Counts {
    let mut expected = Counts::new();
    for line in stdout.lines().filter_map(|line| line.strip_prefix("COUNT ")) {
        let (pid, count) = line.split_once(' ').unwrap();
        *expected.entry(pid.parse().unwrap()).or_default() += count.parse::<u64>().unwrap();
    }
    assert!(!expected.is_empty(), "the honest program printed nothing");
    expected
}

/// Counts the acquisitions and releases of the processes in `expected`, and checks that all rows are in the
/// order of time.
#[track_caller]
pub(crate) fn recorded_counts(trace: &Trace, expected: &Counts) -> [Counts; 2] {
    let locks = trace.locks().unwrap();
    let (mut acquired, mut released, mut last_ns) = (Counts::new(), Counts::new(), i64::MIN);
    for batch in trace.events().unwrap() {
        for event in batch.unwrap().iter() {
            assert!(event.ts_ns >= last_ns, "rows are in the order of time");
            last_ns = event.ts_ns;
            let Some(lock) = event.lock.map(|lock| &locks[lock.0 as usize]) else { continue };
            let Some(pid) = lock.pid.filter(|pid| expected.contains_key(pid)) else { continue };
            let counts = match event.kind {
                EventKind::Acquire if lock.kind == LockKind::PthreadMutex => &mut acquired,
                EventKind::Release => &mut released,
                _ => continue,
            };
            *counts.entry(pid).or_default() += 1;
        }
    }
    [acquired, released]
}

/// Checks that each process that printed its count has exactly these acquisitions and releases.
#[track_caller]
pub(crate) fn assert_exact(trace: &Path, stdout: &str) {
    let expected = printed_counts(stdout);
    let trace = Trace::open(trace).unwrap();
    assert!(trace.info().complete);
    let [acquired, released] = recorded_counts(&trace, &expected);
    assert_eq!(acquired, expected, "acquisitions of the honest program");
    assert_eq!(released, expected, "releases of the honest program");
}
