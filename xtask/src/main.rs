//! klock's chores, run as `cargo xtask CHORE`. Each chore is a file; this one is the table of contents.
//!
//! A chore may install, build, record and measure; klock itself never needs one.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "chores talk to the developer who runs them")]

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};

mod bench;
mod bpf;
mod compare;
mod docs;
mod generate;
mod host;
mod overhead;
mod preload_bench;
mod process;
mod programs;
mod setup;
mod speed;
mod table;
mod test;
mod vm;

/// klock's chores.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Install what the tests need and run them all. Under CI=true a skipped part fails.
    Test(test::Options),
    /// Install what the tests need: Debian packages (as root) and a Python environment under target/.
    Setup,
    /// Build the BPF object, or compare the committed one with a fresh build.
    Bpf {
        /// Change nothing; fail if the committed object is not what the sources make.
        #[arg(long)]
        check: bool,
    },
    /// Write the generated parts of the documentation, or compare them.
    Docs {
        /// Change nothing; fail if a generated part is out of date.
        #[arg(long)]
        check: bool,
    },
    /// Record the same load with perf and with klock, and compare the waits of each kind of lock. Needs root.
    ComparePerf(compare::Options),
    /// Measure size, cost and speed against the budgets. Needs root.
    Bench(bench::Options),
    /// Measure the time of a report beside DuckDB and polars, and make the tables of docs/benchmarks.md.
    Speed(speed::Options),
    /// Boot the kernels of the matrix under software emulation, record in each, and check what was recorded.
    Vm(vm::Options),
    /// Measure what recording waits costs a program that waits for nobody, in pairs of runs. Needs root.
    Overhead(overhead::Options),
    /// Measure what recording a launched program's locks costs it, beside LTTng's wrapper and, as root, uprobes.
    PreloadBench(preload_bench::Options),
    /// Run real programs alone and recorded, and make the table of docs/programs.md.
    Programs(programs::Options),
    /// Write a trace of an invented program, the same for the same numbers.
    Generate {
        /// How many events.
        #[arg(long, default_value_t = 1_000_000)]
        events: u64,
        /// Where to; a trace that is there is replaced.
        #[arg(short, long)]
        output: PathBuf,
        /// Another seed, another history.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Leave out about one event in a hundred, and say where.
        #[arg(long)]
        lossy: bool,
    },
}

fn main() -> ExitCode {
    match run(Args::parse().chore) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the chore found everything as it should be.
fn run(chore: Chore) -> Result<bool> {
    match chore {
        Chore::Test(options) => test::run(&options),
        Chore::Setup => setup::run(),
        Chore::Bpf { check } => bpf::run(check).map(|()| true),
        Chore::Docs { check } => docs::run(check).map(|()| true),
        Chore::ComparePerf(options) => compare::run(&options),
        Chore::Vm(options) => vm::run(&options),
        Chore::Bench(options) => bench::run(&options).map(|()| true),
        Chore::Speed(options) => speed::run(&options),
        Chore::PreloadBench(options) => preload_bench::run(&options).map(|()| true),
        Chore::Programs(options) => programs::run(&options).map(|()| true),
        Chore::Overhead(options) => overhead::run(&options).map(|()| true),
        Chore::Generate { events, output, seed, lossy } => {
            generate::run(&output, events, seed, lossy).map(|()| true)
        }
    }
}
