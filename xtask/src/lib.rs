//! klock's chores, run as `cargo xtask CHORE`: tests, benchmarks, comparisons, generated files. Each chore is a file.
//!
//! The library also serves klock's live tests, which share its process runner ([`process`]), its builder of fixture
//! programs ([`fixture`]), its trace generator ([`generate`]) and its comparison with perf ([`sites`]).
//!
//! A chore may install, build, record and measure. klock itself never needs one.

#![warn(missing_docs)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "chores report to the developer who runs them")]

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};

mod bench;
mod bpf;
mod causes;
mod compare;
mod dist;
mod docs;
pub mod fixture;
mod fleet;
mod gains;
pub mod generate;
mod harness;
pub mod home;
pub mod host;
mod limits;
mod overhead;
mod page;
mod pictures;
mod preload_bench;
pub mod process;
mod programs;
mod recorders;
mod setup;
pub mod sites;
mod speed;
mod table;
mod test;
mod unwinding;
mod vm;
mod yard;

/// klock's chores.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    Test(test::Options),
    /// Install what the tests need: Debian packages (as root), and Python and npm packages under target/tools.
    Setup,
    /// Build the BPF objects that klock embeds.
    Bpf {
        /// Change nothing; fail if a committed object differs from a fresh build.
        #[arg(long)]
        check: bool,
    },
    /// Build the page that klock html fills.
    Page {
        /// Change nothing; fail if the committed page differs from a fresh build.
        #[arg(long)]
        check: bool,
    },
    /// Write the generated parts of the documentation.
    Docs {
        /// Change nothing; fail if a generated part is out of date.
        #[arg(long)]
        check: bool,
    },
    /// Record the same load with perf and klock, and compare the waits of each kind of lock. Needs root.
    ComparePerf(compare::Options),
    /// Measure the size of events, the recorder's cost and its overhead against the budgets. Needs root.
    Bench(bench::Options),
    /// Record programs that wait for known causes, and compare the verdicts of klock why.
    Causes(causes::Options),
    /// Measure the time of pictures, of the page and of tables that follow chains against a report's.
    Pictures(pictures::Options),
    /// Compare the gains that klock analyze whatif predicts with those of the changed program. Needs root.
    Gains(gains::Options),
    /// Measure the time of a report, and of the same query in DuckDB and polars.
    Speed(speed::Options),
    /// Boot each kernel of the matrix in an emulator, record in it, and check the recordings.
    Vm(vm::Options),
    /// Measure how much recording waits slows a program that never waits. Needs root.
    Overhead(overhead::Options),
    /// Measure what recording each lock and unlock costs a program: klock's library, LTTng and, as root, uprobes.
    PreloadBench(preload_bench::Options),
    /// Measure what unwinding user stacks by tables costs for each event. Needs root.
    Unwinding(unwinding::Options),
    /// Run real programs alone and recorded, and compare.
    Programs(programs::Options),
    /// Run programs alone, under klock and under LTTng's wrapper, and compare how much each slows them.
    Recorders(recorders::Options),
    /// Record programs that are fast, long, or of many threads, without root.
    Limits(limits::Options),
    /// Record real programs with perf and klock, and compare the call sites of their waits. Needs root.
    Sites(sites::Options),
    /// Write a trace of an invented program. The same options give the same trace.
    Generate {
        /// Number of events.
        #[arg(long, default_value_t = 1_000_000)]
        events: u64,
        /// Output file; an existing trace is replaced.
        #[arg(short, long)]
        output: PathBuf,
        /// Seed of the random numbers.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Drop about one event in a hundred and record the loss.
        #[arg(long)]
        lossy: bool,
        /// Record the times that tasks are off the CPU.
        #[arg(long)]
        off_cpu: bool,
    },
    Fleet(fleet::Options),
    /// Build target/dist/klock, the program as it is released.
    Dist,
}

/// Runs the chore that the command line names.
#[must_use]
pub fn main() -> ExitCode {
    match run(Args::parse().chore) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns false if the chore found something wrong and has already reported it.
fn run(chore: Chore) -> Result<bool> {
    match chore {
        Chore::Test(options) => test::run(&options),
        Chore::Setup => setup::run(),
        Chore::Bpf { check } => bpf::run(check).map(|()| true),
        Chore::Page { check } => page::run(check).map(|()| true),
        Chore::Docs { check } => docs::run(check, None).map(|()| true),
        Chore::ComparePerf(options) => compare::run(&options),
        Chore::Vm(options) => vm::run(&options),
        Chore::Bench(options) => bench::run(&options).map(|()| true),
        Chore::Causes(options) => causes::run(&options),
        Chore::Pictures(options) => pictures::run(&options),
        Chore::Gains(options) => gains::run(&options),
        Chore::Speed(options) => speed::run(&options),
        Chore::PreloadBench(options) => preload_bench::run(&options).map(|()| true),
        Chore::Programs(options) => programs::run(&options).map(|()| true),
        Chore::Recorders(options) => recorders::run(&options).map(|()| true),
        Chore::Limits(options) => limits::run(&options).map(|()| true),
        Chore::Sites(options) => sites::run(&options),
        Chore::Overhead(options) => overhead::run(&options).map(|()| true),
        Chore::Unwinding(options) => unwinding::run(&options).map(|()| true),
        Chore::Generate { events, output, seed, lossy, off_cpu } => {
            let machine = generate::Machine { off_cpu, ..generate::Machine::default() }.lossy(lossy);
            generate::run_on(&output, events, seed, &machine).map(|()| true)
        }
        Chore::Fleet(options) => fleet::run(&options).map(|()| true),
        Chore::Dist => dist::run().map(|()| true),
    }
}
