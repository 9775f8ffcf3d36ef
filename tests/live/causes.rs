//! Records programs whose threads wait for a known cause (`fixtures/programs/known_causes.c`): the first
//! verdict of `klock why` is that cause, and it is gone once the program is fixed. A deadlock is certain.
//! What other threads do with the processors may give the other modes further causes, so they are of the full
//! size; these are the modes whose verdicts do not depend on idle processors, and `bench/causes.py` records
//! all. The columns of convoys and overtaking are compared, too.
//!
//! needs: root, gcc

use std::path::Path;

use trace_format::run_info::Covers;

use crate::support::{cannot_record, csv_rows, fixture, klock, most_of, place::Place, run, skip, until};

/// Modes with their verdict and lock. `few_long` is recorded without off-CPU times, and the others sleep for
/// so long that waits for a CPU hardly count.
const MODES: [(&str, &str, &str); 4] = [
    ("asleep", "holder_asleep", "hot"),
    ("nested", "nested", "outer"),
    ("few_long", "few_long_holds", "hot"),
    ("convoy", "convoy", "turned"),
];
/// A machine may hide the switches of a task, or stop a holder of a program that is fixed. Such a recording
/// is made again, this often at most.
const RECORDINGS: usize = 4;

/// Returns the name of the lock that was waited for longest and its verdicts; none if no task waited.
fn verdicts(trace: &Path) -> (String, Vec<String>) {
    let ended = run(klock().args(["why", "-n", "1", "--format", "json"]).arg(trace));
    if ended.status.code() == Some(1) {
        return (String::new(), Vec::new());
    }
    assert!(ended.status.success(), "{}", ended.stderr);
    let why: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let lock = &why["locks"][0];
    let said = lock["findings"].as_array().unwrap().iter().filter(|finding| finding["said"] == true);
    let said = said.map(|finding| finding["verdict"].as_str().unwrap().to_owned());
    (lock["name"].as_str().unwrap().to_owned(), said.collect())
}

/// Asserts the verdicts on each mode, recorded by `record` with options, a mode and `fixed` or nothing.
fn assert_verdicts(options: &[&str], mut record: impl FnMut(&[&str], &[&str]) -> (String, Vec<String>)) {
    for (mode, verdict, lock) in MODES {
        let options = if mode == "few_long" { &["--off-cpu=none"] } else { options };
        let mut found = Vec::new();
        let is_found = (0..RECORDINGS).any(|_| {
            found.push(record(options, &[mode]));
            let (name, verdicts) = &found[found.len() - 1];
            name.split(' ').any(|word| word == lock) && verdicts.first().is_some_and(|first| first == verdict)
        });
        assert!(is_found, "{mode}: {found:?}");
        let is_gone = (0..RECORDINGS).any(|_| {
            found.push(record(options, &[mode, "fixed"]));
            !found[found.len() - 1].1.iter().any(|said| said == verdict)
        });
        assert!(is_gone, "{mode} fixed: {found:?}");
    }
}

/// Asserts the verdict on a deadlock, recorded by `record` with a mode and `fixed` or nothing.
fn assert_deadlock(mut record: impl FnMut(&[&str]) -> (String, Vec<String>)) {
    // The program ends 0.2 s after the threads came for the other lock, or were about to.
    until("a recording of the deadlock in which the lock `outer` is waited for longer", || {
        let (name, verdicts) = record(&["deadlock"]);
        let is_outer = name.split(' ').any(|word| word == "outer");
        (is_outer && verdicts == ["deadlock"]).then_some(())
    });
    let (_, verdicts) = record(&["deadlock", "fixed"]);
    assert!(!verdicts.iter().any(|said| said == "deadlock"), "{verdicts:?}");
}

/// Records a mode as an ordinary user, and returns what is said.
fn of_user(place: &Place, options: &[&str], arguments: &[&str]) -> (String, Vec<String>) {
    place.run_fixture(&[&["--quiet"], options].concat(), "known_causes", arguments);
    verdicts(&place.path("t.parquet"))
}

