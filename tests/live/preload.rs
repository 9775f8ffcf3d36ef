//! Records programs with the in-process recorder, as an ordinary user if the tests run as root. The trace has
//! exactly what the program counts, or reports what is missing, and nothing is left behind however the
//! program ends.
//!
//! needs: gcc

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, process::Command, time::Duration};

use trace_format::{EventKind, LockKind, LockRow, Stack, Trace};

use crate::support::{
    self, Ended, Running,
    conformance::{Expected, assert_conforms},
    fixture, kill,
    place::{Place, Recorded},
    soon, until,
};

/// Bound on every wait, which ends what hangs: on a busy machine, klock may compose records for minutes.
const LIMIT: Duration = Duration::from_secs(900);

/// The program's own mutexes: the variable, and those that `init_own` initialised.
fn is_ours(recorded: &Recorded, lock: &LockRow) -> bool {
    let init = lock.init_stack.map(|stack| &recorded.stacks[usize::try_from(stack.0).unwrap()]);
    let named = |stack: &Stack| stack.frames.iter().any(|f| f.symbol.as_deref() == Some("init_own"));
    lock.kind == LockKind::PthreadMutex && (lock.name.as_deref() == Some("shared") || init.is_some_and(named))
}

/// Events of this kind on the program's own mutexes, by process.
fn counts(recorded: &Recorded, kind: EventKind) -> BTreeMap<i32, u64> {
    let mut counts = BTreeMap::new();
    for event in recorded.events.iter().filter(|event| event.kind == kind) {
        if let Some(lock) = recorded.lock(event).filter(|lock| is_ours(recorded, lock)) {
            *counts.entry(lock.pid.expect("a process's lock")).or_default() += 1;
        }
    }
    counts
}

/// Reads the counts that the processes print.
fn printed(stdout: &str) -> BTreeMap<i32, u64> {
    let mut counts = BTreeMap::new();
    for line in stdout.lines().filter_map(|line| line.strip_prefix("COUNT ")) {
        let (pid, count) = line.split_once(' ').unwrap();
        *counts.entry(pid.parse().unwrap()).or_default() += count.parse::<u64>().unwrap();
    }
    assert!(!counts.is_empty(), "the program said nothing");
    counts
}

#[track_caller]
fn assert_exact(recorded: &Recorded, stdout: &str) {
    assert_eq!(recorded.trace.info().loss.events(), 0, "{:?}", recorded.trace.info().loss);
    assert_eq!(counts(recorded, EventKind::Acquire), printed(stdout));
    assert_eq!(counts(recorded, EventKind::Release), printed(stdout));
    assert!(recorded.events.is_sorted_by_key(|event| event.ts_ns), "rows are in the order of time");
}

