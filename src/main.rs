//! The command-line program: arguments go in, an exit code comes out.
//!
//! Only this crate knows the command line, the terminal and the exit codes, and only this crate prints. The libraries return values.

#![warn(missing_docs)]
#![allow(rustdoc::broken_intra_doc_links, reason = "the comments of options are texts of --help")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the program prints, the libraries do not")]

mod args;
mod commands;
#[cfg(all(feature = "record", feature = "analyze"))]
mod demo;
mod exit;
mod files;
mod output;
mod pager;
mod progress;
#[cfg(feature = "record")]
mod recording;
mod terminal;
mod wrap;

fn main() -> std::process::ExitCode {
    #[cfg(feature = "record")]
    if let Some(code) = record::run_helper() {
        std::process::exit(code);
    }
    silence_decoder_panics();
    files::survive_file_size_limit();
    match args::Args::read().and_then(|args| {
        terminal::init(&args.terminal);
        commands::run(args)
    }) {
        Ok(code) => code.into(),
        Err(error) => exit::report(&error).into(),
    }
}

/// Suppresses the messages of panics in the Parquet decoder. It panics on some damaged files; the reader turns that into an error,
/// which is printed once.
fn silence_decoder_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !trace_format::reader::is_decoding() {
            report(panic);
        }
    }));
}
