//! Records a program whose phases end with joins (`fixtures/programs/known_joins.c`), as an ordinary user
//! may: the path of the main thread leads through the longest thread of each phase, for as long as the
//! program measured, and a replay starts the next phase when the threads of the one before have ended.
//!
//! needs: gcc

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use tempfile::TempDir;
use trace_format::Trace;

use crate::support::{
    self, CLOCKS_NS, cannot_record, csv_rows, fixture, klock, most_of, number, skip, until,
};

const PHASES: i64 = 8;
const US: i64 = 20_000;

/// Records the program with so many threads into a file without loss, and returns the numbers that it prints.
fn recorded(directory: &TempDir, threads: i64) -> (PathBuf, BTreeMap<String, i64>) {
    let trace = directory.path().join("t.parquet");
    let ended = until("a recording without loss", || {
        let mut record = klock();
        record.args(["record", "--locks", "pthread", "--off-cpu=none", "-f", "-o"]).arg(&trace);
        record.arg("--").arg(fixture("known_joins"));
        let ended = support::run(record.args([PHASES, US, 100, threads].map(|number| number.to_string())));
        assert!(ended.status.success(), "{}", ended.stderr);
        let recorded = Trace::open(&trace).unwrap();
        let loss = &recorded.info().loss;
        (loss.events() + loss.late == 0).then_some(ended)
    });
    let pair = |line: &str| {
        let (name, number) = line.split_once(' ')?;
        Some((name.to_owned(), number.parse().ok()?))
    };
    (trace, ended.stdout.lines().filter_map(pair).collect())
}

fn table(trace: &Path, words: &[&str]) -> String {
    let ended = support::run(klock().args(words).arg(trace));
    assert!(ended.status.success(), "{}", ended.stderr);
    ended.stdout
}

fn json(trace: &Path, words: &[&str]) -> serde_json::Value {
    serde_json::from_str(&table(trace, &[words, &["--format", "json"]].concat())).unwrap()
}

/// Checks that a number is within 2 % of the truth, and a time that others took of the processors.
#[track_caller]
fn assert_near(found: i64, truth: i64, others_ns: i64, document: &impl std::fmt::Debug) {
    assert!((found - truth).abs() <= truth / 50 + others_ns, "{found} is not {truth}: {document:?}");
}

/// Returns the time from ends of threads until those who waited for them had joined them: others had the
/// processors then.
fn wake_ups_ns(trace: &Path) -> i64 {
    let rows =
        csv_rows(&table(trace, &["analyze", "events", "--idle", "--kind", "thread", "--format", "csv"]));
    let mut woke = BTreeMap::new();
    let mut sum = 0;
    for row in &rows {
        match &*row["event"] {
            "wake" => drop(woke.insert(&row["lock_id"], number(row, "time_ns"))),
            "acquire" if row["wait_ns"] != "0" => sum += number(row, "time_ns") - woke[&row["lock_id"]],
            _ => {}
        }
    }
    sum
}

#[test]
#[ignore = "needs gcc; run by cargo xtask test"]
fn a_path_goes_on_at_threads_that_are_joined() {
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    let directory = tempfile::tempdir().unwrap();
    let (trace, truth) = recorded(&directory, 3);

    let rows = csv_rows(&table(&trace, &["critical", "--format", "csv"]));
    let path = |name: &str| rows.iter().find(|row| row["name"].contains(name)).expect(name);
    let clocks_ns = PHASES * CLOCKS_NS;
    let fits = truth["slow"] - clocks_ns..=truth["slow_at_most"] + clocks_ns;
    assert!(fits.contains(&number(path(" slow "), "path_ns")), "not in {fits:?}: {rows:?}");
    assert_eq!(number(path(" slow "), "waited_ns"), 0, "{rows:?}");
    let document = json(&trace, &["critical"]);
    let part = |name: &str| document["totals"][name].as_i64().unwrap();
    // Beside the longest threads, the path has the start of the process and the main thread, which only
    // creates and joins.
    let start_ns = part("path_ns") - truth["wall"];
    assert!(start_ns >= 0, "{document}");
    let threads_ns = part("in_locks_ns") + part("no_lock_ns") - start_ns;
    let fits = truth["longest"] + truth["between"] - 2 * clocks_ns..=truth["wall"];
    assert!(fits.contains(&threads_ns), "{threads_ns} is not in {fits:?}: {document}");
    assert_eq!([part("idle_ns"), part("waiting_ns"), part("before_ns")], [0, 0, 0], "{document}");

    // A join is no contention.
    let report = csv_rows(&table(&trace, &["report", "--format", "csv"]));
    assert!(report.iter().all(|row| !row["name"].contains("(thread)")), "{report:?}");
    let joins = csv_rows(&table(&trace, &["report", "--kind", "thread", "--by", "kind", "--format", "csv"]));
    assert_eq!(number(&joins[0], "count"), 3 * PHASES, "{joins:?}");
}

#[test]
#[ignore = "full: threads may lose their processors between the clocks of the program and their ends"]
fn a_phase_of_a_replay_begins_when_the_longest_thread_of_the_one_before_has_ended() {
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    most_of(3, 1, || {
        let directory = tempfile::tempdir().unwrap();
        // A replay takes their sleep for work: three threads on two processors would take longer.
        let (trace, truth) = recorded(&directory, 2);
        let run_ns = |factor: &str| {
            let document = json(&trace, &["whatif", "--hold", factor]);
            document["rows"][0]["run_ns"].as_i64().unwrap()
        };
        let (unchanged_ns, wake_ups_ns) = (run_ns("slow=1"), wake_ups_ns(&trace));
        for (factor, gain) in [("slow=0.5", "half"), ("slow=0", "none")] {
            assert_near(run_ns(factor), unchanged_ns - truth[gain], wake_ups_ns, &(factor, &truth));
        }
    });
}
