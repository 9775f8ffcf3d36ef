//! `cargo xtask unwinding`: measures what it costs to find user stacks by unwind tables instead of by frame pointers, in processor time
//! of the recorded program and of klock, for each event. The two ways are paired in the order fp, dwarf, dwarf, fp.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};
use clap::Args;
use trace_format::Trace;

use crate::{
    fixture,
    harness::{Common, Difference, Harness, ROOT, median},
    process::{Run, root},
    table,
};

const BLOCKS: u32 = 6;
/// Turns of the program: each makes two waits for a futex, two wakes and two times off-CPU.
const TURNS: u32 = 50_000;
/// Sleep before every 64th turn in microseconds: without it, there are more events than one processor unwinds.
const PAUSE_US: u32 = 4000;

/// Measure the cost of unwinding.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of blocks of four runs, which make two pairs.
    #[arg(long, default_value_t = BLOCKS)]
    blocks: u32,
    #[command(flatten)]
    common: Common,
}

/// A recording.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Processor time of the recorded program for each event, the BPF programs included.
    program_ns: f64,
    /// Processor time of klock and its helpers for each event.
    klock_ns: f64,
    events: u64,
    /// User stacks that were not unwound.
    not_unwound: u64,
}

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.blocks >= 3, "invalid --blocks '{}': 3 or more", options.blocks);
    let harness = Harness::new("unwinding", &options.common, &[ROOT, "gcc", "bash"])?;
    let program = fixture::build("futex_turns", &harness.directory, &[])?;
    let mut rows = Vec::new();
    for (name, recorded) in [("futex", &["--locks", "futex"][..]), ("off-CPU", &["--off-cpu"])] {
        let once = |way: &str| cost(&harness, &program, &[recorded, &["--unwind", way]].concat());
        let mut pairs = Vec::new();
        for _ in 0..options.blocks {
            let [first, second, third, fourth] = [once("fp")?, once("dwarf")?, once("dwarf")?, once("fp")?];
            pairs.extend([(first, second), (fourth, third)]);
        }
        let events: u64 = pairs.iter().map(|(_, dwarf)| dwarf.events).sum();
        let not_unwound: u64 = pairs.iter().map(|(_, dwarf)| dwarf.not_unwound).sum();
        for (who, of) in
            [("program", (|cost| cost.program_ns) as fn(&Cost) -> f64), ("klock", |cost| cost.klock_ns)]
        {
            let [before, after] = [|pair: &(Cost, Cost)| pair.0, |pair: &(Cost, Cost)| pair.1]
                .map(|side| median(&pairs.iter().map(|pair| of(&side(pair))).collect::<Vec<_>>()));
            let added = Difference::of(pairs.iter().map(|(fp, dwarf)| of(dwarf) - of(fp)));
            rows.push(vec![
                name.to_owned(),
                who.to_owned(),
                format!("{before:.0}"),
                format!("{after:.0}"),
                format!("{:+.0} ({:+.0} to {:+.0})", added.median, added.low, added.high),
                pairs.len().to_string(),
                format!("{:.2} %", 100.0 * not_unwound as f64 / events as f64),
            ]);
        }
    }
    let head = ["recording", "time of", "fp, ns", "dwarf, ns", "added ns", "pairs", "not unwound"];
    let command = format!("unwinding --blocks {}", options.blocks);
    harness.publish(&command, "benchmarks.md", "unwinding", &table::markdown(&head, &rows))
}

/// Records the program once.
fn cost(harness: &Harness, program: &Path, options: &[&str]) -> Result<Cost> {
    let trace = harness.directory.join("trace.parquet");
    let before_s = children_s();
    // Other programs must not keep klock from its rings. The program itself has the usual priority.
    Run::new("nice", &["-n", "-15"])
        .arg(&harness.klock)
        .args(["record", "--quiet", "--ring", "64M", "-f", "-o"])
        .arg(&trace)
        .args(options)
        .args(["--", "nice", "-n", "15"])
        .arg(root().join("fixtures/loads/timed"))
        .arg(program)
        .args([TURNS.to_string(), "-".to_owned(), PAUSE_US.to_string()])
        .directory(&harness.directory)
        .read()?;
    let all_s = children_s() - before_s;
    let cpu = fs::read_to_string(harness.directory.join("cpu")).context("the program left no time")?;
    let program_s: f64 = cpu.split_whitespace().filter_map(|seconds| seconds.parse::<f64>().ok()).sum();
    let trace = Trace::open(&trace)?;
    let loss = &trace.info().loss;
    let events = trace.event_count();
    ensure!(loss.events() * 100 <= events, "{} of {events} events were lost", loss.events());
    let each = |seconds: f64| seconds * 1e9 / events as f64;
    Ok(Cost {
        program_ns: each(program_s),
        klock_ns: each(all_s - program_s),
        events,
        not_unwound: loss.stacks_not_unwound,
    })
}

/// Returns the processor time of all children that have ended, and of theirs.
fn children_s() -> f64 {
    // SAFETY: an all-zero `rusage` is valid, and the call only writes to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
