//! How fast a report is, beside DuckDB and polars on the same file and the same columns: who gives other numbers is out.
//!
//! klock's time is that of the whole program, those of the others are of their query alone, without their start. All have the machine's
//! processors. Of each the fastest of some rounds counts; in a round all run one after the other, so that a busy moment
//! hits whom it hits.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use trace_format::Trace;

use crate::{
    bench::{Timed, fastest},
    generate, host, overhead,
    process::{Run, has, klock, root, scratch},
    setup, table,
};

/// What to measure with.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Events of the invented trace.
    #[arg(long, default_value_t = 20_000_000)]
    events: u64,
    /// Events of a second one, of which only klock's time and memory are measured; 0 is none.
    #[arg(long, default_value_t = 200_000_000)]
    long: u64,
    /// Rounds.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Write the tables into docs/benchmarks.md.
    #[arg(long)]
    write: bool,
    /// Take this klock instead of building one.
    #[arg(long, value_name = "FILE")]
    klock: Option<PathBuf>,
}

/// Measures and prints. False if a budget is missed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    ensure!(has("gcc"), "the real trace is of a C program; cargo xtask setup installs gcc");
    ensure!(setup::python().exists(), "DuckDB and polars are needed: cargo xtask setup");
    let klock = klock(options.klock.as_deref())?;
    let threads = thread::available_parallelism()?.get();
    let mut text = format!(
        "`cargo xtask speed --events {} --long {} --rounds {}` on {}; load average before it: {}.\n",
        options.events,
        options.long,
        options.rounds,
        host::describe(),
        overhead::busy()?
    );

    let invented = scratch("speed-invented")?;
    generate::run(&invented.join("trace.parquet"), options.events, 1, false)?;
    let real = scratch("speed-real")?;
    record(&klock, &real)?;
    let mut rows = Vec::new();
    let mut verdicts = Vec::new();
    for (name, directory) in [("invented", &invented), ("real", &real)] {
        let measured = Measured::of(&klock, directory, threads, options.rounds)?;
        measured.rows(name, directory, &mut rows)?;
        measured.verdicts(name, &mut verdicts);
    }
    if options.long > 0 {
        let long = scratch("speed-long")?;
        generate::run(&long.join("trace.parquet"), options.long, 1, false)?;
        let report = report(&klock, &long, &[])?;
        rows.push(row("long", &long, "klock analyze report --by site", report.seconds, Some(report.mib))?);
        let spread = report_of(&klock, &long, &["-F", "count,p50,p99,wait_p99"])?;
        rows.push(row("long", &long, "the same with -F p50,p99,wait_p99", spread.seconds, Some(spread.mib))?);
        let mib = report.mib.max(spread.mib);
        verdicts.push(verdict(
            "memory for the long trace",
            mib <= 286.0,
            &format!("{mib:.0} MiB"),
            "286 MiB",
        ));
    }
    let head = ["trace", "events", "what", "seconds", "ns per event", "peak MiB"];
    writeln!(text, "\n{}", table::markdown(&head, &rows))?;
    writeln!(text, "{}", table::markdown(&["what", "measured", "budget", "reached"], &verdicts))?;
    println!("\n{text}");
    if options.write {
        table::write_part(&root().join("docs/benchmarks.md"), "speed", &text)?;
    }
    Ok(verdicts.iter().all(|verdict| verdict[3] == "yes"))
}

/// Records a real program: four threads, ten million events and more, about half of them on one mutex.
fn record(klock: &Path, directory: &Path) -> Result<()> {
    let program = directory.join("known_counts");
    let flags =
        ["-g", "-O1", "-fno-omit-frame-pointer", "-pthread", "fixtures/programs/known_counts.c", "-o"];
    Run::new("gcc", &flags).arg(&program).must()?;
    let trace = directory.join("trace.parquet");
    let record = Run::new(klock, &["record", "--quiet", "--lossless", "--locks", "pthread", "-f", "-o"]);
    let arguments = ["4", "1400000", "3"];
    let load = arguments.iter().fold(record.arg(&trace).arg("--").arg(&program), |run, word| run.arg(word));
    load.must()?;
    let trace = Trace::open(&trace)?;
    let (events, lost) = (trace.event_count(), trace.info().loss.events());
    ensure!(lost == 0, "{lost} events of the real trace were lost, so that the queries are not exact");
    ensure!(events >= 10_000_000, "the real trace has {events} events only");
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
            report: Timed { seconds: infinite, mib: 0.0 },
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

    fn verdicts(&self, name: &str, verdicts: &mut Vec<Vec<String>>) {
        let (duckdb, sum) = (self.duckdb_s / self.report.seconds, self.report.seconds / self.sum_s);
        let times = |what: &str| format!("{what}, {name} trace");
        verdicts.push(verdict(
            &times("as fast as DuckDB's query"),
            duckdb >= 4.0,
            &format!("{duckdb:.1} times"),
            "4 times",
        ));
        verdicts.push(verdict(
            &times("time against DuckDB's sum of every column"),
            sum <= 3.0,
            &format!("{sum:.2} times"),
            "3 times",
        ));
        let mib = self.report.mib;
        verdicts.push(verdict(&times("memory"), mib <= 286.0, &format!("{mib:.0} MiB"), "286 MiB"));
    }
}

fn verdict(what: &str, reached: bool, measured: &str, budget: &str) -> Vec<String> {
    let reached = if reached { "yes" } else { "**no**" };
    [what, measured, budget, reached].map(str::to_owned).to_vec()
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

/// One run of klock, whose table stays in the directory.
fn report(klock: &Path, directory: &Path, more: &[&str]) -> Result<Timed> {
    let csv = directory.join("klock.csv").display().to_string();
    report_of(klock, directory, &[&["--format", "csv", "-f", "-o", &csv], more].concat())
}

fn report_of(klock: &Path, directory: &Path, more: &[&str]) -> Result<Timed> {
    let trace = directory.join("trace.parquet").display().to_string();
    let klock = klock.display().to_string();
    fastest(&[&[&*klock, "analyze", "report", &trace, "--by", "site"], more].concat(), 1)
}

/// The seconds of a query in DuckDB.
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

/// Whether the three tables say the same, in the columns that all of them have.
fn same(directory: &Path) -> Result<()> {
    let klock = rows(&directory.join("klock.csv"))?;
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

/// Up to one in ten thousand: which hold a wait began in that has the time of an acquisition or a release, to the nanosecond, klock sorts
/// out and the queries only nearly do.
fn nearly(ours: &str, theirs: &str) -> bool {
    match (ours.parse::<i64>(), theirs.parse::<i64>()) {
        (Ok(ours), Ok(theirs)) => (ours - theirs).abs() <= ours / 10_000,
        _ => false,
    }
}

/// The place of `cnt_hold` among the numbers of a row.
const CNT_HOLD: usize = 7;

/// By place and lock, the columns of FreeBSD.
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
