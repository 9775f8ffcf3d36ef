//! The command-line program.
//!
//! Only this crate knows the command line, the terminal and the exit codes, and only this crate prints. The
//! libraries return values.

#![warn(missing_docs)]
#![allow(rustdoc::broken_intra_doc_links, reason = "the comments of options are texts of --help")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the program prints, the libraries do not")]

mod args;
mod commands;
mod exit;
mod files;
mod output;
mod pager;
#[cfg(feature = "analyze")]
mod progress;
#[cfg(feature = "record")]
mod recording;
mod terminal;

fn main() -> std::process::ExitCode {
    #[cfg(feature = "record")]
    if let Some(code) = record::run_helper() {
        std::process::exit(code);
    }
    end_on_decoder_panics();
    files::survive_file_size_limit();
    match args::Args::read().and_then(|args| {
        terminal::init(&args.terminal);
        commands::run(args)
    }) {
        Ok(code) => code.into(),
        Err(error) => exit::report(&error).into(),
    }
}

/// Ends klock with an error where the Parquet decoder panics, which it does on some damaged files. The
/// released program does not unwind.
fn end_on_decoder_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let Some(error) = trace_format::reader::error_of_panic(panic.payload()) else {
            return report(panic);
        };
        let code = exit::report(&error.into());
        trace_format::output::remove_temporaries(|| std::process::exit(i32::from(code.code())));
    }));
}
