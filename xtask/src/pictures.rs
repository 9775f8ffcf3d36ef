//! `cargo xtask pictures`: measures pictures, the page, and the tables that follow states, chains and paths, against a report of the same
//! invented trace, and these tables also with rows of off-CPU times.
//!
//! Two pages are opened in Chromium: how long it takes to the first paint, and whether the timeline moves in 60 frames a second.
//!
//! Time is processor time of the whole program, which other programs move less than wall time; wall time and peak memory are beside it.
//! Every round runs each command once; the least processor time of each counts.

use std::path::Path;

use anyhow::Result;
use clap::Args;
use trace_format::Trace;

mod page;

use crate::{
    bench::{Timed, fastest},
    generate::{self, Machine},
    harness::{Common, Harness, rounds, verdict},
    process::scratch,
    table,
};

/// Measure pictures and the page.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Events of the invented trace.
    #[arg(long, default_value_t = 20_000_000)]
    events: u64,
    /// Number of rounds.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    #[command(flatten)]
    common: Common,
}

/// A picture of the trace before and after a change, which is none.
const TWO: &str = "plot TRACE TRACE";
/// The report that all others are compared with.
const REPORT: &str = "report";
/// Commands, with their greatest time as a multiple of the report's, in tenths.
const COMMANDS: [(&str, u32); 12] = [
    (REPORT, 10),
    ("plot", 15),
    ("plot --lock #0", 15),
    ("plot --flame", 15),
    ("plot --locks 6", 30),
    ("plot --blame", 30),
    // Of two traces, so compared with two reports.
    (TWO, 30),
    ("chains", 30),
    ("blame --by state", 30),
    ("why", 30),
    ("critical", 30),
    ("html", 30),
];
/// Tables that follow states, chains and paths: these are also measured with rows of off-CPU times.
const FOLLOWING: [&str; 4] = ["chains", "blame --by state", "critical", "why"];
/// The greatest processor time of these, in ns per event.
const MAX_NS: f64 = 150.0;
/// The greatest peak memory.
const MAX_MIB: f64 = 286.0;

/// Measures and prints. Returns whether every budget is reached.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let harness = Harness::new("pictures", &options.common, &["python3", "node", "chromium"])?;
    let directory = scratch("pictures-trace")?;
    let [trace, off_cpu] = ["trace.parquet", "off-cpu.parquet"].map(|name| directory.join(name));
    generate::run(&trace, options.events, 1, false)?;
    generate::run_on(&off_cpu, options.events, 1, &Machine { off_cpu: true, ..Machine::default() })?;
    let plain = COMMANDS.map(|(command, _)| (command, trace.as_path()));
    let ways = [&plain[..], &FOLLOWING.map(|command| (command, off_cpu.as_path()))].concat();
    let measured = rounds(options.rounds.max(1), &ways, |(command, trace)| {
        measure(&harness, command, trace, &directory.join("output"))
    })?;
    let least = |runs: &Vec<Timed>| {
        let by_processor = |a: &&Timed, b: &&Timed| a.processor_s.total_cmp(&b.processor_s);
        runs.iter().min_by(by_processor).copied()
    };
    let best: Vec<Timed> = measured.iter().filter_map(least).collect();
    let report_s = best.first().map_or(f64::INFINITY, |report| report.processor_s);
    let event_ns = |trace: &Path, timed: &Timed| -> Result<f64> {
        Ok(timed.processor_s * 1e9 / Trace::open(trace)?.event_count().max(1) as f64)
    };
    let (mut rows, mut verdicts) = (Vec::new(), Vec::new());
    for ((command, tenths), timed) in COMMANDS.into_iter().zip(&best) {
        let (ratio, most) = (timed.processor_s / report_s, f64::from(tenths) / 10.0);
        rows.push(vec![
            format!("klock {command}"),
            format!("{:.2}", timed.processor_s),
            format!("{:.2}", timed.seconds),
            format!("{:.0}", event_ns(&trace, timed)?),
            format!("{ratio:.2}"),
            format!("{:.0}", timed.mib),
        ]);
        if command != REPORT {
            let budget = format!("{most:.1} times, {MAX_MIB:.0} MiB");
            let found = format!("{ratio:.2} times, {:.0} MiB", timed.mib);
            verdicts.push(verdict(command, found, budget, ratio <= most && timed.mib <= MAX_MIB));
        }
    }
    let following = ways.iter().zip(&best).filter(|((command, _), _)| FOLLOWING.contains(command));
    for ((command, path), timed) in following {
        let rows = if *path == off_cpu { ", with off-CPU rows" } else { "" };
        let ns = event_ns(path, timed)?;
        let budget = format!("{MAX_NS:.0} ns, {MAX_MIB:.0} MiB");
        let found = format!("{ns:.0} ns, {:.0} MiB", timed.mib);
        let reached = ns <= MAX_NS && timed.mib <= MAX_MIB;
        verdicts.push(verdict(&format!("an event, {command}{rows}"), found, budget, reached));
    }
    let head = [
        "command",
        "processor seconds",
        "wall seconds",
        "processor ns per event",
        "times the report's",
        "peak MiB",
    ];
    let (pages, page_verdicts) = page::measure(&harness, &trace)?;
    verdicts.extend(page_verdicts);
    let budgets = table::markdown(&["what", "measured", "budget", "reached"], &verdicts);
    let text = format!("{}\n{pages}\n{budgets}", table::markdown(&head, &rows));
    let command = format!("pictures --events {} --rounds {}", options.events, options.rounds);
    harness.publish(&command, "benchmarks.md", "pictures", &text)?;
    Ok(verdicts.iter().all(|verdict| verdict[3] == "yes"))
}

/// Runs a command for a trace once.
fn measure(harness: &Harness, command: &str, trace: &Path, output: &Path) -> Result<Timed> {
    let (klock, trace, output) = (harness.klock.display(), trace.display(), output.display());
    let [klock, trace, output] = [&klock, &trace, &output].map(ToString::to_string);
    let (name, arguments) = command.split_once(' ').unwrap_or((command, ""));
    let format: &[&str] = match name {
        "plot" => &["--format", "svg"],
        "html" => &[],
        _ => &["--format", "csv"],
    };
    let mut words = vec![klock.as_str(), name, "-f", "-o", &output];
    words.extend((command != TWO).then_some(trace.as_str()));
    let with_trace = |word| if word == "TRACE" { trace.as_str() } else { word };
    words.extend(arguments.split_whitespace().map(with_trace));
    fastest(&[&words, format].concat(), 1)
}
