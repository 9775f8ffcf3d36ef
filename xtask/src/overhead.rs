//! What recording waits costs a program that waits for nobody: pairs of runs of an unchanged program, without and with
//! `klock record -a --contended-only` beside it, of kernel locks alone and with futexes. The pairs are of runs next to each
//! other, in the order without, with, with, without, so that a machine that gets slower or faster meanwhile does so
//! for both.
//!
//! Stated is the median of the pairs' differences, with the interval that holds the true median with a probability of 95 % or
//! more, whatever the distribution: from the ranks of the differences alone.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::{
    host,
    process::{Background, Run, has, klock, root, scratch},
    table,
};

const BLOCKS: u32 = 12;
const ITERATIONS: u64 = 4_000_000;

/// How to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Blocks of four runs, two pairs each.
    #[arg(long, default_value_t = BLOCKS)]
    blocks: u32,
    /// Iterations of each thread in a run.
    #[arg(long, default_value_t = ITERATIONS)]
    iterations: u64,
    /// Write the table into docs/benchmarks.md.
    #[arg(long)]
    write: bool,
    /// Take this klock instead of building one.
    #[arg(long, value_name = "FILE")]
    klock: Option<PathBuf>,
}

impl Options {
    /// As a part of the benchmarks.
    pub(crate) fn part(klock: &Path, write: bool) -> Self {
        Self { blocks: BLOCKS, iterations: ITERATIONS, write, klock: Some(klock.to_owned()) }
    }
}

/// What one run took.
#[derive(Clone, Copy, Debug)]
struct Times {
    wall_ns: f64,
    cpu_ns: f64,
}

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(host::is_root(), "the overhead needs root: sudo -E cargo xtask overhead");
    ensure!(has("gcc"), "the overhead needs gcc; cargo xtask setup installs it");
    ensure!(options.blocks >= 3, "less than 3 blocks say nothing");
    let klock = klock(options.klock.as_deref())?;
    let load = busy()?;
    let directory = scratch("overhead")?;
    let program = directory.join("uncontended");
    let flags = ["-g", "-O1", "-fno-omit-frame-pointer", "-pthread", "fixtures/programs/uncontended.c", "-o"];
    Run::new("gcc", &flags).arg(&program).must()?;
    let mut rows = Vec::new();
    for (locks, threads) in [("kernel", 1), ("kernel", 2), ("kernel,futex", 1), ("kernel,futex", 2)] {
        let mut pairs = Vec::new();
        for _ in 0..options.blocks {
            pairs.extend(block(&klock, &directory, &program, (locks, threads), options.iterations)?);
        }
        for (what, of) in [("wall", wall as fn(&Times) -> f64), ("processor", cpu)] {
            let alone = median(pairs.iter().map(|(alone, _)| of(alone)).collect());
            let percent =
                pairs.iter().map(|(alone, beside)| 100.0 * (of(beside) - of(alone)) / of(alone)).collect();
            rows.push(row((locks, threads), what, alone / options.iterations as f64, percent));
        }
    }
    let text = text(options, &load, &rows)?;
    println!("\n{text}");
    if options.write {
        table::write_part(&root().join("docs/benchmarks.md"), "overhead", &text)?;
    }
    Ok(())
}

/// How much else the machine had to do over the last minute: near 0 on one that is fit for measuring.
pub(crate) fn busy() -> Result<String> {
    let text = fs::read_to_string("/proc/loadavg").context("/proc/loadavg")?;
    Ok(text.split_whitespace().next().unwrap_or("unknown").to_owned())
}

fn wall(times: &Times) -> f64 {
    times.wall_ns
}

fn cpu(times: &Times) -> f64 {
    times.cpu_ns
}

fn text(options: &Options, load: &str, rows: &[Vec<String>]) -> Result<String> {
    let head = [
        "--locks",
        "threads",
        "time",
        "ns per iteration alone",
        "pairs",
        "median difference",
        "95 % interval",
        "told from noise",
    ];
    let mut text = String::new();
    writeln!(
        text,
        "`cargo xtask overhead --blocks {} --iterations {}` on {}; load average before it: {load}.\n\n{}",
        options.blocks,
        options.iterations,
        host::describe(),
        table::markdown(&head, rows)
    )?;
    Ok(text)
}

fn row((locks, threads): (&str, u32), what: &str, alone_ns: f64, mut percent: Vec<f64>) -> Vec<String> {
    percent.sort_by(f64::total_cmp);
    let (low, high) = interval(&percent);
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
        format!("{:+.2} %", median(percent)),
        format!("{low:+.2} % to {high:+.2} %"),
        verdict.to_owned(),
    ]
}

/// Two pairs: without, with, with, without.
fn block(
    klock: &Path,
    directory: &Path,
    program: &Path,
    (locks, threads): (&str, u32),
    iterations: u64,
) -> Result<[(Times, Times); 2]> {
    let once = || times(program, threads, iterations);
    let first_alone = once()?;
    let output = directory.join("trace.parquet").display().to_string();
    let mut recorder = Background::start(
        klock,
        &["record", "--quiet", "-f", "-a", "--contended-only", "--locks", locks, "-o", &output],
    )?;
    recorder.until_recording()?;
    // Start-up is over when the symbols of what runs are read.
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

/// The middle of some values.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// The smallest interval between a value and its counterpart from the other end that holds the median of what the sorted
/// values are drawn from with at least 95 %: as many of them are below it as heads in so many throws of a coin.
pub(crate) fn interval(sorted: &[f64]) -> (f64, f64) {
    let throws = sorted.len();
    let mut probability = 0.5_f64.powi(i32::try_from(throws).unwrap_or(i32::MAX));
    let (mut below, mut rank) = (probability, 0);
    for heads in 1..throws / 2 {
        if below > 0.025 {
            break;
        }
        rank = heads - 1;
        probability *= (throws - heads + 1) as f64 / heads as f64;
        below += probability;
    }
    (sorted[rank], sorted[throws - 1 - rank])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_twenty_pairs_the_sixth_from_either_end_bound_the_median() {
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!(interval(&values), (6.0, 15.0));
        assert_eq!(median(values), 10.5);
    }

    #[test]
    fn of_six_pairs_only_the_whole_range_is_certain_enough() {
        assert_eq!(interval(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), (1.0, 6.0));
    }

    #[test]
    fn a_difference_is_told_from_noise_if_its_interval_is_on_one_side_of_nothing() {
        let verdict = |percent: Vec<f64>| row(("kernel", 1), "wall", 100.0, percent).pop().unwrap();
        assert_eq!(verdict(vec![0.1, 0.2, 0.3, 0.2, 0.1, 0.2]), "yes, slower");
        assert_eq!(verdict(vec![0.1, -0.2, 0.3, -0.2, 0.1, 0.2]), "no");
    }
}
