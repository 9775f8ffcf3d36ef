//! Records programs that get stuck in a known way (`fixtures/programs/known_stuck.c`): every command says
//! first who waits for whom, and `klock why` says what to do. Each step of the program waits for the one
//! before, so each recording ends stuck.
//!
//! needs: root, gcc

use std::{path::Path, process::Command};

use crate::support::{
    Running, cannot_record, fixture, kill, klock,
    place::{Place, trace_of, users},
    run, said, skip,
};

/// Modes, the words of the deadlock, and those of the advice.
const MODES: [(&str, &[&str], &str); 8] = [
    ("joined", &["has #", "outer", "is #", "(thread)"], "before joining"),
    ("signal", &["would signal #", "item", "outer"], "before waiting for the condition variable"),
    ("reader", &["is queued for #", "table", "inner_reader"], "do not read-lock it inside"),
    ("ended", &["which ended with #", "outer"], "on every way out of a thread"),
    ("cancelled", &["which ended with #", "outer"], "on every way out of a thread"),
    ("itself", &["has #", "outer"], "signal handler"),
    ("handler", &["has #", "outer"], "signal handler"),
    ("forked", &["has a copy of #", "outer", "held at the fork"], "pthread_atfork"),
];

#[track_caller]
fn assert_stuck(trace: &Path, words: &[&str], advice: &str) {
    let said = said(&run(klock().arg("why").arg(trace)));
    assert!(said.contains("deadlock at the end: "), "{said}");
    for word in words.iter().chain([&advice]) {
        assert!(said.contains(word), "{word} in {said}");
    }
}

#[track_caller]
fn assert_not_stuck(trace: &Path) {
    let said = said(&run(klock().arg("why").arg(trace)));
    assert!(!said.contains("deadlock"), "{said}");
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn who_waits_for_whom_is_said_when_an_ordinary_user_records() {
    let place = Place::new();
    for (mode, words, advice) in MODES {
        place.run_fixture(&["--quiet"], "known_stuck", &[mode]);
        assert_stuck(&place.path("t.parquet"), words, advice);
        place.run_fixture(&["--quiet"], "known_stuck", &[mode, "fixed"]);
        assert_not_stuck(&place.path("t.parquet"));
    }
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn a_signal_that_came_before_the_wait_leaves_no_thread_that_could_signal() {
    let place = Place::new();
    let program = place.program("known_stuck");
    for &is_root in users() {
        let trace = place.path(trace_of(is_root));
        let ended = run(&mut place.as_user(is_root, true, &program, &["lost"]));
        assert_eq!(ended.status.code(), Some(128 + libc::SIGKILL), "{}", ended.stderr);
        assert_stuck(&trace, &["no thread left that could wake it", "item"], "comes too early is lost");
        let ended = run(&mut place.as_user(is_root, true, &program, &["lost", "fixed"]));
        assert!(ended.status.success(), "{}", ended.stderr);
        assert_not_stuck(&trace);
    }
}

#[test]
#[ignore = "needs root and gcc; run by cargo xtask test"]
fn who_waits_for_whom_is_said_when_root_records() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let place = Place::new();
    for (mode, words, advice) in MODES {
        let trace = place.path("root.parquet");
        let record = |arguments: &[&str]| {
            let mut command = klock();
            command.args(["record", "--quiet", "-f", "-o"]).arg(&trace).arg("--").arg(fixture("known_stuck"));
            let ended = run(command.args(arguments));
            assert!(ended.status.success(), "{}", ended.stderr);
        };
        record(&[mode]);
        assert_stuck(&trace, words, advice);
        record(&[mode, "fixed"]);
        assert_not_stuck(&trace);
    }
}

#[test]
#[ignore = "needs root and gcc; run by cargo xtask test"]
fn a_deadlock_from_before_the_recording_is_named_when_root_attaches() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let place = Place::new();
    let stuck = Running::start(Command::new(fixture("known_stuck")).arg("crossed"));
    let ids = stuck.line_after("stuck ");
    let [pid, first, second] = ids.split(' ').collect::<Vec<_>>()[..] else { panic!("{ids}") };
    let record = ["record", "-f", "-d", "200ms", "-p", pid, "-o", "t.parquet"];
    let ended = run(klock().args(record).current_dir(place.path("")));
    kill(pid.parse().unwrap());
    assert_eq!(ended.stdout, "");
    let text = said(&ended);
    let begin = format!("2 threads of process {pid} have waited for each other's mutexes since before the");
    assert!(ended.status.success() && text.contains(&begin), "{text}");
    let trace = place.path("t.parquet");
    let text = said(&run(klock().arg("why").arg(&trace)));
    let is_said = |outer: u8, queue: u8| {
        let (outer, queue) =
            (format!("#{outer} outer (pthread_mutex)"), format!("#{queue} queue (pthread_mutex)"));
        text.contains(&format!("(tid {first}, pid {pid}) has {outer}, waits for {queue} for "))
            && text.contains(&format!("(tid {second}, pid {pid}) has {queue}, waits for {outer} for "))
    };
    assert!(is_said(0, 1) || is_said(1, 0), "{text}");
    assert_stuck(&trace, &["outer", "queue"], "in the same order");
    // Their acquisitions were before the recording.
    let report =
        run(klock().args(["report", "--format", "csv", "-F", "count,open_holds,open_waits"]).arg(trace));
    assert_eq!(report.stdout.lines().filter(|row| row.starts_with("0,1,1,")).count(), 2, "{}", report.stdout);
}
