//! Runs the notebook, docs/notebook.ipynb, cell by cell on a real trace and compares its numbers with `klock
//! analyze`; and answers milli-klockstat's questions from klock's export for it.
//!
//! needs: python

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

mod support;

use support::{csv_rows, klock, python, root, run, skip};
use xtask::generate::{self, Machine};

/// Copies the real trace to the name that the notebook reads.
fn trace(directory: &Path) -> PathBuf {
    for table in ["", ".locks", ".stacks", ".tasks"] {
        let from = root().join(format!("fixtures/traces/shop{table}.parquet"));
        fs::copy(from, directory.join(format!("trace{table}.parquet"))).unwrap();
    }
    directory.join("trace.parquet")
}

/// Numbers of rows, by their key columns.
type Rows = BTreeMap<Vec<String>, BTreeMap<String, i64>>;

fn keyed(rows: &[Value], by: &[&str], columns: &[&str]) -> Rows {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    rows.iter()
        .map(|row| {
            let key = by.iter().map(|name| text(&row[*name])).collect();
            let values =
                columns.iter().map(|name| ((*name).to_owned(), row[*name].as_i64().unwrap())).collect();
            (key, values)
        })
        .collect()
}

/// Returns the rows of one of klock's tables that have acquisitions.
fn of_klock(trace: &Path, arguments: &[&str]) -> Vec<Value> {
    rows_of_klock(trace, &[arguments, &["--having", "count > 0"]].concat())
}

fn rows_of_klock(trace: &Path, arguments: &[&str]) -> Vec<Value> {
    // The notebook does not tell idle futexes by their stacks.
    let purposes = ["--purpose", "lock,exit,park,scheduler", "--format", "json"];
    let ended = run(klock().arg("analyze").args(arguments).args(purposes).arg(trace));
    assert!(ended.status.success(), "{}", ended.stderr);
    let mut report: Value = serde_json::from_str(&ended.stdout).unwrap();
    serde_json::from_value(report["rows"].take()).unwrap()
}

