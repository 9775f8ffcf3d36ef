//! A fleet of eight invented machines: rollups of their traces, added up by SQL on several engines, give
//! exactly the tables that klock computes from the traces.
//!
//! needs: python, java

use std::{collections::BTreeMap, path::Path, process::Command};

#[path = "fleet/cluster.rs"]
mod cluster;
#[path = "fleet/invented.rs"]
mod invented;
#[path = "fleet/model.rs"]
mod model;
mod support;

use invented::{ENGINES, Fleet, QUERIES, Rows, roll_up};
use support::{csv_rows, klock, python, root, run, skip};

/// Returns the values of some columns of all rows, sorted. Each name may have another one in the second
/// table.
fn sorted(rows: &Rows, columns: &[&str]) -> Vec<Vec<String>> {
    let value = |row: &BTreeMap<String, String>, column: &str| row[column].clone();
    let mut values: Vec<Vec<String>> =
        rows.iter().map(|row| columns.iter().map(|column| value(row, column)).collect()).collect();
    values.sort();
    values
}

/// Returns the rows of the queries, which are the same on all engines.
fn same_on_all_engines(python: &Path, fleet: &Fleet, queries: &[&str]) -> BTreeMap<String, Rows> {
    let [first, others @ ..] = ENGINES;
    let expected = fleet.tables(python, first, queries);
    for engine in others {
        let found = fleet.tables(python, engine, queries);
        for query in queries {
            assert!(!expected[*query].is_empty(), "{query} has no rows");
            assert_eq!(
                found[*query], expected[*query],
                "{query}: {engine} (left) and {first} (right) differ"
            );
        }
    }
    expected
}

