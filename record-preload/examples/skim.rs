//! Runs a command with the library in it and throws away what it records, as fast as can be: `skim COMMAND ARGUMENTS`. For
//! measuring what recording costs a program, without what klock does with the records. Ends as the command does, and prints on
//! standard error how many units of how many processes were read, and how many records were lost.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for who measures")]

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
