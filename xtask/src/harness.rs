//! The bench harness: options, preparation, paired statistics and publication for every chore that measures.
//!
//! A chore measures in rounds: each round runs every way once, one after the other, so that a machine that becomes
//! slower or faster meanwhile does so for all of them. Medians and intervals come from the ranks of the paired
//! differences and assume nothing about their distribution.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::{
    host,
    process::{Run, Running, has, root, scratch, target},
    table,
};

/// Options of every chore that measures.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Write the tables into the documentation.
    #[arg(long)]
    pub(crate) write: bool,
    /// Use this klock instead of building one.
    #[arg(long, value_name = "FILE")]
    pub(crate) klock: Option<PathBuf>,
}

/// A measurement in progress.
#[derive(Debug)]
pub(crate) struct Harness {
    pub(crate) klock: PathBuf,
    /// An empty directory for its files.
    pub(crate) directory: PathBuf,
    write: bool,
    /// Load average when it began: near 0 on a machine that is fit for measuring.
    load: String,
}

impl Harness {
    /// Checks for root and programs, builds klock unless one is given, and makes the directory `chore`.
    pub(crate) fn new(chore: &str, options: &Common, needs: &[&str]) -> Result<Self> {
        for need in needs {
            if *need == ROOT {
                ensure!(
                    host::is_root(),
                    "cannot run {chore}: it needs root; run sudo -E cargo xtask {chore}"
                );
            } else {
                ensure!(has(need), "cannot run {chore}: it needs {need}; run cargo xtask setup");
            }
        }
        let load = fs::read_to_string("/proc/loadavg").context("/proc/loadavg")?;
        let load = load.split_whitespace().next().unwrap_or("unknown").to_owned();
        let klock = klock(options.klock.as_deref())?;
        Ok(Self { klock, directory: scratch(chore)?, write: options.write, load })
    }

    /// Prints the tables of `command`, and writes them into the part `part` of `document` with `--write`.
    pub(crate) fn publish(&self, command: &str, document: &str, part: &str, tables: &str) -> Result<()> {
        let text = format!(
            "`cargo xtask {command}` on {}; load average before it: {}.\n\n{tables}",
            host::describe(),
            self.load
        );
        publish(document, part, &text, self.write)
    }

    /// Starts `klock record` and returns when it records.
    pub(crate) fn record(&self, output: &Path, arguments: &[&str]) -> Result<Running> {
        let mut command = Command::new(&self.klock);
        command.args(["record", "--quiet", "-f", "-o"]).arg(output).args(arguments).current_dir(root());
        let mut recorder = Running::start(&mut command)?;
        recorder.until_recording()?;
        Ok(recorder)
    }
}

/// Runs the command behind it before all other programs, if that is permitted: times of microseconds depend on idle processors.
pub(crate) const FIRST: [&str; 6] = [
    "setsid",
    "-w",
    "sh",
    "-c",
    "{ echo -20 > /proc/self/autogroup; } 2> /dev/null; exec nice -n -20 \"$@\" 2> /dev/null",
    "sh",
];

/// The need of a chore that records more than its own programs.
pub(crate) const ROOT: &str = "root";

/// Prints a text, and writes it into a part of a document of `docs/` if wanted.
pub(crate) fn publish(document: &str, part: &str, text: &str, write: bool) -> Result<()> {
    println!("\n{text}");
    if write { table::write_part(&root().join("docs").join(document), part, text) } else { Ok(()) }
}

/// Returns the given klock, or builds it as a user would.
pub(crate) fn klock(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = given {
        return fs::canonicalize(path).with_context(|| path.display().to_string());
    }
    Run::cargo(&["build", "--release", "-p", "klock"]).must()?;
    Ok(target().join("release/klock"))
}

/// Starts a load in the background, a command of the shell that leads a process group.
pub(crate) fn load(script: &str) -> Result<Running> {
    use std::os::unix::process::CommandExt as _;
    Running::start(Command::new("sh").args(["-c", script]).current_dir(root()).process_group(0))
}

/// Runs each way once in each round. Returns the results by way.
pub(crate) fn rounds<W: Copy, T>(
    rounds: u32,
    ways: &[W],
    mut run: impl FnMut(W) -> Result<T>,
) -> Result<Vec<Vec<T>>> {
    let mut results: Vec<Vec<T>> = ways.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (way, results) in ways.iter().zip(&mut results) {
            results.push(run(*way)?);
        }
    }
    Ok(results)
}

/// A line of a table of budgets. It is reached up to the budget.
pub(crate) fn verdict(what: &str, measured: String, budget: String, reached: bool) -> Vec<String> {
    let reached = if reached { "yes" } else { "**no**" };
    vec![what.to_owned(), measured, budget, reached.to_owned()]
}

/// The median of paired differences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Difference {
    pub(crate) median: f64,
    /// The interval that holds the true median with a probability of 95 % or more.
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Difference {
    pub(crate) fn of(differences: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = differences.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = interval(&sorted);
        Self { median: median(&sorted), low, high }
    }
}

/// Returns the median; of an even number of values, the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// Returns the smallest interval between a value and its counterpart from the other end that holds the true median with
/// 95 %. The number of values below the median is distributed as heads among that many throws of a coin.
fn interval(sorted: &[f64]) -> (f64, f64) {
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
    fn the_sixth_of_twenty_pairs_from_either_end_bounds_the_median() {
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!(Difference::of(values), Difference { median: 10.5, low: 6.0, high: 15.0 });
    }

    #[test]
    fn only_the_whole_range_of_six_pairs_is_certain_enough() {
        assert_eq!(interval(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), (1.0, 6.0));
    }
}
