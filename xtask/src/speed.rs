//! `cargo xtask speed`: measures the time of a report, and of the same query in DuckDB and polars on the same file.
//! All three tables must have the same numbers.
//!
//! klock's time is that of the whole program; the others' is that of their query alone. All use every processor. The
//! fastest of some rounds counts.

use std::{collections::BTreeMap, fs, path::Path, thread};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use trace_format::Trace;

use crate::{
    bench::{Timed, fastest},
    fixture, generate,
    harness::{Common, Harness, verdict},
    process::{Run, root, scratch},
    setup, table,
};

/// Measure reports.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Events of the invented trace.
    #[arg(long, default_value_t = 20_000_000)]
    events: u64,
    /// Events of a second invented trace, for klock's time and memory alone; 0 for none.
    #[arg(long, default_value_t = 200_000_000)]
    long: u64,
    /// Number of rounds.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    #[command(flatten)]
    common: Common,
}

/// Measures and prints. Returns whether every budget is reached.
pub(crate) fn run(options: &Options) -> Result<bool> {
    ensure!(
        setup::python().exists(),
        "cannot run DuckDB and polars: no Python environment; run cargo xtask setup"
    );
    let harness = Harness::new("speed", &options.common, &["gcc"])?;
    let klock = &harness.klock;
    let threads = thread::available_parallelism()?.get();

    let invented = scratch("speed-invented")?;
    generate::run(&invented.join("trace.parquet"), options.events, 1, false)?;
    let real = scratch("speed-real")?;
    record(klock, &real)?;
    let mut rows = Vec::new();
    let mut verdicts = Vec::new();
    for (name, directory, budgets) in [("invented", &invented, INVENTED), ("real", &real, REAL)] {
        let measured = Measured::of(klock, directory, threads, options.rounds)?;
        measured.rows(name, directory, &mut rows)?;
        measured.verdicts(name, &budgets, &mut verdicts);
    }
    if options.long > 0 {
        let long = scratch("speed-long")?;
        generate::run(&long.join("trace.parquet"), options.long, 1, false)?;
        let report = report(klock, &long, &[])?;
        rows.push(row("long", &long, "klock analyze report --by site", report.seconds, Some(report.mib))?);
        let spread = report_of(klock, &long, &["-F", "count,p50,p99,wait_p99"])?;
        rows.push(row("long", &long, "the same with -F p50,p99,wait_p99", spread.seconds, Some(spread.mib))?);
        verdicts.push(memory("memory for the long trace", report.mib.max(spread.mib), INVENTED.mib));
    }
    let head = ["trace", "events", "what", "seconds", "ns per event", "peak MiB"];
    let budgets = table::markdown(&["what", "measured", "budget", "reached"], &verdicts);
    let text = format!("{}\n{budgets}", table::markdown(&head, &rows));
    let command =
        format!("speed --events {} --long {} --rounds {}", options.events, options.long, options.rounds);
    harness.publish(&command, "benchmarks.md", "speed", &text)?;
    Ok(verdicts.iter().all(|verdict| verdict[3] == "yes"))
}

fn memory(what: &str, mib: f64, budget: f64) -> Vec<String> {
    verdict(what, format!("{mib:.0} MiB"), format!("{budget:.0} MiB"), mib <= budget)
}

/// The budgets of a report.
struct Budgets {
    /// The least number of times that it is as fast as DuckDB's query.
    query: f64,
    /// The most times that it takes as long as DuckDB's sum of every column.
    sum: f64,
    /// The most memory.
    mib: f64,
}

/// The budgets for traces of many locks.
const INVENTED: Budgets = Budgets { query: 4.0, sum: 3.0, mib: 286.0 };
/// The budgets for a recorded trace with one hot lock.
const REAL: Budgets = Budgets { query: 8.0, sum: 2.0, mib: 50.0 };

