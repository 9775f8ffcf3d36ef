//! A fleet of eight invented machines: rollups of their traces, added up by SQL on several engines, give exactly the tables that
//! klock computes from the traces.
//!
//! needs: python

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use xtask::generate::{self, Machine};

mod support;

use support::{Running, csv_rows, klock, python, root, run, skip};

const ENGINES: [&str; 4] = ["duckdb", "polars", "datafusion", "chdb"];

const QUERIES: [&str; 10] = [
    "report",
    "percentiles",
    "timeline",
    "blame",
    "worst_hosts",
    "new_locks",
    "left_out",
    "others",
    "coverage",
    "cohorts",
];

/// 2026-11-22 23:59:59.998 UTC: the traces go on after midnight.
const BEGUN_NS: i64 = 1_795_391_999_998_000_000;

/// Names that engines and file systems might take for something else.
const HOSTS: [&str; 8] = ["0012", "1e5", "a=b", "x/../y", "web\u{7}1", "web-2", "lossy", "no-holds"];

/// The traces and the rollups of the fleet, in a directory of their own.
struct Fleet {
    traces: Vec<PathBuf>,
    rollups: PathBuf,
    _directory: tempfile::TempDir,
}

impl Fleet {
    /// Records the machines: two versions, one machine that lost 6 % of its events, and one whose holds are not recorded.
    fn invented() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let rollups = directory.path().join("rollups");
        let mut traces = Vec::new();
        for (at, host) in HOSTS.into_iter().enumerate() {
            let machine = Machine {
                host: host.to_owned(),
                begun_ns: BEGUN_NS,
                lost_one_in: if host == "lossy" { 16 } else { 0 },
                holds: host != "no-holds",
                slow: if at < 4 { 1 } else { 8 },
            };
            let parent = directory.path().join(format!("machine-{at}"));
            fs::create_dir(&parent).expect("a directory");
            let path = parent.join("trace.parquet");
            generate::run_on(&path, 20_000, at as u64 + 1, &machine).expect("a trace");
            let version = if at < 4 { "version=1" } else { "version=2" };
            roll_up(&path, &rollups, &["--label", version]);
            traces.push(path);
        }
        Self { traces, rollups, _directory: directory }
    }

    /// Returns the rows of a query, by name of the column, in the order of the engine.
    fn query(&self, python: &Path, engine: &str, query: &str) -> Vec<BTreeMap<String, String>> {
        let mut command = Command::new(python);
        command.arg(root().join("sql/fleet/fleet.py")).args(["--engine", engine, "--since", "1"]);
        let ended = run(command.arg(&self.rollups).arg(query));
        assert!(ended.status.success(), "{engine} {query}: {}", ended.stderr);
        csv_rows(&ended.stdout)
    }

    /// Returns klock's own table of all traces but the one that lost too much.
    fn table(&self, arguments: &[&str]) -> Vec<BTreeMap<String, String>> {
        let mut command = klock();
        command.arg("analyze").args(arguments).args(["--format", "csv"]);
        let ended = run(command
            .args(self.traces.iter().zip(HOSTS).filter(|(_, host)| *host != "lossy").map(|(path, _)| path)));
        assert!(ended.status.success(), "{}", ended.stderr);
        csv_rows(&ended.stdout)
    }
}

/// Writes the rollups of a trace.
fn roll_up(trace: &Path, rollups: &Path, arguments: &[&str]) {
    let ended = run(klock()
        .arg("rollup")
        .arg(trace)
        .arg("-o")
        .arg(rollups)
        .args(["--period", "1ms"])
        .args(arguments));
    assert!(ended.status.success(), "{}", ended.stderr);
}

/// Returns the values of some columns of all rows, sorted. Each name may have another one in the second table.
fn sorted(rows: &[BTreeMap<String, String>], columns: &[&str]) -> Vec<Vec<String>> {
    let value = |row: &BTreeMap<String, String>, column: &str| row[column].clone();
    let mut values: Vec<Vec<String>> =
        rows.iter().map(|row| columns.iter().map(|column| value(row, column)).collect()).collect();
    values.sort();
    values
}

