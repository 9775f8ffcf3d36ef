//! Records a thread that sleeps in known system calls while it holds a lock (`fixtures/programs/known_syscalls.c`): the rows of its sleeps, and what
//! `klock` says of them, name the call that the program made.
//!
//! needs: root, gcc

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

use trace_format::{Event, EventKind, TaskState, run_info::Covers};

mod support;

use support::{
    cannot_record, csv_rows, klock,
    place::{Place, Recorded},
    skip,
};

/// The calls of the program, and the names that rows of sleeps in them have; `None` where the call is not known.
const CALLS: [(&str, Option<&str>); 7] = [
    ("nanosleep", Some("nanosleep")),
    ("ppoll", Some("ppoll")),
    ("read", Some("read")),
    ("futex", Some("futex")),
    ("fsync", Some("fsync")),
    ("fault", Some("-")),
    // A 32-bit call, whose number means another call to 64-bit code.
    ("int80", None),
];
/// The length of a sleep whose call klock should have read, without root.
const LONG_NS: i64 = 100_000_000;

fn name_of(name: &str) -> &'static str {
    CALLS.iter().find(|(of, _)| *of == name).unwrap().0
}

/// Returns the name, the begin and the end of each call of the program, and the thread that made them.
fn calls(printed: &str) -> (i32, Vec<(&str, i64, i64)>) {
    let lines: Vec<Vec<&str>> = printed.lines().map(|line| line.split(' ').collect()).collect();
    let tid = lines.iter().find(|words| words[0] == "holder").unwrap()[1].parse().unwrap();
    let call = |words: &Vec<&str>| match words[..] {
        [name, begin, end] => Some((name_of(name), begin.parse().unwrap(), end.parse().unwrap())),
        _ => None,
    };
    (tid, lines.iter().filter_map(call).collect())
}

/// Returns the sleeps of a thread that lie within a time.
fn sleeps(recorded: &Recorded, tid: i32, begin_ns: i64, end_ns: i64) -> Vec<&Event> {
    let lies = |event: &&Event| {
        event.kind == EventKind::OffCpu
            && event.state != Some(TaskState::Runnable)
            && recorded.tasks[usize::try_from(event.task.unwrap().0).unwrap()].tid == tid
            && event.ts_ns - event.wait_ns.unwrap() >= begin_ns
            && event.ts_ns <= end_ns
    };
    recorded.events.iter().filter(lies).collect()
}

/// Records all calls as root. `None` if that is not possible here.
fn recorded_as_root(place: &Place, options: &[&str]) -> Option<(Recorded, String)> {
    if let Some(reason) = cannot_record() {
        skip(reason);
        return None;
    }
    let mut record = klock();
    record.current_dir(place.path("tmp")).args(["record", "-f", "-o"]).arg(place.path("t.parquet"));
    record.args(options).arg("--").arg(place.program("known_syscalls")).arg("50");
    let ended = support::run(record.args(CALLS.map(|(name, _)| name)));
    assert!(ended.status.success(), "{}", ended.stderr);
    Some((place.recorded(), ended.stdout))
}

/// Returns the columns `state` and `on` of `klock blame --by state` where a holder made others wait.
fn blamed(trace: &Path) -> Vec<(String, String)> {
    let options = ["blame", "--by", "state", "--idle", "--format", "csv", "--lock", "lock"];
    let ended = support::run(klock().args(options).arg(trace));
    assert!(ended.status.success(), "{}", ended.stderr);
    let rows = csv_rows(&ended.stdout);
    rows.into_iter().map(|row| (row["state"].clone(), row["on"].clone())).collect()
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn each_sleep_of_a_holder_has_the_call_that_the_program_made() {
    for options in [&["--sched", "holders", "--locks", "pthread"][..], &["--off-cpu", "--locks", "pthread"]] {
        let place = Place::new();
        let Some((recorded, printed)) = recorded_as_root(&place, options) else { return };
        let (tid, calls) = calls(&printed);
        assert!(calls.len() >= 5, "{printed}");
        let mut expected_on = Vec::new();
        for (call, begin_ns, end_ns) in calls {
            let name = CALLS.iter().find(|(of, _)| *of == call).unwrap().1;
            let found = sleeps(&recorded, tid, begin_ns, end_ns);
            for row in &found {
                let found = row.syscall.map(|call| call.to_string());
                assert_eq!(found.as_deref(), name, "{call}: {row:?} by {options:?}");
            }
            let slept_ns: i64 = found.iter().map(|row| row.wait_ns.unwrap()).sum();
            if call != "fsync" {
                assert!(slept_ns > (end_ns - begin_ns) / 2, "{call}: {found:?} by {options:?}");
                expected_on.push(if name == Some("-") { "no system call" } else { name.unwrap_or("") });
            }
        }
        let rows = blamed(&place.path("t.parquet"));
        for on in expected_on {
            let is_there = rows.iter().any(|(state, of)| {
                matches!(state.as_str(), "asleep" | "uninterruptible") && of.split(" (").next() == Some(on)
            });
            assert!(is_there || on.is_empty(), "no {on} in {rows:?} by {options:?}");
        }
    }
}

#[test]
#[ignore = "records a program; run by cargo xtask test"]
fn without_root_a_long_sleep_that_others_wait_for_has_its_call() {
    let place = Place::new();
    let arguments: Vec<&str> = ["400"].into_iter().chain(CALLS.map(|(name, _)| name)).collect();
    let program = place.program("known_syscalls");
    let mut record = place.record(&[], &program, &arguments);
    record.current_dir(place.path("tmp"));
    let (recorded, ended) = place.run(&mut record);
    let sched = recorded.trace.info().sources.iter().find(|source| source.is_sched()).unwrap();
    if sched.covers == Some(Covers::None) {
        return skip(&sched.limits[0]);
    }
    let (tid, calls) = calls(&ended.stdout);
    assert!(calls.len() >= 5, "{}", ended.stdout);
    let mut known = 0;
    for (call, begin_ns, end_ns) in &calls {
        let name = CALLS.iter().find(|(of, _)| of == call).unwrap().1;
        for row in sleeps(&recorded, tid, *begin_ns, *end_ns) {
            let found = row.syscall.map(|call| call.to_string());
            assert!(found.is_none() || found.as_deref() == name, "{call}: {row:?}");
            known += usize::from(found.is_some() && row.wait_ns.unwrap() > LONG_NS);
        }
    }
    // On a busy machine, some are not asked for in time.
    assert!(known >= 3, "{known} of {calls:?}");
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn why_names_the_call_across_which_a_lock_is_held_and_offcpu_adds_up_calls() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let place = Place::new();
    let mut record = klock();
    record
        .args(["record", "-f", "--sched", "holders", "--locks", "pthread", "-o"])
        .arg(place.path("t.parquet"));
    record.arg("--").arg(place.program("known_syscalls")).args(["100", "read"]);
    assert!(support::run(&mut record).status.success());
    let why = support::run(klock().arg("why").arg(place.path("t.parquet")));
    assert!(why.stdout.contains("its holder slept, most in read; it had taken"), "{}", why.stdout);
    let offcpu = ["offcpu", "--by", "syscall", "--format", "csv"];
    let offcpu = support::run(klock().args(offcpu).arg(place.path("t.parquet")));
    assert!(csv_rows(&offcpu.stdout).iter().any(|row| row["name"] == "read"), "{}", offcpu.stdout);
}