/// Records `known_pairs`. No record of it may be missing: pools of the default size hold more than it
/// records, and threads wait if they are asked to. A thread that is stopped for seconds while it writes a row
/// makes that row late; then it records again.
fn exact(place: &Place, options: &[&str], arguments: &[&str]) -> (Recorded, Ended) {
    until("a recording without late rows", || {
        let (recorded, ended) = place.run_fixture(options, "known_pairs", arguments);
        if recorded.trace.info().loss.late > 0 {
            return None;
        }
        assert_exact(&recorded, &ended.stdout);
        Some((recorded, ended))
    })
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn with_sample_each_wait_is_recorded_and_one_in_n_of_the_other_acquisitions_and_the_trace_says_so() {
    const EVERY: u64 = 8;
    let options = ["--locks", "pthread", "--sample", "8"];
    let (recorded, ended) = Place::new().run_fixture(&options, "known_pairs", &["3", "20000"]);
    assert!(ended.status.success(), "{}", ended.stderr);
    assert_eq!(recorded.trace.info().loss.events(), 0, "{:?}", recorded.trace.info().loss);
    let sum = |kind| counts(&recorded, kind).into_values().sum::<u64>();
    let (acquired, waits) = (sum(EventKind::Acquire), sum(EventKind::Wait));
    assert_eq!(sum(EventKind::Release), acquired);
    let free = printed(&ended.stdout).into_values().sum::<u64>() - waits;
    // Seven standard deviations.
    let (drawn, mean) = ((acquired - waits) as f64, (free / EVERY) as f64);
    assert!((drawn - mean).abs() <= 7.0 * mean.sqrt(), "{drawn} of {free}, {waits} waits");
    let source = recorded.trace.info().source_of(LockKind::PthreadMutex).unwrap();
    assert!(
        source
            .limits
            .iter()
            .any(|limit| limit.contains("without a wait on mutexes, rwlocks and spinlocks one in 8"))
    );
}

#[test]
#[ignore = "full: takes long, and a recorder that gets too little processor time loses records"]
fn ten_million_acquisitions_fit_through_pools_of_the_default_size() {
    until("a recording of ten million acquisitions without loss", || records_ten_million().then_some(()));
}

/// Records ten million acquisitions and checks that each is recorded or lost. Returns whether none was lost.
fn records_ten_million() -> bool {
    let place = Place::new();
    let program = place.program("known_pairs");
    let mut command = place.record(&[], &program, &["2", "4545454"]);
    let ended = Running::start(&mut command).end_within(Duration::from_secs(300));
    assert!(ended.status.success(), "{}", ended.stderr);
    let trace = Trace::open(&place.path("t.parquet")).unwrap();
    let lost = trace.info().loss.events();
    let locks = trace.locks().unwrap();
    let expected: u64 = printed(&ended.stdout).into_values().sum();
    assert!((9_999_999..10_000_010).contains(&expected), "{expected}");
    // The C library takes no pthread_mutex_t of its own here, so every acquisition is one of the program.
    let (mut acquired, mut released, mut last_ns) = (0, 0, i64::MIN);
    for batch in trace.events().unwrap() {
        for event in batch.unwrap().iter() {
            assert!(event.ts_ns >= last_ns, "rows are in the order of time");
            last_ns = event.ts_ns;
            let kind = event.lock.map(|lock| locks[usize::try_from(lock.0).unwrap()].kind);
            acquired += u64::from(event.kind == EventKind::Acquire && kind == Some(LockKind::PthreadMutex));
            released += u64::from(event.kind == EventKind::Release);
        }
    }
    place.assert_nothing_is_left();
    if lost == 0 {
        assert_eq!((acquired, released), (expected, expected));
    } else {
        // Some of the lost records are inits and destroys of mutexes.
        assert!(acquired <= expected && released <= expected && acquired + released + lost >= 2 * expected);
    }
    lost == 0
}

#[test]
fn records_lost_in_a_very_small_pool_are_counted_where_they_are_missing() {
    let place = Place::new();
    let (recorded, ended) = until("64 kB are not enough", || {
        let (recorded, ended) = place.run_fixture(&["--ring", "64k"], "known_pairs", &["2", "300000"]);
        (recorded.trace.info().loss.ring_full > 0).then_some((recorded, ended))
    });
    let loss = &recorded.trace.info().loss;
    let own = loss.by_program.iter().find(|row| row.program == "preload").unwrap();
    let reported: i64 =
        recorded.events.iter().filter(|e| e.kind == EventKind::Lost).map(|e| e.count.unwrap()).sum();
    assert_eq!(reported.cast_unsigned(), own.ring_full, "each loss is reported in its place");
    // Every acquisition has a release, and every worker an init and a destroy, and its creation, end and
    // join: no thread waits here but for `shared` and for workers, whose waits are one record each.
    let pairs: u64 = printed(&ended.stdout).into_values().sum();
    let waits = recorded.events.iter().filter(|e| e.kind == EventKind::Wait).count() as u64;
    let least = 2 * pairs + 4 + 6;
    let attempts = own.delivered + own.ring_full;
    assert!(attempts >= least && attempts <= least + waits + own.ring_full, "{attempts}, {least}, {waits}");
}

#[test]
fn lossless_threads_wait_and_nothing_is_missing() {
    let place = Place::new();
    exact(&place, &["--lossless", "--ring", "64k"], &["2", "100000"]);
}

#[test]
fn a_child_and_a_new_program_are_recorded_as_processes_of_their_own() {
    let place = Place::new();
    for how in ["fork", "exec"] {
        let (recorded, ended) = exact(&place, &[], &["2", "20000", how]);
        let printed = printed(&ended.stdout);
        assert_eq!(printed.len(), if how == "fork" { 2 } else { 1 }, "{how}");
        // A process that executes itself again then has other locks with the same names.
        let shared = recorded.locks.iter().filter(|lock| lock.name.as_deref() == Some("shared")).count();
        assert_eq!(shared, 2, "{how}");
    }
}

#[test]
fn an_acquisition_names_its_task_its_function_and_its_line() {
    let place = Place::new();
    let (recorded, _) = exact(&place, &[], &["3", "500"]);
    let mut tids = Vec::new();
    for event in recorded.events.iter().filter(|event| event.kind == EventKind::Acquire) {
        if !recorded.lock(event).is_some_and(|lock| is_ours(&recorded, lock)) {
            continue;
        }
        let frames = &recorded.stacks[usize::try_from(event.stack.unwrap().0).unwrap()].frames;
        let leaf = frames.iter().find(|frame| !frame.inlined).unwrap();
        let file = leaf.file.as_deref().is_some_and(|file| file.ends_with("known_pairs.c"));
        assert!(
            leaf.symbol.as_deref() == Some("hammer") && file && leaf.line.is_some_and(|line| line > 0),
            "{frames:#?}"
        );
        assert!(frames.iter().any(|frame| frame.symbol.as_deref() == Some("work")), "{frames:#?}");
        let task = &recorded.tasks[usize::try_from(event.task.unwrap().0).unwrap()];
        assert_eq!(task.comm.as_deref(), Some("known_pairs"));
        assert!(task.start_ns.unwrap() <= event.ts_ns && event.ts_ns <= task.exit_ns.unwrap());
        tids.push(task.tid);
    }
    tids.sort_unstable();
    tids.dedup();
    assert_eq!(tids.len(), 3);
}

#[test]
fn locks_that_are_initialised_and_destroyed_are_incarnations() {
    let place = Place::new();
    let (recorded, _) = exact(&place, &[], &["4", "100"]);
    let (threads, own): (Vec<_>, Vec<_>) = recorded
        .locks
        .iter()
        .filter(|lock| lock.init_stack.is_some())
        .partition(|lock| lock.kind == LockKind::Thread);
    assert_eq!((threads.len(), own.len()), (4, 4));
    assert!(own.iter().all(|lock| is_ours(&recorded, lock)), "{own:#?}");
    for kind in [EventKind::Init, EventKind::Destroy] {
        assert_eq!(counts(&recorded, kind).into_values().sum::<u64>(), 4, "{kind}");
    }
}

#[test]
fn a_library_that_the_user_preloads_stays() {
    let place = Place::new();
    let program = place.path("print");
    fs::write(&program, "#!/bin/sh\necho \"$LD_PRELOAD\"\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let library = "/lib/x86_64-linux-gnu/libm.so.6";
    let mut command = place.record(&[], &program, &[]);
    let ended = Running::start(command.env("LD_PRELOAD", library)).end_within(LIMIT);
    let loaded = ended.stdout.trim();
    assert!(
        loaded.starts_with(&format!("{library}:")) && loaded.contains("/klock/libklock_preload-"),
        "{loaded}"
    );
    assert!(!ended.stderr.contains("ld.so"), "{}", ended.stderr);
}

#[test]
fn a_program_that_makes_every_call_behaves_as_alone_and_has_exactly_the_expected_rows() {
    let place = Place::new();
    let alone = support::run(&mut Command::new(fixture("known_locks")));
    assert!(alone.status.success(), "{}", alone.stderr);
    let program = place.program("known_locks");
    let mut command = place.record(&[], &program, &["--expected"]);
    let ended = Running::start(&mut command).end_within(LIMIT);
    assert!(ended.status.success(), "{}", ended.stderr);
    let said: Vec<&str> = ended.stdout.lines().filter(|line| line.contains(": ")).collect();
    assert_eq!(said.join("\n"), alone.stdout.trim_end(), "it behaves differently when it is recorded");
    assert_conforms(&place.path("t.parquet"), &Expected::read(&ended.stdout));
}

/// A program that runs until it is killed, at the latest when this is dropped.
struct Endless(i32);

impl Drop for Endless {
    fn drop(&mut self) {
        kill(self.0);
    }
}

/// Starts a recording of such a program, and waits until one of its threads has ended a round. Returns the
/// recorder and the program.
fn endless(place: &Place, options: &[&str]) -> (Running, Endless) {
    let program = place.program("known_pairs");
    let recorder = Running::start(&mut place.record(options, &program, &["2", "1000", "forever"]));
    let program = Endless(recorder.line_after("running ").parse().unwrap());
    recorder.line_after("ROUND");
    (recorder, program)
}

/// The number of rounds that the threads of such a program have ended, by what it printed.
fn rounds(stdout: &str) -> u64 {
    stdout.lines().filter(|line| *line == "ROUND").count() as u64
}

/// Waits until such a program has ended another round, after its recording has ended.
fn assert_goes_on(recorder: &Running) {
    let before = rounds(&recorder.printed("stdout"));
    soon(LIMIT, "the command goes on", || rounds(&recorder.printed("stdout")) > before);
}

#[test]
fn a_program_that_is_killed_is_recorded_up_to_its_end() {
    /// Acquisitions of a thread in a round.
    const ROUND: u64 = 1000 + 100;
    let place = Place::new();
    let (recorded, ended, pid) = until("a recording without loss", || {
        let (recorder, program) = endless(&place, &[]);
        let pid = program.0;
        drop(program);
        let ended = recorder.end_within(LIMIT);
        assert_eq!(ended.status.code(), Some(128 + libc::SIGKILL), "{}", ended.stderr);
        let recorded = place.recorded();
        let loss = &recorded.trace.info().loss;
        (loss.events() == 0 && loss.late == 0).then_some((recorded, ended, pid))
    });
    let (acquired, released) =
        (counts(&recorded, EventKind::Acquire)[&pid], counts(&recorded, EventKind::Release)[&pid]);
    assert!(acquired >= released && acquired - released <= 4, "{acquired} {released}");
    // Each of the two threads was killed in one round more.
    let rounds = rounds(&ended.stdout);
    assert!((rounds * ROUND..=(rounds + 2) * ROUND).contains(&acquired), "{acquired} in {rounds} rounds");
    place.assert_nothing_is_left();
}

#[test]
fn a_klock_that_is_killed_leaves_nothing_behind_and_its_command_running() {
    let place = Place::new();
    let (mut recorder, program) = endless(&place, &[]);
    recorder.child.kill().unwrap();
    recorder.child.wait().unwrap();
    assert_goes_on(&recorder);
    drop(program);
    place.assert_nothing_is_left();
    let sockets = fs::read_to_string("/proc/net/unix").unwrap();
    let ours = format!("/klock-{}-", recorder.child.id());
    assert!(!sockets.contains(&ours), "a socket is left");
}

#[test]
fn a_recording_that_ends_before_its_command_is_whole_and_the_command_goes_on() {
    let place = Place::new();
    until("a thousand acquisitions within the time of the recording", || {
        let (mut recorder, program) = endless(&place, &["-d", "300ms"]);
        assert!(recorder.ends_within(LIMIT), "the recording does not end");
        let stderr = recorder.printed("stderr");
        assert!(stderr.contains("still running"), "{stderr}");
        assert_goes_on(&recorder);
        let acquired = counts(&place.recorded(), EventKind::Acquire);
        (acquired.get(&program.0) > Some(&1000)).then_some(())
    });
    place.assert_nothing_is_left();
}
