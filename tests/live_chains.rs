//! Records threads that wait for each other in a chain (`fixtures/programs/known_chain.c`): the hold of the last one is the end of all
//! chains, for as long as it slept, and its thread is asleep meanwhile.
//!
//! needs: root, gcc

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

mod support;

use support::{cannot_record, csv_rows, fixture, klock, skip};

/// The threads of the program, and as many locks.
const THREADS: i64 = 5;
/// The time that the last thread sleeps.
const PAUSE_MS: i64 = 500;

/// A recording of the program.
struct Recorded {
    path: PathBuf,
    /// The time until the last thread ran again, by its own clock.
    slept_ns: i64,
    _directory: TempDir,
}

impl Recorded {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.parquet");
        let mut record = klock();
        record.args(["record", "--off-cpu", "--locks", "pthread", "-o"]).arg(&path).arg("--");
        record.arg(fixture("known_chain")).args([THREADS, PAUSE_MS].map(|number| number.to_string()));
        let ended = support::run(&mut record);
        assert!(ended.status.success(), "{}", ended.stderr);
        let slept = ended.stdout.lines().find_map(|line| line.strip_prefix("slept "));
        let slept_ns = slept.expect("the program prints it").parse().unwrap();
        Self { path, slept_ns, _directory: directory }
    }

    fn rows(&self, options: &[&str]) -> Vec<BTreeMap<String, String>> {
        rows(&self.path, options)
    }
}

fn rows(path: &Path, options: &[&str]) -> Vec<BTreeMap<String, String>> {
    let ended = support::run(klock().args(["chains", "--format", "csv"]).args(options).arg(path));
    assert!(ended.status.success(), "{}", ended.stderr);
    csv_rows(&ended.stdout)
}

fn number(row: &BTreeMap<String, String>, column: &str) -> i64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column} in {row:?}"))
}

/// Asserts that a time is another one, to 1 %.
#[track_caller]
fn assert_near(ns: i64, expected_ns: i64) {
    assert!((ns - expected_ns).abs() <= expected_ns / 100, "{ns} is not {expected_ns}");
}

#[test]
#[ignore = "needs root and gcc; run by cargo xtask test"]
fn the_last_hold_is_the_end_of_every_chain_while_its_thread_sleeps() {
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    let recorded = Recorded::new();
    let slept_ns = recorded.slept_ns;

    let roots = recorded.rows(&[]);
    let last = &roots[0];
    assert_eq!((&*last["root"], &*last["state"]), ("hold", "asleep"), "{last:?}");
    assert_eq!(last["holder_function"], "hold_last");
    assert!(last["on"].contains("sleep"), "{last:?}");
    assert_near(number(last, "root_wait_ns"), (THREADS - 1) * PAUSE_MS * 1_000_000);
    assert_near(number(last, "direct_ns"), PAUSE_MS * 1_000_000);
    assert_eq!(number(last, "deepest"), THREADS - 1);
    assert_eq!(number(last, "max_waiters"), THREADS - 1);
    // A thread whose sleep is over may have to wait for a processor.
    let of_last = roots.iter().filter(|row| row["holder_function"] == "hold_last");
    let root_wait_ns = of_last.map(|row| number(row, "root_wait_ns")).sum();
    assert_near(root_wait_ns, (THREADS - 1) * slept_ns);

    let locks = recorded.rows(&["--by", "lock"]);
    let (last, first) = (&locks[0], locks.last().unwrap());
    assert_near(number(last, "kept_ns"), slept_ns);
    assert_near(number(last, "received_ns"), (THREADS - 2) * slept_ns);
    assert_eq!(locks.len() as i64, THREADS - 1, "nobody waits for the first lock");
    assert_near(number(first, "passed_ns"), slept_ns);

    for row in recorded.rows(&["--by", "depth"]) {
        assert_near(number(&row, "root_wait_ns"), slept_ns);
    }
}
