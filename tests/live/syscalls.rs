//! Records a thread that sleeps in known system calls while it holds a lock
//! (`fixtures/programs/known_syscalls.c`): the rows of its sleeps, and what `klock` says of them, name the
//! call that the program made.
//!
//! needs: root, gcc

use std::path::Path;

use trace_format::{Event, EventKind, LockKind, TaskState, run_info::Covers};

use crate::support::{
    self, cannot_record, csv_rows, klock,
    place::{Place, Recorded},
    skip, until,
};

/// The calls of the program, and the names that rows of sleeps in them have; `None` where the call is not
/// known.
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

/// A call of the program, the name that rows of sleeps in it have, its begin and its end.
type Call = (&'static str, Option<&'static str>, i64, i64);

/// Returns the calls of the program, and the thread that made them.
fn calls(printed: &str) -> (i32, Vec<Call>) {
    let lines: Vec<Vec<&str>> = printed.lines().map(|line| line.split(' ').collect()).collect();
    let tid = lines.iter().find(|words| words[0] == "holder").unwrap()[1].parse().unwrap();
    let call = |words: &Vec<&str>| match words[..] {
        [call, begin, end] => {
            let (call, name) = CALLS.iter().find(|(of, _)| *of == call).unwrap();
            Some((*call, *name, begin.parse().unwrap(), end.parse().unwrap()))
        }
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

/// Returns the name of the call in which a task slept.
fn name_of(row: &Event) -> Option<String> {
    row.syscall.map(|call| call.to_string())
}

/// Whether all that was seen is in the trace, as it was: where the machine takes processors away for long, a
/// ring may fill, and a record may come too late.
fn is_whole(recorded: &Recorded) -> bool {
    let loss = &recorded.trace.info().loss;
    loss.events() + loss.late == 0
}

/// Records the program with these arguments as root. `None` if that is not possible here.
fn recorded_as_root(place: &Place, options: &[&str], arguments: &[&str]) -> Option<(Recorded, String)> {
    if let Some(reason) = cannot_record() {
        skip(reason);
        return None;
    }
    let mut record = klock();
    record.current_dir(place.path("tmp")).args(["record", "-f", "-o"]).arg(place.path("t.parquet"));
    record.args(options).arg("--").arg(place.program("known_syscalls"));
    let ended = support::run(record.args(arguments));
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

/// Returns the arguments of the program for all calls.
fn all_calls(pause_ms: &str) -> Vec<&str> {
    [pause_ms].into_iter().chain(CALLS.map(|(call, _)| call)).collect()
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn each_sleep_of_a_holder_has_the_call_that_the_program_made() {
    let place = Place::new();
    for options in [&["--off-cpu=holders", "--locks", "pthread"][..], &["--off-cpu", "--locks", "pthread"]] {
        // A host may hide the switch of a sleep.
        until("a recording without loss that has a sleep in each call", || {
            let Some((recorded, printed)) = recorded_as_root(&place, options, &all_calls("50")) else {
                return Some(());
            };
            let (tid, calls) = calls(&printed);
            assert!(calls.len() >= 5, "{printed}");
            if !is_whole(&recorded) {
                return None;
            }
            let mut expected_on = Vec::new();
            for (call, name, begin_ns, end_ns) in calls {
                let mut slept_ns = 0;
                for row in sleeps(&recorded, tid, begin_ns, end_ns) {
                    if name_of(row).as_deref() == name {
                        slept_ns += row.wait_ns.unwrap();
                        continue;
                    }
                    // Before and after the call, the program may wait for a page of its own.
                    let is_fault =
                        name_of(row).as_deref() == Some("-") && row.state != Some(TaskState::Interruptible);
                    assert!(is_fault, "{call}: {row:?} by {options:?}");
                }
                if call != "fsync" {
                    if slept_ns <= (end_ns - begin_ns) / 2 {
                        return None;
                    }
                    expected_on.push(if name == Some("-") { "no system call" } else { name.unwrap_or("") });
                }
            }
            let rows = blamed(&place.path("t.parquet"));
            for on in expected_on {
                let is_there = rows.iter().any(|(state, of)| {
                    let is_asleep = matches!(state.as_str(), "asleep" | "uninterruptible");
                    is_asleep && of.split(" (").next() == Some(on)
                });
                assert!(is_there || on.is_empty(), "no {on} in {rows:?} by {options:?}");
            }
            Some(())
        });
    }
}

#[test]
#[ignore = "records a program; run by cargo xtask test"]
fn without_root_a_long_sleep_that_others_wait_for_has_its_call() {
    let place = Place::new();
    let mut record = place.record(&[], &place.program("known_syscalls"), &all_calls("400"));
    record.current_dir(place.path("tmp"));
    // On a busy machine, some are not asked for in time.
    until("a recording without loss that has the calls of three long sleeps", || {
        let (recorded, ended) = place.run(&mut record);
        let sched = recorded.trace.info().sources.iter().find(|source| source.is_sched()).unwrap();
        if sched.covers == Some(Covers::None) {
            skip(&sched.limits[0]);
            return Some(());
        }
        let (tid, calls) = calls(&ended.stdout);
        assert!(calls.len() >= 5, "{}", ended.stdout);
        if !is_whole(&recorded) {
            return None;
        }
        let mut known = 0;
        for (call, name, begin_ns, end_ns) in calls {
            for row in sleeps(&recorded, tid, begin_ns, end_ns) {
                let found = name_of(row);
                let is_long = row.wait_ns.unwrap() > LONG_NS;
                // Before and after the call, the program may wait for a page of its own.
                let is_fault = !is_long && found.as_deref() == Some("-");
                assert!(found.is_none() || found.as_deref() == name || is_fault, "{call}: {row:?}");
                known += usize::from(found.is_some() && is_long);
            }
        }
        (known >= 3).then_some(())
    });
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn why_names_the_call_across_which_a_lock_is_held_and_offcpu_adds_up_calls() {
    let place = Place::new();
    let options = ["--off-cpu=holders", "--locks", "pthread"];
    // A host may hide the switch, and a busy machine may keep the holder from its call while others wait.
    until(
        "a recording without loss in which a task waits for most of the time for a holder in the call",
        || {
            let Some((recorded, printed)) = recorded_as_root(&place, &options, &["100", "read"]) else {
                return Some(());
            };
            let (tid, calls) = calls(&printed);
            let [(_, name, begin_ns, end_ns)] = calls[..] else { panic!("{printed}") };
            let in_call = sleeps(&recorded, tid, begin_ns, end_ns);
            let in_call = in_call.iter().filter(|row| name_of(row).as_deref() == name);
            let slept_ns: i64 = in_call.map(|row| row.wait_ns.unwrap()).sum();
            let is_of_lock = |event: &&Event| {
                event.kind == EventKind::Acquire
                    && recorded.lock(event).is_some_and(|lock| lock.kind == LockKind::PthreadMutex)
            };
            let waits = recorded.events.iter().filter(is_of_lock);
            let waited_ns: i64 = waits.filter_map(|event| event.wait_ns).sum();
            if !is_whole(&recorded) || slept_ns * 2 <= waited_ns {
                return None;
            }
            let why = support::run(klock().arg("why").arg(place.path("t.parquet")));
            assert!(why.stdout.contains("its holder slept, most in read; it had taken"), "{}", why.stdout);
            let offcpu = ["offcpu", "--by", "syscall", "--format", "csv"];
            let offcpu = support::run(klock().args(offcpu).arg(place.path("t.parquet")));
            assert!(csv_rows(&offcpu.stdout).iter().any(|row| row["name"] == "read"), "{}", offcpu.stdout);
            Some(())
        },
    );
}
