//! Attacks on a recording that root makes of an honest program with known counts, through the socket and the shared memory. The
//! attackers run as another user, most of them with the recording's secret. Each time the honest counts are exact, klock stays small
//! and ends when its command ends.
//!
//! `KLOCK_SOAK_SECONDS` is the length of the test that runs all attacks at once (20).
//!
//! needs: gcc, root

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "the figures are worth reading")]

use std::{
    collections::BTreeMap,
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use trace_format::{EventKind, LockKind, Trace};

mod support;

use support::{
    Running,
    arena::{Arena, HostileFuse},
    fixture, set_mode,
};

/// A user that does not exist.
const ATTACKER: u32 = 64201;
/// Maximum resident memory of klock under attack.
const MAX_RSS_KB: u64 = 500 << 10;
/// The time within which klock must end after its command.
const END_LIMIT: Duration = Duration::from_secs(120);

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
struct Recording {
    folder: TempDir,
    klock: Running,
    /// The first process of the command.
    pid: u32,
    /// The value of `KLOCK_PRELOAD`.
    variable: String,
    /// The path of the library.
    library: String,
}

fn is_root() -> bool {
    // SAFETY: the call has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

impl Recording {
    /// Starts to record. The honest program waits until [`go`](Self::go).
    fn start(rounds: u32, pairs: u32, pause: f32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        set_mode(folder.path(), 0o755);
        for program in ["known_pairs", "join"] {
            fs::copy(fixture(program), folder.path().join(program)).unwrap();
        }
        let script = folder.path().join("honest.sh");
        fs::write(&script, SCRIPT).unwrap();
        set_mode(&script, 0o755);
        let mut command = support::klock();
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

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts an attacker, and waits until it attacks.
    fn attack(&self, how: &str, variable: &str, number: u32) -> Attacker {
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
    fn map(&self, arena: &Arena, files: &[&str]) -> Attacker {
        let mut command = Command::new(arena.path("hostile_files"));
        command.args(files).env("LD_PRELOAD", &self.library).env("KLOCK_PRELOAD", &self.variable);
        Attacker(arena.start(command.process_group(0)).0)
    }

    /// Lets the honest program run to its end, and returns what it printed.
    fn go(&self) {
        fs::write(self.path("go"), "").unwrap();
        self.klock.line_after("honest done");
    }

    /// Returns the most memory that klock had so far, in kB; 0 if it has ended.
    fn peak_kb(&self) -> u64 {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.klock.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        line.map_or(0, |line| line.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap())
    }

    /// Waits until klock ends. Returns the time that it takes, and the most memory that it had, in kB.
    #[track_caller]
    fn wait_for_end(&mut self) -> (Duration, u64) {
        let (begun, mut peak_kb) = (Instant::now(), self.peak_kb());
        while !self.klock.ends_within(Duration::from_millis(50)) {
            assert!(begun.elapsed() < END_LIMIT, "klock does not end");
            peak_kb = peak_kb.max(self.peak_kb());
        }
        assert!(peak_kb < MAX_RSS_KB, "klock took {} MB", peak_kb >> 10);
        (begun.elapsed(), peak_kb)
    }

    /// The number of descriptors that klock has open.
    fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.klock.child.id())).unwrap().count()
    }

    /// Ends the command, and checks the trace. Returns it with the limits that it lists.
    #[track_caller]
    fn end(mut self) -> Attacked {
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
struct Attacked {
    folder: TempDir,
    limits: Vec<String>,
    peak_kb: u64,
    ended_after: Duration,
}

impl Attacked {
    #[track_caller]
    fn assert_limit(&self, words: &str) {
        assert!(
            self.limits.iter().any(|limit| limit.contains(words)),
            "'{words}' is not in {:#?}",
            self.limits
        );
    }
}

/// A program that attacks until it is dropped.
struct Attacker(Running);

impl Attacker {
    /// The number of regions that klock gave it so far.
    fn regions(&self) -> u64 {
        let lines = self.0.printed("stdout");
        lines
            .lines()
            .filter_map(|line| line.strip_prefix("regions "))
            .next_back()
            .map_or(0, |n| n.parse().unwrap())
    }

    fn pid(&self) -> i32 {
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
type Counts = BTreeMap<i32, u64>;

/// Returns the counts that the honest programs printed.
fn printed_counts(stdout: &str) -> Counts {
    let mut expected = Counts::new();
    for line in stdout.lines().filter_map(|line| line.strip_prefix("COUNT ")) {
        let (pid, count) = line.split_once(' ').unwrap();
        *expected.entry(pid.parse().unwrap()).or_default() += count.parse::<u64>().unwrap();
    }
    assert!(!expected.is_empty(), "the honest program printed nothing");
    expected
}

/// Counts the acquisitions and releases of the processes in `expected`, and checks that all rows are in the order of time.
#[track_caller]
fn recorded_counts(trace: &Trace, expected: &Counts) -> [Counts; 2] {
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
fn assert_exact(trace: &Path, stdout: &str) {
    let expected = printed_counts(stdout);
    let trace = Trace::open(trace).unwrap();
    assert!(trace.info().complete);
    let [acquired, released] = recorded_counts(&trace, &expected);
    assert_eq!(acquired, expected, "acquisitions of the honest program");
    assert_eq!(released, expected, "releases of the honest program");
}

/// Records the honest program while two attackers attack. `is_member` means that they know the secret.
#[track_caller]
fn under_attack(how: &str, number: u32, is_member: bool) -> (Attacked, u64) {
    let recording = Recording::start(3, 3000, 0.0);
    let name = recording.variable.split(':').next().unwrap();
    let stranger = format!("{name}:{}", "0".repeat(32));
    let variable = if is_member { &recording.variable } else { &stranger };
    let attackers = [(); 2].map(|()| recording.attack(how, variable, number));
    thread::sleep(Duration::from_millis(1500));
    recording.go();
    // The attackers report once a second.
    thread::sleep(Duration::from_millis(1500));
    let regions = attackers.iter().map(Attacker::regions).sum();
    let descriptors = recording.descriptors();
    assert!(descriptors < 3000, "{descriptors} descriptors");
    let attacked = recording.end();
    println!(
        "{how}: {} MB, ended after {:?}, {regions} regions",
        attacked.peak_kb >> 10,
        attacked.ended_after
    );
    (attacked, regions)
}

macro_rules! attacks {
    ($($(#[$doc:meta])* $name:ident($how:literal, $number:expr, $is_member:expr) $check:expr;)*) => {$(
        $(#[$doc])*
        #[test]
        #[ignore = "needs root; run by cargo xtask test"]
        fn $name() {
            if !is_root() {
                return support::skip("needs root");
            }
            let (attacked, regions) = under_attack($how, $number, $is_member);
            let check: fn(&Attacked, u64) = $check;
            check(&attacked, regions);
        }
    )*};
}

fn no_region(attacked: &Attacked, regions: u64) {
    assert_eq!(regions, 0, "klock gave a region to a stranger");
    assert!(!attacked.limits.iter().any(|limit| limit.contains("(join)")), "{:#?}", attacked.limits);
}

attacks! {
    a_process_without_the_secret_gets_no_region("wrong-secret", 0, false) |attacked, regions| {
        no_region(attacked, regions);
        attacked.assert_limit("requests without the recording's secret were refused");
    };
    thirty_idle_connections_do_not_delay_a_program("idle", 30, false) no_region;
    thousands_of_idle_connections_do_not_delay_a_program("idle", 3000, false) no_region;
    a_flood_of_connections_does_not_delay_a_program("flood", 0, false) no_region;
    parts_of_messages_and_long_messages_are_refused("half", 0, true) no_region;
    descriptors_that_come_with_a_request_are_closed("descriptors", 0, false) no_region;
    slots_with_the_same_chunk_end_the_recording_of_the_attacker("same-chunk", 0, true) |attacked, _| {
        attacked.assert_limit("(join): recording ended: an invalid chunk");
    };
    chunks_that_link_to_each_other_end_the_recording_of_the_attacker("circle", 0, true) |attacked, _| {
        attacked.assert_limit("(join): recording ended: ");
    };
    queues_full_of_anything_end_the_recording_of_the_attacker("queues", 0, true) |attacked, _| {
        attacked.assert_limit("(join): recording ended: ");
    };
    endless_stacks_end_the_recording_of_the_attacker("stacks", 0, true) |attacked, _| {
        attacked.assert_limit("(join): recording ended: more than");
    };
    endless_thread_sessions_end_the_recording_of_the_attacker("sessions", 0, true) |attacked, _| {
        attacked.assert_limit("(join): recording ended: more than");
    };
    endless_locks_end_the_recording_of_the_attacker("locks", 0, true) |attacked, _| {
        attacked.assert_limit("(join): recording ended: more than");
    };
    invalid_records_end_the_recording_of_the_attacker("garbage", 0, true) |attacked, _| {
        attacked.assert_limit("(join): recording ended: more than 1024 invalid records");
    };
    lengths_and_offsets_out_of_range_end_the_recording_of_the_attacker("lengths", 0, true) |attacked, _| {
        attacked.assert_limit("(join): recording ended: ");
    };
    endless_names_change_no_other_process("names", 0, true) |_, _| {};
    endless_losses_do_not_stop_klock("losses", 0, true) |_, _| {};
    a_file_cannot_be_truncated_and_holes_in_it_are_harmless("truncate", 0, true) |_, _| {};
    old_times_neither_hold_others_back_nor_break_the_order("old-times", 0, true) |_, _| {};
    records_without_end_leave_room_for_others("endless", 0, true) |_, _| {};
    thousands_of_busy_slots_do_not_stop_klock("slots", 0, true) |_, _| {};
    processes_that_join_and_exit_at_once_do_not_stop_klock("forks", 0, true) |_, _| {};
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn invented_events_on_a_victims_thread_are_booked_on_the_attacker() {
    if !is_root() {
        return support::skip("needs root");
    }
    let recording = Recording::start(2, 3000, 0.0);
    let (victim, variable) = (recording.pid, recording.variable.clone());
    let attacker = recording.attack("foreign", &variable, victim);
    thread::sleep(Duration::from_secs(2));
    recording.go();
    let pid = attacker.pid();
    let attacked = recording.end();
    attacked.assert_limit("1 threads claimed the id of another process's thread");
    let trace = Trace::open(&attacked.folder.path().join("t.parquet")).unwrap();
    let (locks, tasks) = (trace.locks().unwrap(), trace.tasks().unwrap());
    let mut invented = 0;
    for batch in trace.events().unwrap() {
        for event in batch.unwrap().iter() {
            let task = event.task.map(|task| &tasks[task.0 as usize]);
            let lock = event.lock.map(|lock| &locks[lock.0 as usize]);
            if lock.is_some_and(|lock| lock.address == Some(0x4000)) {
                assert_eq!(task.map(|task| (task.pid, task.tid)), Some((pid, pid)));
                invented += 1;
            }
            assert!(task.is_none_or(|task| task.pid != victim.cast_signed() || task.tid == task.pid));
        }
    }
    assert_eq!(invented, 20_000);
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn old_times_without_end_do_not_keep_honest_records_out_of_the_trace() {
    if !is_root() {
        return support::skip("needs root");
    }
    let recording = Recording::start(1, 3000, 0.0);
    let _attackers = [(); 2].map(|()| recording.attack("endless", &recording.variable, 0));
    thread::sleep(Duration::from_millis(500));
    recording.go();
    let expected = printed_counts(&recording.klock.printed("stdout"));
    // A copy of the unfinished trace contains everything up to the last checkpoint.
    support::soon(END_LIMIT, "the honest records are in the trace while the attack goes on", || {
        let copies = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(recording.folder.path()).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap();
            if name.to_string_lossy().contains(".parquet") {
                fs::copy(&path, copies.path().join(name)).unwrap();
            }
        }
        let copy = copies.path().join("t.parquet");
        let recovered = support::klock().arg("recover").arg(&copy).output().unwrap();
        recovered.status.success()
            && recorded_counts(&Trace::open(&copy).unwrap(), &expected)
                .iter()
                .all(|counts| *counts == expected)
    });
    recording.end();
}

#[test]
#[ignore = "needs root, takes KLOCK_SOAK_SECONDS; run by cargo xtask test"]
fn all_attacks_at_once_leave_klock_small_and_the_honest_counts_exact() {
    if !is_root() {
        return support::skip("needs root");
    }
    let seconds: u64 = std::env::var("KLOCK_SOAK_SECONDS").map_or(20, |text| text.parse().unwrap());
    let mut recording = Recording::start(u32::MAX >> 1, 2000, 0.1);
    let name = recording.variable.split(':').next().unwrap();
    let stranger = format!("{name}:{}", "0".repeat(32));
    let strangers = [("wrong-secret", 0), ("idle", 3000), ("flood", 0), ("half", 0), ("descriptors", 0)];
    let members = [
        "same-chunk",
        "circle",
        "queues",
        "stacks",
        "sessions",
        "locks",
        "garbage",
        "lengths",
        "names",
        "losses",
        "truncate",
        "old-times",
        "endless",
        "slots",
        "forks",
    ];
    let mut attackers: Vec<Attacker> =
        strangers.iter().map(|(how, number)| recording.attack(how, &stranger, *number)).collect();
    attackers.extend(members.iter().map(|how| recording.attack(how, &recording.variable, 0)));
    let arena = Arena::new();
    let traps = arena.write_traps();
    let mut fuse = HostileFuse::mount(&arena);
    attackers.push(recording.map(&arena, &traps));
    attackers.extend(fuse.iter_mut().map(|fuse| {
        let mapping = recording.map(&arena, &["mounted/file"]);
        fuse.hang();
        mapping
    }));
    arena.spring_traps();
    let probe = recording.attack("probe", &recording.variable, 0);
    fs::write(recording.path("go"), "").unwrap();
    let (begun, mut peak_kb) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(seconds) {
        peak_kb = recording.peak_kb();
        assert!(peak_kb < MAX_RSS_KB, "klock took {} MB after {:?}", peak_kb >> 10, begun.elapsed());
        thread::sleep(Duration::from_secs(1));
    }
    fs::write(recording.path("enough"), "").unwrap();
    recording.klock.line_after("honest done");
    let descriptors = recording.descriptors();
    let probed = probe.0.printed("stdout");
    let slowest =
        probed.lines().filter_map(|line| line.strip_prefix("slowest ")).next_back().unwrap_or("?").to_owned();
    // As the terminal does: to klock and to the command.
    // SAFETY: the call involves no memory.
    unsafe { libc::kill(-recording.klock.child.id().cast_signed(), libc::SIGINT) };
    let (ended_after, last_kb) = recording.wait_for_end();
    let ended = recording.klock.end_within(END_LIMIT);
    let trace = recording.folder.path().join("t.parquet");
    let rounds = ended.stdout.lines().filter(|line| line.starts_with("COUNT ")).count();
    println!(
        "{seconds} s: {} MB at most, {descriptors} descriptors, slowest answer to a new program {slowest} ms, ended {ended_after:?} \
         after Ctrl-C, {rounds} honest programs",
        peak_kb.max(last_kb) >> 10,
    );
    for limit in Trace::open(&trace).unwrap().info().sources.iter().flat_map(|source| &source.limits) {
        println!("  {limit}");
    }
    assert_exact(&trace, &ended.stdout);
    assert!(descriptors < 5000);
}