#[test]
#[ignore = "full: runs the notebook in Python"]
fn the_notebook_runs_and_its_numbers_are_those_of_klock_analyze() {
    let Some(python) = python() else { return skip("needs the python engines") };
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path());
    let (other, rollups) = (directory.path().join("other.parquet"), directory.path().join("rollups"));
    generate::run(&other, 20_000, 1, &Machine::default()).unwrap();
    let ended = run(klock().args(["rollup", "--period", "1s", "-o"]).arg(&rollups).args([&trace, &other]));
    assert!(ended.status.success(), "{}", ended.stderr);
    let ended = run(Command::new(&python)
        .arg(root().join("tests/python/notebook.py"))
        .arg(root().join("docs/notebook.ipynb"))
        .arg(directory.path())
        .args([
            "attempts",
            "of_locks",
            "most_threads",
            "worst_average",
            "worst_periods",
            "of_periods",
            "one_lock",
            "users",
            "fleet_places",
            "fleet_percentiles",
            "worst_hosts",
        ]));
    assert!(ended.status.success(), "{}{}", ended.stdout, ended.stderr);
    let tables: BTreeMap<String, Vec<Value>> = serde_json::from_str(&ended.stdout).unwrap();

    let columns = &["threads", "count", "wait_total_ns", "wait_max_ns", "wait_avg_ns"][..];
    let by_lock = of_klock(&trace, &["report", "-F", "threads,count,wait_total,wait_max,wait_avg"]);
    assert_eq!(by_lock.len(), 9);
    assert_eq!(keyed(&tables["of_locks"], &["lock_id"], columns), keyed(&by_lock, &["lock_id"], columns));

    let by_task_and_lock = rows_of_klock(&trace, &["report", "--by", "task,lock", "-F", "attempts"]);
    let key = &["task_id", "lock_id"][..];
    assert_eq!(keyed(&tables["attempts"], key, &["attempts"]), keyed(&by_task_and_lock, key, &["attempts"]));
    assert!(by_task_and_lock.iter().any(|row| row["attempts"] != row["count"]), "all attempts succeed");

    // The order is the same as far as it is determined.
    let values = |rows: &[Value], name: &str| rows.iter().map(|row| row[name].clone()).collect::<Vec<_>>();
    let by_threads = of_klock(&trace, &["report", "-F", "threads", "-k", "threads"]);
    assert_eq!(values(&tables["most_threads"], "threads"), values(&by_threads, "threads"));
    let by_average = of_klock(&trace, &["report", "-F", "wait_avg", "-k", "wait_avg"]);
    assert_eq!(values(&tables["worst_average"], "lock_id"), values(&by_average, "lock_id"));

    let by_period = of_klock(&trace, &["timeline", "--worst", "--sort", "time"]);
    let key = &["start_ns", "lock_id"][..];
    assert_eq!(keyed(&tables["of_periods"], key, columns), keyed(&by_period, key, columns));
    let worst = of_klock(&trace, &["timeline", "--worst", "--by", "task,lock"]);
    let (key, columns) = (
        &["start_ns", "task_id", "lock_id"][..],
        &["count", "wait_total_ns", "wait_avg_ns", "wait_max_ns"][..],
    );
    assert_eq!(keyed(&tables["worst_periods"], key, columns), keyed(&worst, key, columns));
    assert_eq!(values(&tables["worst_periods"], "wait_avg_ns"), values(&worst, "wait_avg_ns"));

    let lock = format!("#{}", tables["one_lock"][0]["lock_id"]);
    let users = of_klock(&trace, &["report", "--lock", &lock, "--by", "task"]);
    let columns = &["count", "wait_total_ns"][..];
    assert_eq!(keyed(&tables["users"], &["tid"], columns), keyed(&users, &["tid"], columns));

    let report = run(klock()
        .args(["analyze", "report", "--by", "site", "--having", "count > 0", "--format", "json"])
        .args([&trace, &other]));
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    let (key, columns) =
        (&["place", "kind", "lock_name"][..], &["count", "wait_total_ns", "wait_max_ns"][..]);
    let of_report = keyed(report["rows"].as_array().unwrap(), key, columns);
    assert_eq!(keyed(&tables["fleet_places"], key, columns), of_report);
    for (table, query, key, columns) in [
        ("fleet_percentiles", "percentiles", &["align", "of"][..], &["n", "p50_ns", "p99_ns"][..]),
        ("worst_hosts", "worst_hosts", &["host"], &["wait_total_ns", "acquisitions"]),
    ] {
        let ended =
            run(Command::new(&python).arg(root().join("sql/fleet/fleet.py")).arg(&rollups).arg(query));
        assert!(ended.status.success(), "{}", ended.stderr);
        let worst = tables["fleet_places"][0]["align"].as_str();
        let is_shown =
            |row: &BTreeMap<String, String>| query == "percentiles" || Some(&*row["align"]) == worst;
        let mut expected = Rows::new();
        for row in csv_rows(&ended.stdout).into_iter().filter(is_shown) {
            let numbers = columns.iter().map(|column| ((*column).to_owned(), row[*column].parse().unwrap()));
            expected.insert(key.iter().map(|column| row[*column].clone()).collect(), numbers.collect());
        }
        assert_eq!(
            keyed(&tables[table], key, columns),
            expected,
            "{table} (left) and fleet.py {query} (right) differ"
        );
    }
}

#[test]
#[ignore = "full: asks a reader in Python"]
fn milli_klockstats_questions_have_the_same_answers_from_its_own_format() {
    let Some(python) = python() else { return skip("needs the python engines") };
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path());
    let log = directory.path().join("locks.log");
    let kinds = ["--kind", "pthread_mutex,pthread_rwlock,rwsem"];
    let ended =
        run(klock().args(["export", "--format", "mklockstat", "-o"]).arg(&log).args(kinds).arg(&trace));
    assert!(ended.status.success(), "{}", ended.stderr);
    let ended = run(Command::new(python).arg(root().join("tests/python/mklockstat.py")).arg(&log));
    assert!(ended.status.success(), "{}", ended.stderr);
    let found: BTreeMap<String, Value> = serde_json::from_str(&ended.stdout).unwrap();

    let by_lock = of_klock(&trace, &[&["report", "-F", "threads"][..], &kinds].concat());
    assert_eq!(found.len(), by_lock.len());
    let worst = of_klock(&trace, &[&["timeline", "--worst", "--by", "task,lock"][..], &kinds].concat());
    for row in &by_lock {
        let address = row["address"].as_str().unwrap();
        assert_eq!(found[address]["count"], row["attempts"], "{address}");
        if row["attempts"] != row["count"] {
            continue;
        }
        for column in ["threads", "wait_total_ns"] {
            assert_eq!(found[address][column], row[column], "{address} {column}");
        }
        let of_lock = worst.iter().filter(|period| period["address"] == row["address"]);
        let worst_ns = of_lock.map(|period| period["wait_avg_ns"].as_i64().unwrap()).max();
        assert_eq!(found[address]["worst_ns"].as_i64(), worst_ns, "{address}");
    }
}
