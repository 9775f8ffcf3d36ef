//! `cargo xtask overhead`: measures what recording waits costs a program that never waits. Runs of an unchanged program
//! alone and beside `klock record -a --contended-only`, of kernel locks alone and with futexes, are paired in the order
//! alone, beside, beside, alone.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::{
    fixture,
    harness::{Common, Difference, Harness, ROOT, median},
    process::Run,
    table,
};

const BLOCKS: u32 = 12;
const ITERATIONS: u64 = 4_000_000;

/// Measure the overhead of recording waits.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of blocks of four runs, which make two pairs.
    #[arg(long, default_value_t = BLOCKS)]
    blocks: u32,
    /// Iterations of each thread in a run.
    #[arg(long, default_value_t = ITERATIONS)]
    iterations: u64,
    #[command(flatten)]
    common: Common,
}

impl Options {
    /// Defaults, as a part of the benchmarks.
    pub(crate) fn part(klock: &Path, write: bool) -> Self {
        let common = Common { write, klock: Some(klock.to_owned()) };
        Self { blocks: BLOCKS, iterations: ITERATIONS, common }
    }
}

/// The time of a run.
#[derive(Clone, Copy, Debug)]
struct Times {
    wall_ns: f64,
    cpu_ns: f64,
}

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.blocks >= 3, "invalid --blocks '{}': 3 or more", options.blocks);
    let harness = Harness::new("overhead", &options.common, &[ROOT, "gcc"])?;
    let program = fixture::build("uncontended", &harness.directory, &[])?;
    let mut rows = Vec::new();
    for (locks, threads) in [("kernel", 1), ("kernel", 2), ("kernel,futex", 1), ("kernel,futex", 2)] {
        let mut pairs = Vec::new();
        for _ in 0..options.blocks {
            pairs.extend(block(&harness, &program, (locks, threads), options.iterations)?);
        }
        for (what, of) in
            [("wall", (|times| times.wall_ns) as fn(&Times) -> f64), ("processor", |times| times.cpu_ns)]
        {
            let alone: Vec<f64> = pairs.iter().map(|(alone, _)| of(alone)).collect();
            let percent: Vec<f64> =
                pairs.iter().map(|(alone, beside)| 100.0 * (of(beside) - of(alone)) / of(alone)).collect();
            rows.push(row((locks, threads), what, median(&alone) / options.iterations as f64, &percent));
        }
    }
    let head = [
        "--locks",
        "threads",
        "time",
        "ns per iteration alone",
        "pairs",
        "median difference",
        "95 % interval",
        "beyond noise",
    ];
    let command = format!("overhead --blocks {} --iterations {}", options.blocks, options.iterations);
    harness.publish(&command, "benchmarks.md", "overhead", &table::markdown(&head, &rows))
}

fn row((locks, threads): (&str, u32), what: &str, alone_ns: f64, percent: &[f64]) -> Vec<String> {
    let Difference { median, low, high } = Difference::of(percent.iter().copied());
    let verdict = match (low > 0.0, high < 0.0) {
        (true, _) => "yes, slower",
        (_, true) => "yes, faster",
        _ => "no",
    };
    vec![
        locks.to_owned(),
        threads.to_string(),
        what.to_owned(),
        format!("{alone_ns:.1}"),
        percent.len().to_string(),
        format!("{median:+.2} %"),
        format!("{low:+.2} % to {high:+.2} %"),
        verdict.to_owned(),
    ]
}

/// Runs alone, beside, beside, alone: two pairs.
fn block(
    harness: &Harness,
    program: &Path,
    (locks, threads): (&str, u32),
    iterations: u64,
) -> Result<[(Times, Times); 2]> {
    let once = || times(program, threads, iterations);
    let first_alone = once()?;
    let output = harness.directory.join("trace.parquet");
    let recorder = harness.record(&output, &["-a", "--contended-only", "--locks", locks])?;
    // Start-up ends when the symbols of the running programs are read.
    std::thread::sleep(std::time::Duration::from_secs(1));
    let (first_beside, second_beside) = (once()?, once()?);
    recorder.interrupt()?;
    Ok([(first_alone, first_beside), (once()?, second_beside)])
}

fn times(program: &Path, threads: u32, iterations: u64) -> Result<Times> {
    let printed = Run::new(program, &[&threads.to_string(), &iterations.to_string()]).read()?;
    let number = |name: &str| -> Result<f64> {
        let line = printed.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim().parse().ok()).with_context(|| format!("no {name} in {printed}"))
    };
    Ok(Times { wall_ns: number("wall_ns")?, cpu_ns: number("cpu_ns")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_told_from_noise_if_its_interval_is_on_one_side_of_zero() {
        let verdict = |percent: &[f64]| row(("kernel", 1), "wall", 100.0, percent).pop().unwrap();
        assert_eq!(verdict(&[0.1, 0.2, 0.3, 0.2, 0.1, 0.2]), "yes, slower");
        assert_eq!(verdict(&[0.1, -0.2, 0.3, -0.2, 0.1, 0.2]), "no");
    }
}
