//! Runs a command with the library and discards its records as fast as possible: `skim COMMAND ARGUMENTS`.
//! Used to measure the cost of recording without klock's processing. Exits with the command's status, and
//! prints the numbers of processes, units read and records lost to standard error.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark program")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let Some(program) = words.next() else {
        eprintln!("usage: skim COMMAND ARGUMENTS");
        return ExitCode::from(2);
    };
    let options = support::Options { skim: true, ..support::Options::default() };
    let outcome = support::record(&options, Command::new(program).args(words));
    let units: u64 = outcome.processes.iter().map(support::Process::delivered).sum();
    let lost: u64 = outcome.processes.iter().map(support::Process::lost).sum();
    print!("{}", outcome.stdout);
    eprint!("{}", outcome.stderr);
    eprintln!("skim: processes {} units {units} lost {lost}", outcome.processes.len());
    ExitCode::from(u8::try_from(outcome.status.code().unwrap_or(1)).unwrap_or(1))
}
