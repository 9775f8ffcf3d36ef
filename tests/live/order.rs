//! Records a program that takes locks in known orders (`fixtures/programs/known_order.c`), each mode in a
//! recording of its own, and compares the verdicts of `klock order`; and, where the definitions agree, those
//! of ThreadSanitizer.
//!
//! needs: root, gcc

use std::{collections::BTreeMap, path::Path, process::Command};

use crate::support::{Ended, cannot_record, fixture, klock, place::Place, run, skip};

/// Modes in which ThreadSanitizer's definition agrees: of these, it reports those that are inversions.
///
/// It also reports what klock does not: one thread that does both, what happens inside a further lock,
/// readers of a lock, and threads that were never alive together. A lock that was waited for with a time-out
/// is a try to it.
const SAME_BY_TSAN: [&str; 6] = ["inversion", "three", "in_try", "one_writer", "ascending", "by_try"];

/// Returns the modes of the program with their verdicts.
fn modes(program: &Path) -> BTreeMap<String, String> {
    let list = run(Command::new(program).arg("list")).stdout;
    let mode = |line: &str| line.split_once(' ').map(|(mode, verdict)| (mode.to_owned(), verdict.to_owned()));
    let modes: BTreeMap<String, String> = list.lines().filter_map(mode).collect();
    assert!(modes.len() > 10, "{list}");
    modes
}

/// Returns the cycles of a trace as JSON.
fn cycles(trace: &Path, options: &[&str]) -> (serde_json::Value, Ended) {
    let mut command = klock();
    command.args(["analyze", "order", "--all", "--format", "json"]).args(options).arg(trace);
    let ended = run(&mut command);
    let json = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr));
    (json, ended)
}

/// Returns the verdict on the only cycle of a trace; `none` if there is none.
fn verdict(trace: &Path) -> String {
    let (order, _) = cycles(trace, &[]);
    let rows = order["rows"].as_array().unwrap();
    assert!(order["cycles_total"].as_i64().unwrap() <= 1, "{order:#}");
    rows.first().map_or_else(|| "none".to_owned(), |row| row["verdict"].as_str().unwrap().to_owned())
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn each_mode_has_its_verdict_when_an_ordinary_user_records_it() {
    let place = Place::new();
    let program = place.program("known_order");
    for (mode, expected) in modes(&program) {
        place.run_fixture(&["--quiet"], "known_order", &[&mode]);
        assert_eq!(verdict(&place.path("t.parquet")), *expected, "{mode}");
    }
}

#[test]
#[ignore = "records programs; run by cargo xtask test"]
fn an_inversion_names_its_locks_sites_and_threads_and_a_deadlock_is_told_apart() {
    let place = Place::new();
    place.run_fixture(&["--quiet"], "known_order", &["inversion"]);
    let (order, ended) = cycles(&place.path("t.parquet"), &["--fail-if", "inversion"]);
    assert_eq!(ended.status.code(), Some(6), "{}", ended.stderr);
    let rows = order["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for (row, (held, taken)) in rows.iter().zip([("lock_x", "lock_y"), ("lock_y", "lock_x")]) {
        let is = |side: &str, lock: &str| {
            let name = row[side]["name"].as_str().unwrap();
            let stack: Vec<&str> =
                row[side]["stack"].as_array().unwrap().iter().filter_map(|frame| frame.as_str()).collect();
            assert!(name.contains(lock) && stack.starts_with(&["nest", "inversion"]), "{row:#}");
            assert!(row[side]["at"].as_str().unwrap().contains("known_order.c:"), "{row:#}");
        };
        // Ids are in the order of the first use.
        is("held", held);
        is("taken", taken);
        assert_eq!((row["count"].as_i64(), row["threads"].as_i64()), (Some(1), Some(1)));
        assert_eq!(row["has_deadlocked"], false);
    }
    assert_ne!(rows[0]["by"], rows[1]["by"]);
    place.run_fixture(&["--quiet"], "known_order", &["deadlock"]);
    let (order, _) = cycles(&place.path("t.parquet"), &[]);
    assert_eq!(order["rows"][0]["has_deadlocked"], true, "{order:#}");
    assert_eq!(order["trust"]["deadlocks"].as_array().unwrap().len(), 1);
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn a_call_by_uprobes_says_that_it_was_a_try() {
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("t.parquet");
    for (mode, expected) in [("by_try", "none"), ("in_try", "inversion"), ("inversion", "inversion")] {
        let mut record = klock();
        record.args(["record", "--quiet", "-f", "--locks", "pthread", "--probes", "uprobe", "-o"]);
        // The C library of a process that ends at once may have no names yet.
        let ended = run(record.arg(&trace).arg("--").arg(fixture("known_order")).args([mode, "600"]));
        assert!(ended.status.success(), "{mode}: {}", ended.stderr);
        assert_eq!(verdict(&trace), expected, "{mode}");
    }
}

#[test]
#[ignore = "full: compares with ThreadSanitizer"]
fn thread_sanitizer_reports_the_same_where_its_definition_agrees() {
    let directory = tempfile::tempdir().unwrap();
    let Ok(program) = xtask::fixture::build("known_order", directory.path(), &["-fsanitize=thread"]) else {
        return skip("gcc has no ThreadSanitizer here");
    };
    let modes = modes(&program);
    for mode in SAME_BY_TSAN {
        let ended = run(Command::new(&program).arg(mode).env("TSAN_OPTIONS", "detect_deadlocks=1"));
        if ended.stderr.contains("unexpected memory mapping") {
            return skip("ThreadSanitizer does not run on this kernel");
        }
        let reports = ended.stderr.matches("WARNING: ThreadSanitizer: lock-order-inversion").count();
        assert_eq!(reports, usize::from(modes[mode] == "inversion"), "{mode}: {}", ended.stderr);
    }
}
