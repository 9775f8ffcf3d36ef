//! The fleet of eight invented machines, its rollups, and the two ways to ask about them: SQL over the
//! rollups, klock over the traces.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use xtask::generate::{self, Machine};

use super::support::{Running, csv_rows, klock, root, run};

/// The rows of a table, by name of the column.
pub(crate) type Rows = Vec<BTreeMap<String, String>>;

pub(crate) const ENGINES: [&str; 4] = ["duckdb", "polars", "datafusion", "chdb"];

/// A cluster of two executors, which are processes of their own.
pub(crate) const CLUSTER: &str = "local-cluster[2,1,1024]";

pub(crate) const QUERIES: [&str; 10] = [
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
pub(crate) const BEGUN_NS: i64 = 1_795_391_999_998_000_000;

/// Names that engines and file systems might take for something else.
pub(crate) const HOSTS: [&str; 8] =
    ["0012", "1e5", "a=b", "x/../y", "web\u{7}1", "web-2", "lossy", "no-holds"];

/// The traces and the rollups of the fleet, in a directory of their own.
pub(crate) struct Fleet {
    pub(crate) traces: Vec<PathBuf>,
    pub(crate) rollups: PathBuf,
    directory: tempfile::TempDir,
}

impl Fleet {
    /// Records the machines: two versions, one machine that lost 6 % of its events, and one whose holds are
    /// not recorded.
    pub(crate) fn invented() -> Self {
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
                ..Machine::default()
            };
            let parent = directory.path().join(format!("machine-{at}"));
            fs::create_dir(&parent).expect("a directory");
            let path = parent.join("trace.parquet");
            generate::run(&path, 20_000, at as u64 + 1, &machine).expect("a trace");
            let version = if at < 4 { "version=1" } else { "version=2" };
            roll_up(&path, &rollups, &["--label", version]);
            traces.push(path);
        }
        Self { traces, rollups, directory }
    }

    /// Returns the rows of some queries, in the order of the engine.
    pub(crate) fn tables(&self, python: &Path, engine: &str, queries: &[&str]) -> BTreeMap<String, Rows> {
        let tables = self.rollups.with_file_name("tables").join(engine);
        let mut command = Command::new(python);
        if engine == "spark" {
            spark(&mut command, python, CLUSTER);
        }
        command.arg(root().join("sql/fleet/fleet.py")).args(["--engine", engine, "--since", "1", "-o"]);
        command.arg(&tables).arg(&self.rollups).args(queries);
        let ended = Running::start(&mut command).end_within(Duration::from_secs(1200));
        assert!(ended.status.success(), "{engine}: {}", ended.stderr);
        let read = |query: &&str| {
            let path = tables.join(Path::new(query).with_extension("csv").file_name().expect("a name"));
            ((*query).to_owned(), csv_rows(&fs::read_to_string(path).expect("a table")))
        };
        queries.iter().map(read).collect()
    }

    /// Returns the rows of a query in DuckDB.
    pub(crate) fn query(&self, python: &Path, query: &str) -> Rows {
        self.tables(python, "duckdb", &[query]).remove(query).expect("its table")
    }

    /// Returns klock's own table of all traces but the one that lost too much.
    pub(crate) fn table(&self, arguments: &[&str]) -> Rows {
        let counted = self.traces.iter().zip(HOSTS).filter(|(_, host)| *host != "lossy");
        table(counted.map(|(path, _)| path), arguments)
    }

    /// Returns the directory that tests may use beside the traces.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }
}

/// Lets a command use this Spark.
pub(crate) fn spark<'c>(command: &'c mut Command, python: &Path, master: &str) -> &'c mut Command {
    let place = "import os, pyspark; print(os.path.dirname(pyspark.__file__))";
    let home = run(Command::new(python).args(["-c", place]));
    command.env("SPARK_MASTER", master).env("SPARK_HOME", home.stdout.trim())
}

/// Returns klock's own table of these traces.
pub(crate) fn table<'a>(traces: impl IntoIterator<Item = &'a PathBuf>, arguments: &[&str]) -> Rows {
    let mut command = klock();
    command.arg("analyze").args(arguments).args(["--format", "csv"]).args(traces);
    let ended = run(&mut command);
    assert!(ended.status.success(), "{}", ended.stderr);
    csv_rows(&ended.stdout)
}

/// Writes the rollups of a trace.
pub(crate) fn roll_up(trace: &Path, rollups: &Path, arguments: &[&str]) {
    let ended = run(klock()
        .arg("rollup")
        .arg(trace)
        .arg("-o")
        .arg(rollups)
        .args(["--period", "1ms"])
        .args(arguments));
    assert!(ended.status.success(), "{}", ended.stderr);
}
