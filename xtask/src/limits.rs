//! `cargo xtask limits`: what a recording without root can take: long and fast programs, many threads and processes, and a machine whose
//! processors others use. One table: events, losses, processor time, memory and size, and whether nothing was lost where nothing may be.

use std::fs;

use anyhow::{Context, Result};
use clap::Args;

use crate::{
    fixture,
    harness::{Common, Harness},
    table,
    yard::Yard,
};

/// Record programs that are fast, long, or of many threads.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Seconds of the program with a constant rate.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    #[command(flatten)]
    common: Common,
}

/// A recording.
struct Case {
    what: String,
    fixture: &'static str,
    arguments: String,
    /// A program that runs beside it.
    beside: &'static str,
    /// It may lose events: it records more than klock can take.
    may_lose: bool,
}

fn cases(seconds: u32) -> Vec<Case> {
    let case = |what: &str, fixture, arguments: String| {
        let what = what.to_owned();
        Case { what, fixture, arguments, beside: "", may_lose: false }
    };
    let stress = "stress-ng --quiet --cpu 4 --timeout 170";
    vec![
        case(
            &format!("5 million events a second for {seconds} s"),
            "paced_pairs",
            format!("2 2500000 {seconds}"),
        ),
        Case { may_lose: true, ..case("as fast as two threads can", "lock_pairs", "2 50000000".to_owned()) },
        Case {
            beside: stress,
            ..case("10 million acquisitions beside `stress-ng --cpu 4`", "lock_pairs", "2 5000000".to_owned())
        },
        case("10,000 threads at once", "known_threads", "at-once 10000 10".to_owned()),
        case("100,000 threads, one by one", "known_threads", "one-by-one 100000 10".to_owned()),
        case("200 processes", "known_threads", "processes 200 1000".to_owned()),
    ]
}

/// Runs the words, and prints seconds, processor seconds and the peak of one process in kB.
const MEASURE: &str = "import resource, subprocess, sys, time; begun = time.time(); \
    code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL); used = resource.getrusage(resource.RUSAGE_CHILDREN); \
    print(time.time() - begun, used.ru_utime + used.ru_stime, used.ru_maxrss); sys.exit(code)";

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Result<()> {
    let harness = Harness::new("limits", &options.common, &["gcc", "stress-ng", "python3"])?;
    let yard = Yard::new(&harness.klock, None)?;
    yard.empty_work()?;
    let trace = yard.folder.join("limits.parquet");
    let mut rows = Vec::new();
    for case in cases(options.seconds) {
        let program = fixture::build(case.fixture, &yard.folder, &[])?;
        let recorded = format!("{} {} {}", yard.klock_into(&trace), program.display(), case.arguments);
        let beside = if case.beside.is_empty() {
            String::new()
        } else {
            format!("{} > /dev/null 2>&1 & trap \"kill $!\" EXIT; sleep 1; ", case.beside)
        };
        let printed = yard.shell(&format!("{beside}python3 -c '{MEASURE}' {recorded}"))?;
        let numbers: Vec<f64> = printed.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [seconds, processor_s, peak_kb] = numbers[..] else {
            anyhow::bail!("cannot measure {}: it printed {printed:?}", case.what)
        };
        let (events, lost) = yard.events(&trace)?;
        let bytes = fs::metadata(&trace).with_context(|| trace.display().to_string())?.len();
        rows.push(vec![
            case.what,
            format!("`{} {}`", case.fixture, case.arguments),
            events.to_string(),
            lost.to_string(),
            format!("{seconds:.1}"),
            format!("{processor_s:.1}"),
            format!("{:.0}", peak_kb / 1024.0),
            format!("{:.2}", bytes as f64 / events.max(1) as f64),
            if case.may_lose {
                ""
            } else if lost == 0 {
                "yes"
            } else {
                "**no**"
            }
            .to_owned(),
        ]);
    }
    let head = [
        "recorded",
        "program",
        "rows",
        "lost",
        "s",
        "processor s",
        "peak MiB",
        "bytes per row",
        "nothing lost",
    ];
    let command = format!("limits --seconds {}", options.seconds);
    harness.publish(&command, "benchmarks.md", "limits", &table::markdown(&head, &rows))
}