/// As [`of_user`], as root.
fn of_root(place: &Place, options: &[&str], arguments: &[&str]) -> (String, Vec<String>) {
    let trace = place.path("t.parquet");
    let mut record = klock();
    record.args(["record", "--quiet", "-f", "-o"]).arg(&trace).args(options).arg("--");
    let ended = run(record.arg(fixture("known_causes")).args(arguments));
    assert!(ended.status.success(), "{}", ended.stderr);
    verdicts(&trace)
}

/// The options as root.
const AS_ROOT: [&str; 3] = ["--off-cpu", "--locks", "pthread"];

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn the_verdict_on_a_deadlock_is_that_when_an_ordinary_user_records() {
    let place = Place::new();
    assert_deadlock(|arguments| of_user(&place, &[], arguments));
}

#[test]
#[ignore = "needs root and gcc; run by cargo xtask test"]
fn the_verdict_on_a_deadlock_is_that_when_root_records() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let place = Place::new();
    assert_deadlock(|arguments| of_root(&place, &AS_ROOT, arguments));
}

#[test]
#[ignore = "full: other programs have a part in why a lock is waited for; one recording of four decides"]
fn the_first_verdict_is_the_cause_when_an_ordinary_user_records() {
    let place = Place::new();
    let (recorded, _) = place.run_fixture(&["--quiet"], "known_causes", &["deadlock"]);
    let sched = recorded.trace.info().sources.iter().find(|source| source.is_sched());
    if let Some(sched) = sched.filter(|sched| sched.covers == Some(Covers::None)) {
        return skip(&sched.limits[0]);
    }
    assert_verdicts(&[], |options, arguments| of_user(&place, options, arguments));
}

#[test]
#[ignore = "full: other programs have a part in why a lock is waited for; one recording of four decides"]
fn the_first_verdict_is_the_cause_when_root_records() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let place = Place::new();
    assert_verdicts(&AS_ROOT, |options, arguments| of_root(&place, options, arguments));
}

#[test]
#[ignore = "full: other programs have a part in who overtakes whom; two recordings of three, or one of five decide"]
fn queues_that_never_empty_are_convoys_and_a_thread_that_takes_its_lock_again_at_once_overtakes() {
    let place = Place::new();
    let columns = |arguments: &[&str]| {
        place.run_fixture(&["--quiet"], "known_causes", arguments);
        let columns = "wait_total,convoy_wait,overtaken_max,hog";
        let mut report = klock();
        report.args(["report", "-n", "1", "--format", "csv", "-F", columns]).arg(place.path("t.parquet"));
        let ended = run(&mut report);
        assert!(ended.status.success(), "{}", ended.stderr);
        let row = csv_rows(&ended.stdout).swap_remove(0);
        ["wait_total_ns", "convoy_wait_ns", "overtaken_max", "hog_ppm"]
            .map(|column| row[column].parse::<i64>().unwrap())
    };
    most_of(3, 1, || {
        let [waited_ns, convoy_ns, ..] = columns(&["convoy"]);
        assert!(convoy_ns * 10 >= waited_ns * 8, "{convoy_ns} of {waited_ns} ns");
    });
    // A thread that loses its processor to other programs lets a waiter in early, or lets others overtake. It
    // is not disturbed in all of five recordings.
    let overtakes = (0..5).any(|_| {
        let [.., overtaken, hog_ppm] = columns(&["hog"]);
        overtaken >= 100 && hog_ppm >= 900_000
    });
    assert!(overtakes, "fewer than 100 overtook, or not with the lock nine tenths of the time, five times");
    let overtakes_no_more = (0..5).any(|_| {
        let [.., overtaken, _] = columns(&["hog", "fixed"]);
        overtaken < 100
    });
    assert!(overtakes_no_more, "100 overtook, five times");
}