#[test]
#[ignore = "needs the Python environment of cargo xtask setup; run by cargo xtask test"]
fn all_engines_give_the_same_rows_and_those_are_klocks_own() {
    let Some(python) = python() else { return skip("needs the python engines") };
    let fleet = Fleet::invented();
    let mut found = BTreeMap::new();
    for query in QUERIES {
        let [first, others @ ..] = ENGINES;
        let expected = fleet.query(&python, first, query);
        assert!(!expected.is_empty(), "{query} has no rows");
        for engine in others {
            let rows = fleet.query(&python, engine, query);
            assert_eq!(rows, expected, "{query}: {engine} (left) and {first} (right) differ");
        }
        found.insert(query, expected);
    }

    let place = ["file", "line", "function", "place", "kind", "lock_name"];
    let report = fleet.table(&["report", "--by", "site"]);
    let sums = [
        "max_ns",
        "wait_max_ns",
        "total_ns",
        "wait_total_ns",
        "wait_caused_ns",
        "cnt_hold",
        "cnt_lock",
        "avg_ns",
        "wait_avg_ns",
    ];
    let columns = [&place[..], &sums[..]].concat();
    assert_eq!(
        sorted(&found["report"], &[&columns[..], &["acquisitions"]].concat()),
        sorted(&report, &[&columns[..], &["count"]].concat())
    );

    let blame = fleet.table(&["blame", "--by", "pair"]);
    let columns = [
        "charged_to",
        "holder_place",
        "holder_lock_name",
        "waiter_place",
        "waiter_lock_name",
        "wait_caused_ns",
        "shares",
        "longest_ns",
    ];
    assert_eq!(sorted(&found["blame"], &columns), sorted(&blame, &columns));

    let waiting = |rows: &[BTreeMap<String, String>], column: &str| {
        rows.iter().map(|row| row[column].parse::<i64>().unwrap_or(0)).sum::<i64>()
    };
    let timeline = fleet.table(&["timeline", "--by", "kind"]);
    assert_eq!(waiting(&found["timeline"], "waiting_ns"), waiting(&timeline, "wait_ns"));
    assert_eq!(waiting(&found["timeline"], "holding_ns"), waiting(&timeline, "hold_ns"));

    // The percentiles of the class of each lock, from the buckets of the histogram.
    for of in ["wait", "hold"] {
        let histogram = fleet.table(&["hist", "--by", "class", "--buckets", "hdr", "--of", of]);
        let mut by_class: BTreeMap<String, Vec<(i64, i64)>> = BTreeMap::new();
        for row in &histogram {
            let bucket = (row["to_ns"].parse().expect("a time"), row["count"].parse().expect("a count"));
            by_class.entry(row["name"].clone()).or_default().push(bucket);
        }
        let p99 = |buckets: &[(i64, i64)]| {
            let total: i64 = buckets.iter().map(|(_, n)| n).sum();
            let mut up_to = 0;
            buckets
                .iter()
                .find(|(_, n)| {
                    up_to += n;
                    up_to * 100 >= total * 99
                })
                .map(|(end_ns, _)| end_ns.to_string())
        };
        for row in found["percentiles"].iter().filter(|row| row["of"] == of) {
            assert_eq!(Some(row["p99_ns"].clone()), p99(&by_class[&row["align"]]), "{row:?}");
        }
    }

    let hosts = |query: &str| found[query].iter().map(|row| row["host"].as_str()).collect::<Vec<_>>();
    assert_eq!(hosts("left_out"), ["lossy"]);
    assert_eq!(
        hosts("coverage"),
        ["0012", "1e5", "a=b", "lossy", "no-holds", "web-2", "web\\u{7}1", "x/../y"]
    );
    assert!(found["cohorts"].iter().all(|row| row["label"] == "version"));
    // Machines of version 2 hold one of the locks eight times as long: on average it is waited for longest there.
    let waits = |cohort: &str| {
        found["cohorts"]
            .iter()
            .filter(|row| row["cohort"] == cohort && row["align"].contains("lock_020"))
            .map(|row| row["wait_total_ns"].parse::<i64>().unwrap_or(0))
            .sum::<i64>()
    };
    assert!(waits("2") > 4 * waits("1"), "{} {}", waits("1"), waits("2"));
}

#[test]
#[ignore = "needs the Python environment of cargo xtask setup; run by cargo xtask test"]
fn spark_as_a_cluster_gives_the_rows_of_duckdb() {
    let Some(python) = python() else { return skip("needs the python engines") };
    if Command::new("java").arg("-version").output().is_err() {
        return skip("needs java");
    }
    let place = "import os, pyspark; print(os.path.dirname(pyspark.__file__))";
    let home = run(Command::new(&python).args(["-c", place]));
    let fleet = Fleet::invented();
    let tables = fleet.rollups.with_file_name("tables");
    let mut command = Command::new(&python);
    command.env("SPARK_MASTER", "local-cluster[2,1,1024]").env("SPARK_HOME", home.stdout.trim());
    command.arg(root().join("sql/fleet/fleet.py")).args(["--engine", "spark", "--since", "1", "-o"]);
    command.arg(&tables).arg(&fleet.rollups).args(QUERIES);
    let ended = Running::start(&mut command).end_within(Duration::from_secs(1200));
    assert!(ended.status.success(), "{}", ended.stderr);
    for query in QUERIES {
        let found = fs::read_to_string(tables.join(format!("{query}.csv"))).expect("a table");
        assert_eq!(csv_rows(&found), fleet.query(&python, "duckdb", query), "{query}");
    }
}

#[test]
#[ignore = "needs the Python environment of cargo xtask setup; run by cargo xtask test"]
fn a_trace_that_is_rolled_up_twice_counts_once_and_a_cut_keeps_the_totals() {
    let Some(python) = python() else { return skip("needs the python engines") };
    let fleet = Fleet::invented();
    let (before, totals) =
        (fleet.query(&python, "duckdb", "report"), fleet.query(&python, "duckdb", "timeline"));
    for (trace, at) in fleet.traces.iter().zip(0..) {
        roll_up(trace, &fleet.rollups, &["--label", if at < 4 { "version=1" } else { "version=2" }]);
    }
    assert_eq!(fleet.query(&python, "duckdb", "report"), before);
    for trace in &fleet.traces {
        roll_up(trace, &fleet.rollups, &["--keys", "3"]);
    }
    assert_eq!(fleet.query(&python, "duckdb", "timeline"), totals);
    let others = fleet.query(&python, "duckdb", "others");
    assert!(others.iter().all(|row| row["others_ppm"].parse::<i64>().is_ok_and(|ppm| ppm > 0)), "{others:?}");
}