/// Records a real program: four threads and over ten million events, about half of them on one mutex.
fn record(klock: &Path, directory: &Path) -> Result<()> {
    let program = fixture::build("known_counts", directory, &[])?;
    let trace = directory.join("trace.parquet");
    let record = Run::new(klock, &["record", "--quiet", "--lossless", "--locks", "pthread", "-f", "-o"]);
    record.arg(&trace).arg("--").arg(&program).args(["4", "1400000", "3"]).must()?;
    let trace = Trace::open(&trace)?;
    let (events, lost) = (trace.event_count(), trace.info().loss.events());
    ensure!(lost == 0, "cannot compare the queries: {lost} events of the real trace were lost");
    ensure!(events >= 10_000_000, "cannot measure: the real trace has only {events} events");
    Ok(())
}

/// The fastest runs on one trace.
struct Measured {
    report: Timed,
    duckdb_s: f64,
    polars_s: f64,
    sum_s: f64,
}

impl Measured {
    fn of(klock: &Path, directory: &Path, threads: usize, rounds: u32) -> Result<Self> {
        let infinite = f64::INFINITY;
        let mut best = Self {
            report: Timed { seconds: infinite, processor_s: infinite, mib: 0.0 },
            duckdb_s: infinite,
            polars_s: infinite,
            sum_s: infinite,
        };
        for _ in 0..rounds.max(1) {
            let timed = report(klock, directory, &[])?;
            if timed.seconds < best.report.seconds {
                best.report = timed;
            }
            best.duckdb_s = best.duckdb_s.min(sql(directory, "report_by_site.sql", "duckdb.csv", threads)?);
            best.polars_s = best.polars_s.min(polars(directory)?);
            best.sum_s = best.sum_s.min(sql(directory, "sum_columns.sql", "sum.csv", threads)?);
        }
        same(directory)?;
        Ok(best)
    }

    fn rows(&self, name: &str, directory: &Path, rows: &mut Vec<Vec<String>>) -> Result<()> {
        for (what, seconds, mib) in [
            ("klock analyze report --by site", self.report.seconds, Some(self.report.mib)),
            ("DuckDB, [sql/report_by_site.sql](sql/report_by_site.sql)", self.duckdb_s, None),
            ("polars, [sql/report_by_site.py](sql/report_by_site.py)", self.polars_s, None),
            ("DuckDB sums every column, [sql/sum_columns.sql](sql/sum_columns.sql)", self.sum_s, None),
        ] {
            rows.push(row(name, directory, what, seconds, mib)?);
        }
        Ok(())
    }

    fn verdicts(&self, name: &str, budgets: &Budgets, verdicts: &mut Vec<Vec<String>>) {
        let (duckdb, sum) = (self.duckdb_s / self.report.seconds, self.report.seconds / self.sum_s);
        let of_trace = |what: &str| format!("{what}, {name} trace");
        for (what, measured, budget, reached) in [
            (
                "as fast as DuckDB's query",
                format!("{duckdb:.1} times"),
                budgets.query,
                duckdb >= budgets.query,
            ),
            (
                "time against DuckDB's sum of every column",
                format!("{sum:.2} times"),
                budgets.sum,
                sum <= budgets.sum,
            ),
        ] {
            verdicts.push(verdict(&of_trace(what), measured, format!("{budget} times"), reached));
        }
        verdicts.push(memory(&of_trace("memory"), self.report.mib, budgets.mib));
    }
}

fn row(name: &str, directory: &Path, what: &str, seconds: f64, mib: Option<f64>) -> Result<Vec<String>> {
    let events = Trace::open(&directory.join("trace.parquet"))?.event_count();
    Ok(vec![
        name.to_owned(),
        events.to_string(),
        what.to_owned(),
        format!("{seconds:.2}"),
        format!("{:.0}", seconds * 1e9 / events.max(1) as f64),
        mib.map_or_else(String::new, |mib| format!("{mib:.0}")),
    ])
}

/// Runs klock once and keeps its table in the directory.
fn report(klock: &Path, directory: &Path, more: &[&str]) -> Result<Timed> {
    let csv = directory.join("klock.csv").display().to_string();
    report_of(klock, directory, &[&["--format", "csv", "-f", "-o", &csv], more].concat())
}

