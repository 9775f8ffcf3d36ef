//! The door of klock: arguments in, exit code out. The only room that knows the command line, the terminal and the
//! exit codes, and the only one that prints; what it prints comes from the libraries as values.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the door is the room that prints")]

mod args;
mod commands;
#[cfg(all(feature = "record", feature = "analyze"))]
mod demo;
mod exit;
#[cfg(feature = "analyze")]
mod files;
mod output;
#[cfg(feature = "record")]
mod progress;

use clap::Parser;

fn main() -> std::process::ExitCode {
    quiet_about_damage();
    let args = args::Args::parse();
    match commands::run(args) {
        Ok(code) => code.into(),
        Err(error) => exit::report(&error).into(),
    }
}

/// The Parquet decoder panics on some damaged files; the reader makes an error of that, which is printed once.
fn quiet_about_damage() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !trace_format::reader::is_decoding() {
            report(panic);
        }
    }));
}
