//! Attacks on a recording that root makes of an honest program with known counts, through the socket and the
//! shared memory. The attackers run as another user, most of them with the recording's secret. Each time the
//! honest counts are exact, klock stays small and ends when its command ends.
//!
//! `KLOCK_SOAK_SECONDS` is the length of the test that runs all attacks at once (20).
//!
//! needs: gcc, root
//! full needs: python3
//! full runs beside others

#![allow(clippy::print_stdout, reason = "the figures are worth reading")]

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use trace_format::Trace;

mod recording;
use crate::support::{
    self,
    arena::{Arena, HostileFuse},
};
use recording::{
    Attacked, Attacker, END_LIMIT, MAX_RSS_KB, Recording, assert_exact, printed_counts, recorded_counts,
};

/// The attackers of a recording, and the condition that ends it.
enum Attack {
    /// Processes without the secret, or which misuse it, without end.
    Stranger,
    /// Processes with the secret, until klock ends their recording.
    Ending,
    /// Processes with the secret, without end.
    Endless,
}

/// Records the honest program while two attackers attack, which get `number`.
#[track_caller]
fn under_attack(how: &str, number: u32, attack: Attack, has_secret: bool) -> (Attacked, u64) {
    let recording = Recording::start(3, 3000, 0.0);
    let name = recording.variable.split(':').next().unwrap();
    let stranger = format!("{name}:{}", "0".repeat(32));
    let variable = if has_secret { &recording.variable } else { &stranger };
    let attackers = [(); 2].map(|()| recording.attack(how, variable, number));
    let have_attacked = || attackers.iter().for_each(|attacker| drop(attacker.0.line_after("attacked")));
    match attack {
        Attack::Stranger => {
            have_attacked();
            recording.go();
        }
        Attack::Ending => {
            recording.go();
            have_attacked();
        }
        Attack::Endless => {
            support::soon(END_LIMIT, "the attackers have joined", || {
                attackers.iter().all(|attacker| attacker.regions() > 0)
            });
            recording.go();
            thread::sleep(Duration::from_millis(1500));
        }
    }
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
    ($(
        $(#[$meta:meta])*
        fn $name:ident($how:literal, $number:literal, $attack:ident, $secret:literal) $check:expr;
    )*) => {$(
        $(#[$meta])*
        #[test]
        fn $name() {
            if !xtask::host::is_root() {
                return support::skip("needs root");
            }
            let (attacked, regions) = under_attack($how, $number, Attack::$attack, $secret);
            let check: fn(&Attacked, u64) = $check;
            check(&attacked, regions);
        }
    )*};
}

fn no_region(attacked: &Attacked, regions: u64) {
    assert_eq!(regions, 0, "klock gave a region to a stranger");
    assert!(!attacked.limits.iter().any(|limit| limit.contains("(join)")), "{:#?}", attacked.limits);
}

// The test runner finds the names by their attributes.
attacks! {
    #[ignore = "needs root; run by cargo xtask test"]
    fn a_process_without_the_secret_gets_no_region("wrong-secret", 0, Stranger, false) |attacked, regions| {
        no_region(attacked, regions);
        attacked.assert_limit(" without the recording's secret refused");
    };
    #[ignore = "needs root; run by cargo xtask test"]
    fn thirty_idle_connections_do_not_delay_a_program("idle", 30, Stranger, false) no_region;
    #[ignore = "full: a program that waits for its answer for 3 s beside a flood is not recorded"]
    fn thousands_of_idle_connections_do_not_delay_a_program("idle", 3000, Stranger, false) no_region;
    #[ignore = "full: a program that waits for its answer for 3 s beside a flood is not recorded"]
    fn a_flood_of_connections_does_not_delay_a_program("flood", 0, Stranger, false) no_region;
    #[ignore = "needs root; run by cargo xtask test"]
    fn parts_of_messages_and_long_messages_are_refused("half", 0, Stranger, true) no_region;
    #[ignore = "needs root; run by cargo xtask test"]
    fn descriptors_that_come_with_a_request_are_closed("descriptors", 0, Stranger, false) no_region;
    #[ignore = "needs root; run by cargo xtask test"]
    fn slots_with_the_same_chunk_end_the_recording_of_the_attacker("same-chunk", 0, Ending, true) |attacked, _| {
        attacked.assert_limit("(join): recording ended: an invalid chunk");
    };
    #[ignore = "needs root; run by cargo xtask test"]
    fn chunks_that_link_to_each_other_end_the_recording_of_the_attacker("circle", 0, Ending, true) |attacked, _| {
        attacked.assert_limit("(join): recording ended: ");
    };
    #[ignore = "needs root; run by cargo xtask test"]
    fn queues_full_of_anything_end_the_recording_of_the_attacker("queues", 0, Ending, true) |attacked, _| {
        attacked.assert_limit("(join): recording ended: ");
    };
    #[ignore = "needs root; run by cargo xtask test"]
    fn endless_stacks_end_the_recording_of_the_attacker("stacks", 0, Ending, true) |attacked, _| {
        attacked.assert_limit("(join): recording ended: more than");
    };
    #[ignore = "needs root; run by cargo xtask test"]
    fn endless_thread_sessions_end_the_recording_of_the_attacker("sessions", 0, Ending, true) |attacked, _| {
        attacked.assert_limit("(join): recording ended: more than");
    };
    #[ignore = "needs root; run by cargo xtask test"]
    fn endless_locks_end_the_recording_of_the_attacker("locks", 0, Ending, true) |attacked, _| {
        attacked.assert_limit("(join): recording ended: more than");
    };
    #[ignore = "needs root; run by cargo xtask test"]
    fn invalid_records_end_the_recording_of_the_attacker("garbage", 0, Ending, true) |attacked, _| {
        attacked.assert_limit("(join): recording ended: more than 1024 invalid records");
    };
    #[ignore = "needs root; run by cargo xtask test"]
    fn lengths_and_offsets_out_of_range_end_the_recording_of_the_attacker("lengths", 0, Ending, true) |attacked, _| {
        attacked.assert_limit("(join): recording ended: ");
    };
    #[ignore = "full: an attack without end takes seconds"]
    fn endless_names_change_no_other_process("names", 0, Endless, true) |_, _| {};
    #[ignore = "full: an attack without end takes seconds"]
    fn endless_losses_do_not_stop_klock("losses", 0, Endless, true) |_, _| {};
    #[ignore = "full: an attack without end takes seconds"]
    fn a_file_cannot_be_truncated_and_holes_in_it_are_harmless("truncate", 0, Endless, true) |_, _| {};
    #[ignore = "full: an attack without end takes seconds"]
    fn old_times_neither_hold_others_back_nor_break_the_order("old-times", 0, Endless, true) |_, _| {};
    #[ignore = "full: an attack without end takes seconds"]
    fn records_without_end_leave_room_for_others("endless", 0, Endless, true) |_, _| {};
    #[ignore = "full: an attack without end takes seconds"]
    fn thousands_of_busy_slots_do_not_stop_klock("slots", 0, Endless, true) |_, _| {};
    #[ignore = "full: an attack without end takes seconds"]
    fn processes_that_join_and_exit_at_once_do_not_stop_klock("forks", 0, Endless, true) |_, _| {};
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn invented_events_on_a_victims_thread_are_booked_on_the_attacker() {
    if !xtask::host::is_root() {
        return support::skip("needs root");
    }
    let recording = Recording::start(2, 3000, 0.0);
    let (victim, variable) = (recording.pid, recording.variable.clone());
    let attacker = recording.attack("foreign", &variable, victim);
    attacker.0.line_after("attacked");
    recording.go();
    let pid = attacker.pid();
    let attacked = recording.end();
    attacked.assert_limit("1 thread claimed the id of another process's thread");
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
#[ignore = "full: recovers a trace that grows without end"]
fn old_times_without_end_do_not_keep_honest_records_out_of_the_trace() {
    if !xtask::host::is_root() {
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
#[ignore = "full: takes KLOCK_SOAK_SECONDS, with more attackers than processors"]
fn all_attacks_at_once_leave_klock_small_and_the_honest_counts_exact() {
    if !xtask::host::is_root() {
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