fn report_of(klock: &Path, directory: &Path, more: &[&str]) -> Result<Timed> {
    let trace = directory.join("trace.parquet").display().to_string();
    let klock = klock.display().to_string();
    fastest(&[&[&*klock, "analyze", "report", &trace, "--by", "site"], more].concat(), 1)
}

/// Returns the seconds of a query in DuckDB.
fn sql(directory: &Path, query: &str, table: &str, threads: usize) -> Result<f64> {
    let script = root().join("tests/python/run_sql.py").display().to_string();
    let query = root().join("docs/sql").join(query).display().to_string();
    python(&[&script, "--seconds", &threads.to_string(), &query], directory, table)
}

fn polars(directory: &Path) -> Result<f64> {
    let script = root().join("docs/sql/report_by_site.py").display().to_string();
    python(&[&script], directory, "polars.csv")
}

/// Runs a script on the directory, keeps the table that it prints there, and returns the seconds that it measured.
fn python(words: &[&str], directory: &Path, table: &str) -> Result<f64> {
    let output = std::process::Command::new(setup::python())
        .args(words)
        .arg(directory)
        .output()
        .with_context(|| words.join(" "))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{}: {errors}", words.join(" "));
    }
    fs::write(directory.join(table), &output.stdout).with_context(|| table.to_owned())?;
    errors.trim().parse().with_context(|| format!("{}: no seconds in '{errors}'", words.join(" ")))
}

/// Checks that the columns that all three tables have are equal.
fn same(directory: &Path) -> Result<()> {
    let mut klock = rows(&directory.join("klock.csv"))?;
    // The queries leave out sites whose attempts all failed; their cells are empty.
    klock.retain(|_, numbers| [COUNT, CNT_HOLD].iter().any(|&at| !matches!(&*numbers[at], "" | "0")));
    for other in ["duckdb.csv", "polars.csv"] {
        let found = rows(&directory.join(other))?;
        ensure!(
            found.len() == klock.len(),
            "{other} has {} rows, klock's table {}",
            found.len(),
            klock.len()
        );
        for (key, numbers) in found {
            let ours = klock.get(&key).with_context(|| format!("{other}: klock has no row {key:?}"))?;
            let is_same = ours
                .iter()
                .zip(&numbers)
                .enumerate()
                .all(|(at, (ours, theirs))| ours == theirs || at == CNT_HOLD && nearly(ours, theirs));
            ensure!(is_same, "{other}, {key:?}: {numbers:?}, klock says {ours:?}");
        }
    }
    Ok(())
}

/// Compares up to one in ten thousand. A wait may begin in the same nanosecond as an acquisition or a release; klock
/// knows to which hold it belongs, and the queries guess.
fn nearly(ours: &str, theirs: &str) -> bool {
    match (ours.parse::<i64>(), theirs.parse::<i64>()) {
        (Ok(ours), Ok(theirs)) => (ours - theirs).abs() <= ours / 10_000,
        _ => false,
    }
}

/// The indices of `count` and `cnt_hold` among the numbers of a row.
const COUNT: usize = 4;
const CNT_HOLD: usize = 7;

/// Reads the columns of FreeBSD's lock profile by site and lock.
fn rows(path: &Path) -> Result<BTreeMap<Vec<String>, Vec<String>>> {
    const KEY: [&str; 4] = ["file", "line", "kind", "lock_name"];
    const NUMBERS: [&str; 9] = [
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
    let mut reader = csv::Reader::from_path(path).with_context(|| path.display().to_string())?;
    let head = reader.headers()?.clone();
    let place = |name: &str| {
        let at = head.iter().position(|column| column == name);
        at.with_context(|| format!("{}: no column {name}", path.display()))
    };
    let key: Vec<usize> = KEY.iter().map(|name| place(name)).collect::<Result<_>>()?;
    let numbers: Vec<usize> = NUMBERS.iter().map(|name| place(name)).collect::<Result<_>>()?;
    let mut rows = BTreeMap::new();
    for record in reader.records() {
        let record = record?;
        let cells = |of: &[usize]| -> Vec<String> { of.iter().map(|&at| record[at].to_owned()).collect() };
        rows.insert(cells(&key), cells(&numbers));
    }
    Ok(rows)
}
