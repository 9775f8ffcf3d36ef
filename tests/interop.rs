//! A trace without klock: pandas, polars and DuckDB open its tables with the types of the schema, and the SQL query of
//! `docs/trace-format.md` makes the report that `klock analyze report` makes, to the digit. Needs the Python
//! environment that `cargo xtask setup` makes; run by `cargo xtask test`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use trace_format::{Trace, schema};

mod support;

use support::{Running, cannot_record, fixture, klock, root, run, skip};

/// The columns that the query and the report have in common.
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

fn python() -> Option<PathBuf> {
    let python = root().join("target/tools/python/bin/python3");
    python.exists().then_some(python)
}

/// An invented trace: exclusive locks without recursion, contention, abandoned waits, holds and waits open at the end.
fn invented(directory: &Path, options: &[&str]) -> PathBuf {
    let path = directory.join("trace.parquet");
    let mut generate = Command::new(env!("CARGO"));
    generate.args(["run", "--quiet", "--package", "xtask", "--", "generate", "--events", "200000", "-o"]);
    generate.arg(&path).args(options).current_dir(root());
    // It may have to be built first, and to wait for another cargo.
    let ended = Running::start(&mut generate).end_within(Duration::from_secs(600));
    assert!(ended.status.success(), "{}", ended.stderr);
    path
}

type Rows = BTreeMap<i32, BTreeMap<String, String>>;

/// CSV with a header, by `lock_id`, the common columns only.
fn rows(text: &str) -> Rows {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let head = reader.headers().expect("CSV has a header").clone();
    let rows = reader.records().map(|record| {
        let record = record.expect("every line has as many fields as the header");
        let cells: BTreeMap<String, String> =
            head.iter().zip(&record).map(|(name, cell)| (name.to_owned(), cell.to_owned())).collect();
        let lock = cells["lock_id"].parse().expect("lock_id is a number");
        (lock, cells.into_iter().filter(|(name, _)| COLUMNS.contains(&name.as_str())).collect())
    });
    rows.collect()
}

#[track_caller]
fn assert_query_equals_report(python: &Path, trace: &Path) -> Rows {
    let by_klock = run(klock().args(["analyze", "report"]).arg(trace).args([
        "--by",
        "lock",
        "--format",
        "csv",
        "--allow-loss",
    ]));
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
    assert_eq!(by_query.len(), by_klock.len(), "the query has rows that klock has not");
    by_klock
}

fn sum(rows: &Rows, column: &str) -> i64 {
    rows.values().filter_map(|row| row[column].parse::<i64>().ok()).sum()
}

#[test]
#[ignore = "needs the Python environment of cargo xtask setup; run by cargo xtask test"]
fn pandas_polars_and_duckdb_open_every_table_with_the_types_of_the_schema() {
    let Some(python) = python() else { return skip("needs the python engines") };
    let directory = tempfile::tempdir().unwrap();
    let path = invented(directory.path(), &[]);
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
#[ignore = "needs the Python environment of cargo xtask setup; run by cargo xtask test"]
fn the_documented_query_makes_klocks_report_of_an_invented_trace() {
    let Some(python) = python() else { return skip("needs the python engines") };
    let directory = tempfile::tempdir().unwrap();
    let rows = assert_query_equals_report(&python, &invented(directory.path(), &[]));
    assert_eq!(rows.len(), 256);
    let (count, waited, caused) = (sum(&rows, "count"), sum(&rows, "cnt_lock"), sum(&rows, "cnt_hold"));
    assert!(count > 80_000 && waited > 4_000 && caused > 4_000, "{count} {waited} {caused}");
}

#[test]
#[ignore = "needs the Python environment of cargo xtask setup; run by cargo xtask test"]
fn the_documented_query_makes_klocks_report_of_a_trace_with_losses() {
    let Some(python) = python() else { return skip("needs the python engines") };
    let directory = tempfile::tempdir().unwrap();
    let path = invented(directory.path(), &["--lossy"]);
    assert!(Trace::open(&path).unwrap().info().loss.events() > 500);
    let rows = assert_query_equals_report(&python, &path);
    assert!(sum(&rows, "cnt_lock") > 3_000);
}

#[test]
#[ignore = "needs root and the Python environment of cargo xtask setup; run by cargo xtask test"]
fn the_documented_query_makes_klocks_report_of_a_recorded_program() {
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
