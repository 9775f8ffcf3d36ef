//! Opens a trace without klock: pandas, polars and DuckDB read its tables with the types of the schema, and
//! the SQL query of `docs/sql` returns exactly the numbers of `klock report`.
//!
//! needs: python, gcc

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use trace_format::{LockKind, Trace, schema};
use xtask::generate::{self, Machine};

mod support;

use support::{cannot_record, csv_rows, fixture, klock, python, root, run, skip};

/// The common columns of the query and the report.
const COLUMNS: &[&str] = &[
    "max_ns",
    "wait_max_ns",
    "total_ns",
    "wait_total_ns",
    "count",
    "avg_ns",
    "wait_avg_ns",
    "cnt_hold",
    "cnt_lock",
];

/// Writes an invented trace: exclusive locks without recursion, contention, abandoned waits, holds and waits
/// that are open at the end.
fn invented(directory: &Path, lossy: bool) -> PathBuf {
    let path = directory.join("trace.parquet");
    let machine = Machine { lost_one_in: if lossy { 100 } else { 0 }, ..Machine::default() };
    generate::run(&path, 200_000, 1, &machine).expect("a trace");
    path
}

type Rows = BTreeMap<i32, BTreeMap<String, String>>;

/// Reads the common columns of CSV with a header, by `lock_id`.
fn rows(text: &str) -> Rows {
    let rows = csv_rows(text).into_iter().map(|cells| {
        let lock = cells["lock_id"].parse().expect("lock_id is a number");
        (lock, cells.into_iter().filter(|(name, _)| COLUMNS.contains(&name.as_str())).collect())
    });
    rows.collect()
}

#[track_caller]
fn assert_query_equals_report(python: &Path, trace: &Path) -> Rows {
    // The query does not use stacks, so it also has futexes that are not locks. It lacks locks that were only
    // tried.
    let idle = [LockKind::CondVar, LockKind::UserSemaphore, LockKind::Barrier, LockKind::Thread];
    let kinds: Vec<&str> =
        LockKind::ALL.iter().filter(|kind| !idle.contains(kind)).map(|kind| kind.as_str()).collect();
    let options = [
        "--by",
        "lock",
        "--idle",
        "--kind",
        &kinds.join(","),
        "--having",
        "count > 0",
        "--format",
        "csv",
        "--allow-loss",
    ];
    let by_klock = run(klock().args(["analyze", "report"]).arg(trace).args(options));
    assert!(by_klock.status.success(), "{}", by_klock.stderr);
    let by_query = run(Command::new(python)
        .arg(root().join("tests/python/run_sql.py"))
        .arg(root().join("docs/sql/report_by_lock.sql"))
        .arg(trace.parent().expect("a trace is in a directory")));
    assert!(by_query.status.success(), "{}", by_query.stderr);
    let (by_klock, by_query) = (rows(&by_klock.stdout), rows(&by_query.stdout));
    for (lock, row) in &by_klock {
        assert_eq!(row.len(), COLUMNS.len(), "a column is missing");
        assert_eq!(by_query.get(lock), Some(row), "lock #{lock}: the query (left) and klock (right) differ");
    }
    assert_eq!(by_query.len(), by_klock.len(), "the query has more rows than klock");
    by_klock
}

fn sum(rows: &Rows, column: &str) -> i64 {
    rows.values().filter_map(|row| row[column].parse::<i64>().ok()).sum()
}

#[test]
#[ignore = "full: opens tables in pandas, polars and DuckDB"]
fn pandas_polars_and_duckdb_open_every_table_with_the_types_of_the_schema() {
    let Some(python) = python() else { return skip("needs the python engines") };
    let directory = tempfile::tempdir().unwrap();
    let path = invented(directory.path(), false);
    let trace = Trace::open(&path).unwrap();
    let rows = [
        usize::try_from(trace.event_count()).unwrap(),
        trace.stacks().unwrap().len(),
        trace.locks().unwrap().len(),
        trace.tasks().unwrap().len(),
    ];
    let tables: Vec<serde_json::Value> = trace
        .paths()
        .all()
        .into_iter()
        .zip(schema::TABLES)
        .zip(rows)
        .map(|((path, (_, columns)), rows)| {
            let columns: Vec<serde_json::Value> = columns
                .iter()
                .map(|column| serde_json::json!({"name": column.name, "type": column.column_type.name()}))
                .collect();
            serde_json::json!({"path": path, "rows": rows, "columns": columns})
        })
        .collect();
    let expected = directory.path().join("expected.json");
    fs::write(&expected, serde_json::to_string(&tables).unwrap()).unwrap();
    let ended = run(Command::new(python).arg(root().join("tests/python/open_everywhere.py")).arg(expected));
    assert!(ended.status.success(), "{}{}", ended.stdout, ended.stderr);
    println!("{}", ended.stdout);
}

#[test]
#[ignore = "full: compares with DuckDB"]
fn the_documented_query_gives_klocks_report_of_an_invented_trace() {
    let Some(python) = python() else { return skip("needs the python engines") };
    let directory = tempfile::tempdir().unwrap();
    let rows = assert_query_equals_report(&python, &invented(directory.path(), false));
    assert_eq!(rows.len(), 256);
    let (count, waited, caused) = (sum(&rows, "count"), sum(&rows, "cnt_lock"), sum(&rows, "cnt_hold"));
    assert!(count > 80_000 && waited > 4_000 && caused > 4_000, "{count} {waited} {caused}");
}

#[test]
#[ignore = "full: compares with DuckDB"]
fn the_documented_query_gives_klocks_report_of_a_trace_with_loss() {
    let Some(python) = python() else { return skip("needs the python engines") };
    let directory = tempfile::tempdir().unwrap();
    let path = invented(directory.path(), true);
    assert!(Trace::open(&path).unwrap().info().loss.events() > 500);
    let rows = assert_query_equals_report(&python, &path);
    assert!(sum(&rows, "cnt_lock") > 3_000);
}

#[test]
#[ignore = "full: compares with DuckDB"]
fn the_documented_query_gives_klocks_report_of_a_recorded_program() {
    let Some(python) = python() else { return skip("needs the python engines") };
    if let Some(reason) = cannot_record() {
        return skip(reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.parquet");
    let mut record = klock();
    record.args(["record", "-o"]).arg(&path).arg("--").arg(fixture("known_counts")).args(["4", "2000", "3"]);
    let ended = run(&mut record);
    assert!(ended.status.success(), "{}", ended.stderr);
    let rows = assert_query_equals_report(&python, &path);
    assert!(sum(&rows, "count") >= 4 * 2_200, "{rows:?}");
}
