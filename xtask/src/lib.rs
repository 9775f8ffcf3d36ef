//! klock's chores, run as `cargo xtask CHORE`: tests, emulated kernels, generated files. Each chore is a
//! file. Scripts that measure are in `bench/`.
//!
//! The library also serves klock's live tests, which share its process runner ([`process`]), its builder of
//! fixture programs ([`fixture`]) and its trace generator ([`generate`]).
//!
//! A chore may install, build and record. klock itself never needs one.

#![warn(missing_docs)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "chores report to the developer who runs them")]

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};

mod bpf;
mod dist;
mod docs;
pub mod fixture;
pub mod generate;
pub mod host;
mod page;
pub mod process;
mod setup;
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

/// The option of a chore that writes files which are committed.
#[derive(Debug, clap::Args)]
struct Check {
    /// Change nothing; fail if a committed file differs from a fresh one.
    #[arg(long)]
    check: bool,
}

#[derive(Debug, Subcommand)]
enum Chore {
    Test(test::Options),
    /// Install what the tests need: Debian packages (as root), and Python and npm packages under
    /// target/tools.
    Setup,
    /// Build the BPF objects that klock embeds.
    Bpf(Check),
    /// Build the page that klock html fills.
    Page(Check),
    /// Write the generated parts of the documentation.
    Docs(Check),
    /// Boot each kernel of the matrix in an emulator, record in it, and check the recordings.
    Vm(vm::Options),
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
        #[command(flatten)]
        machine: generate::Machine,
    },
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
        Chore::Bpf(Check { check }) => bpf::run(check).map(|()| true),
        Chore::Page(Check { check }) => page::run(check).map(|()| true),
        Chore::Docs(Check { check }) => docs::run(check, None).map(|()| true),
        Chore::Vm(options) => vm::run(&options),
        Chore::Generate { events, output, seed, machine } => {
            generate::run(&output, events, seed, &machine).map(|()| true)
        }
        Chore::Dist => dist::run().map(|()| true),
    }
}