#[test]
#[ignore = "full: compares with DuckDB, polars, DataFusion and chDB"]
fn all_engines_give_the_same_rows_and_those_are_klocks_own() {
    let Some(python) = python() else { return skip("needs the python engines") };
    let fleet = Fleet::invented();
    let found = same_on_all_engines(&python, &fleet, &QUERIES);
    for (query, expected) in model::tables(&fleet) {
        let columns: Vec<&str> = expected[0].keys().map(String::as_str).collect();
        assert_eq!(
            sorted(&found[query], &columns),
            sorted(&expected, &columns),
            "{query} (left) and its model (right) differ"
        );
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

    let waiting = |rows: &Rows, column: &str| {
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
    // Machines of version 2 hold one of the locks eight times as long: on average it is waited for longest
    // there.
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
#[ignore = "full: asks DuckDB"]
fn a_trace_that_is_rolled_up_twice_counts_once_and_a_cut_keeps_the_totals() {
    let Some(python) = python() else { return skip("needs the python engines") };
    let fleet = Fleet::invented();
    let (before, totals) = (fleet.query(&python, "report"), fleet.query(&python, "timeline"));
    for (trace, at) in fleet.traces.iter().zip(0..) {
        roll_up(trace, &fleet.rollups, &["--label", if at < 4 { "version=1" } else { "version=2" }]);
    }
    assert_eq!(fleet.query(&python, "report"), before);
    for trace in &fleet.traces {
        roll_up(trace, &fleet.rollups, &["--keys", "3"]);
    }
    assert_eq!(fleet.query(&python, "timeline"), totals);
    let others = fleet.query(&python, "others");
    assert!(others.iter().all(|row| row["others_ppm"].parse::<i64>().is_ok_and(|ppm| ppm > 0)), "{others:?}");
}

#[test]
#[ignore = "full: compares with DuckDB, polars, DataFusion and chDB"]
fn rollups_of_an_older_klock_and_sums_beyond_64_bits_are_added_up_by_all_engines() {
    let Some(python) = python() else { return skip("needs the python engines") };
    let fleet = Fleet::invented();
    let before = fleet.tables(&python, "duckdb", &QUERIES);
    // An older klock did not know these columns, and no query needs them.
    let older = fleet.rollups.join("facts/date=2026-11-23/0012-00000000000000000000000000000001.parquet");
    let script = "import sys, pyarrow.parquet as parquet\n\
                  path, dropped = sys.argv[1], sys.argv[2:]\n\
                  table = parquet.ParquetFile(path).read()\n\
                  parquet.write_table(table.drop_columns(dropped), path)";
    let dropped = ["max_waiters", "gap_ns", "spin_ns", "blocked_ns", "runq_ns"];
    let ended = run(Command::new(&python).args(["-c", script]).arg(&older).args(dropped));
    assert!(ended.status.success(), "{}", ended.stderr);
    let beyond = fleet.directory().join("beyond.sql");
    // The sum of a column of one host only, and one of 3 times 2^62 for each row: 2^63 is 292 years.
    let sql = "SELECT host, MAX(max_waiters) AS most, \
               SUM(CAST(count * 0 + 4611686018427387904 AS DECIMAL(38, 0))) AS years FROM facts GROUP BY host ORDER BY host";
    std::fs::write(&beyond, sql).expect("a query");
    let beyond = beyond.to_str().expect("a path");
    let found = same_on_all_engines(&python, &fleet, &[&QUERIES[..], &[beyond]].concat());
    for query in QUERIES {
        assert_eq!(found[query], before[query], "{query}");
    }
    let rows = fleet.query(&python, beyond);
    assert_eq!(rows.len(), invented::HOSTS.len());
    let most = |host: &str| rows.iter().find(|row| row["host"] == host).map(|row| row["most"].clone());
    assert!(most("1e5").is_some_and(|most| !most.is_empty()));
    for row in &rows {
        let years: u128 = row["years"].parse().expect("a whole number");
        assert!(years > 1 << 63 && years.is_multiple_of(1 << 62), "{row:?}");
    }
}

#[test]
#[ignore = "full: asks DuckDB"]
fn cohorts_are_compared_host_by_host() {
    let Some(python) = python() else { return skip("needs the python engines") };
    let fleet = Fleet::invented();
    let side = |version: &str| {
        let path = fleet.directory().join(format!("{version}.parquet"));
        let mut command = Command::new(&python);
        command.arg(root().join("sql/fleet/fleet.py")).args(["--cohort", version, "-o"]);
        let ended = run(command.arg(&path).arg(&fleet.rollups).arg("cohorts"));
        assert!(ended.status.success(), "{}", ended.stderr);
        path
    };
    let sides = ["version=1", "version=2"].map(side);
    let ended = run(klock().args(["analyze", "diff", "--format", "csv", "--all"]).args(&sides));
    assert!(ended.status.success(), "{}", ended.stderr);
    let found = csv_rows(&ended.stdout);
    let changed = |lock: &str, metric: &str| {
        found.iter().find(|row| row["name"].contains(lock) && row["metric"] == metric).expect("a row").clone()
    };

    // Each rate is a sum over the hosts of a version by the time of all of them.
    let hosts = fleet.query(&python, "cohorts");
    for (cohort, column) in [("1", "base"), ("2", "new")] {
        let of_cohort = || hosts.iter().filter(|row| row["cohort"] == cohort);
        let number = |row: &BTreeMap<String, String>, column: &str| row[column].parse::<f64>().unwrap_or(0.0);
        let spans: BTreeMap<&str, f64> =
            of_cohort().map(|row| (&*row["host"], number(row, "recorded_ns"))).collect();
        for lock in ["lock_000", "lock_020"] {
            let waits: f64 = of_cohort()
                .filter(|row| row["align"].contains(lock))
                .map(|row| number(row, "wait_total_ns"))
                .sum();
            let expected = (waits / spans.values().sum::<f64>() * 1e9).round();
            assert_eq!(number(&changed(lock, "wait_total"), column), expected, "{lock} {cohort}");
        }
    }
    let total = changed("lock_020", "total");
    assert!(total["change_ppm"].parse::<i64>().is_ok_and(|ppm| ppm > 4_000_000), "{total:?}");
    for (arguments, words) in [
        (&["-k", "wait_p99"][..], "their files have sums only"),
        (&["--by", "kind"], "cannot select or group locks in files of hosts"),
        (&["--lock", "lock_020"], "cannot select or group locks in files of hosts"),
    ] {
        let ended = run(klock().args(["analyze", "diff"]).args(arguments).args(&sides));
        assert!(!ended.status.success() && ended.stderr.contains(words), "{}", ended.stderr);
    }
}
