//! The command line as it is typed. The doc comments are the help texts.
//!
//! Arguments are parsed here; the commands turn them into options of the libraries.

use std::{ffi::OsString, path::PathBuf, sync::OnceLock};

use clap::{
    Args as ClapArgs, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, error::ErrorKind,
};
use trace_format::{output::OutputError, run_info::Version};

use crate::{
    output,
    terminal::{self, ColorWhen, Terminal},
};

#[cfg(feature = "analyze")]
mod analyze;
#[cfg(feature = "analyze")]
mod common;
#[cfg(feature = "analyze")]
mod export;
mod help;
mod hints;
#[cfg(feature = "analyze")]
mod html;
#[cfg(feature = "analyze")]
mod plot;
#[cfg(feature = "record")]
mod record;
#[cfg(feature = "analyze")]
mod rollup;
mod shared;
#[cfg(feature = "analyze")]
mod whatif;

use self::shared::{Force, OneTrace};

#[cfg(all(feature = "record", feature = "analyze"))]
pub(crate) use self::record::Demo;
#[cfg(all(feature = "record", feature = "analyze"))]
pub(crate) use self::record::Metrics;
#[cfg(feature = "record")]
pub(crate) use self::record::{Check, Control, LockSource, Probe, Record, Sched, Threads};
#[cfg(feature = "analyze")]
pub(crate) use self::{
    analyze::{Analyze, Blame, Critical, Diff, Hist, Intervals, OffCpu, Order, Report, Timeline, Why},
    common::{Filters, Loss, Output, Rows, Table, Traces, Window},
    export::Export,
    html::Html,
    plot::{Info, Plot},
    rollup::Rollup,
    whatif::WhatIf,
};

/// The version and the commit.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("KLOCK_COMMIT"), ")");

/// Returns the version, the parts that were built, and the format of traces.
fn long_version() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let parts = [("record", cfg!(feature = "record")), ("analyze", cfg!(feature = "analyze"))];
        let parts: Vec<&str> =
            parts.into_iter().filter(|(_, is_built)| *is_built).map(|(name, _)| name).collect();
        let Version { major, minor } = Version::default();
        format!("{VERSION}\nfeatures: {}\ntrace format: {major}.{minor}", parts.join(", "))
    })
}

/// Record acquisitions, waits and releases of locks, and see what they cost.
///
/// klock record writes a trace. All other commands read it, on the same machine or on another one.
#[derive(Debug, Parser)]
#[command(name = "klock", version = VERSION, long_version = long_version(), help_expected = true)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  klock demo                                see what klock finds in a built-in program
  klock record ./server --threads 8         record a program (trace.parquet)
  sudo klock record -p 1234 -d 10s          record a running program
  sudo klock record -a -d 10s               record the machine for 10 seconds
  klock report                              show the cost of each lock
  klock why                                 say why locks are waited for, and what would help
  klock blame                               show who made others wait
  klock diff old.parquet new.parquet        compare two recordings
  klock plot --lock cache_lock -o lock.svg  draw a picture of one lock
  klock html -o report.html                 all of it as one page for the browser

Exit codes:
  0  done
  1  nothing found
  2  bad input or use
  3  not permitted or not supported on this machine, or not recorded
  4  the trace lost too many events to rank what is left, or its replay does not fit
  5  the disk failed
  6  a condition of --fail-if holds
klock record COMMAND returns the exit code of COMMAND.

klock analyze report is klock report, and so for every table."
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) terminal: Terminal,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// Parses the command line. An invalid one ends the program with a message.
    pub(crate) fn read() -> anyhow::Result<Self> {
        let words = without_analyze(std::env::args_os().collect());
        let width = terminal::any_size().map_or(usize::MAX, |size| size.columns);
        let matches = help::of_klock(Self::command(), width)
            .try_get_matches_from(&words)
            .map_err(|error| refuse(error, &words))?;
        let args = Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        #[cfg(feature = "analyze")]
        if let (Command::Export(export), Some((_, given))) = (&args.command, matches.subcommand())
            && let Some(misplaced) = export.misplaced(given)
        {
            anyhow::bail!(misplaced);
        }
        Ok(args)
    }
}

/// Returns the command line without the word `analyze`: `klock report` is `klock report`.
fn without_analyze(mut words: Vec<OsString>) -> Vec<OsString> {
    let mut at = 1;
    while words
        .get(at)
        .is_some_and(|word| word.as_encoded_bytes().starts_with(b"-") || word == "help" || word == "man")
    {
        // Of the options before a command, one takes a value.
        at += if words[at] == "--color" { 2 } else { 1 };
    }
    if words.get(at).is_some_and(|word| word == "analyze") {
        words.remove(at);
    }
    words
}

/// Returns the error for an invalid command line. Where clap's own words are best, prints them and ends the
/// program.
fn refuse(error: clap::Error, words: &[OsString]) -> anyhow::Error {
    use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    if matches!(error.kind(), DisplayHelp | DisplayHelpOnMissingArgumentOrSubcommand | DisplayVersion) {
        let has = |option: &str| words.iter().any(|word| word == option);
        let color = if has("--color=never") { ColorWhen::Never } else { ColorWhen::Auto };
        terminal::init(&Terminal { color, no_pager: has("--no-pager") });
        let text = error.render();
        let text = if terminal::current().color { text.ansi().to_string() } else { text.to_string() };
        let written = output::to_stdout(|out| Ok(out.write_all(text.as_bytes())?));
        match written {
            Err(full) if full.is::<OutputError>() => return full,
            // The reader of a closed pipe has read enough.
            _ => std::process::exit(error.exit_code()),
        }
    }
    let known = Args::command();
    let all: Vec<String> = known.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    let words: Vec<&str> = words.iter().skip(1).filter_map(|word| word.to_str()).collect();
    let command = words.iter().position(|word| all.iter().any(|name| name == word));
    let first = command.or(words.iter().position(|word| !word.starts_with('-')));
    let before = &words[..command.unwrap_or(0)];
    match hints::hint(&error, first.map_or("", |at| words[at]), before, &all) {
        Some(hint) => anyhow::anyhow!(hint),
        None => error.exit(),
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Record lock events into a trace.
    #[cfg(feature = "record")]
    Record(Box<Record>),
    #[cfg(feature = "analyze")]
    #[command(flatten)]
    Analyze(Analyze),
    /// Draw all locks, one lock or a flame graph, as SVG or PNG.
    #[cfg(feature = "analyze")]
    Plot(Plot),
    /// Write a page for the browser: verdicts, tables, a timeline to explore.
    #[cfg(feature = "analyze")]
    Html(Html),
    /// Write a trace in the format of another tool or of a viewer.
    #[cfg(feature = "analyze")]
    Export(Export),
    /// Add up traces by period and acquisition site, for many machines.
    #[cfg(feature = "analyze")]
    Rollup(Rollup),
    /// Describe a trace: its content and how it was recorded.
    #[cfg(feature = "analyze")]
    Info(Info),
    /// Finish the trace of a recorder that was killed.
    Recover(Recover),
    /// Check that a trace is as it was written, by its checksums.
    #[cfg(feature = "analyze")]
    Verify(Verify),
    /// Pause, resume or reset a running recording, or show what it has.
    #[cfg(feature = "record")]
    Control(Control),
    /// Show what this machine can record, and what prevents the rest.
    #[cfg(feature = "record")]
    Check(Check),
    /// Record a built-in program with four problems, and show what klock says about them.
    #[cfg(all(feature = "record", feature = "analyze"))]
    Demo(Demo),
    /// Print the completions of a shell.
    Completions(Completions),
    /// Print a man page, or write all of them.
    Man(Man),
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
While klock record runs, it keeps a journal beside the trace (trace.parquet.journal). klock recover \
makes a complete trace from both. The last second before the recorder was killed may be missing.")]
pub(crate) struct Recover {
    #[command(flatten)]
    pub(crate) trace: OneTrace,
    #[command(flatten)]
    pub(crate) force: Force,
}

#[cfg(feature = "analyze")]
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Every command checks what it reads. klock verify reads all bytes of the four files, and names the file and the part that is damaged.")]
pub(crate) struct Verify {
    #[command(flatten)]
    pub(crate) trace: OneTrace,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  klock completions bash > /etc/bash_completion.d/klock
  klock completions zsh > ~/.zfunc/_klock
  klock completions fish > ~/.config/fish/completions/klock.fish")]
pub(crate) struct Completions {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  klock man | man -l -
  klock man report | man -l -
  klock man -o /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// The command: nothing for klock itself, or for example report.
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
    /// Write the pages of all commands into this directory.
    #[arg(short, long, value_name = "DIR", conflicts_with = "command")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) force: Force,
}

#[cfg(test)]
#[path = "../tests/support/shown_commands.rs"]
mod shown_commands;

#[cfg(test)]
mod tests {
    #[cfg(all(feature = "record", feature = "analyze"))]
    use std::{fs, path::Path};

    use clap::CommandFactory;

    use super::*;

    #[cfg(all(feature = "record", feature = "analyze"))]
    /// Returns the files with this ending in a folder of the repository and below it.
    fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        entries
            .flat_map(|path| {
                let name = path.to_str().unwrap();
                if path.is_dir() {
                    return files(name, ending);
                }
                if name.ends_with(ending) { vec![path] } else { Vec::new() }
            })
            .collect()
    }

    #[cfg(all(feature = "record", feature = "analyze"))]
    #[test]
    fn every_command_that_documentation_and_messages_show_is_valid() {
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut shown = shown_commands::in_markdown(&read(&root.join("README.md")));
        shown.extend(files("docs", ".md").iter().flat_map(|path| shown_commands::in_markdown(&read(path))));
        for folder in ["src", "analyze", "record/src"] {
            shown.extend(files(folder, ".rs").iter().flat_map(|path| shown_commands::in_quotes(&read(path))));
        }
        assert!(shown.len() > 100, "{shown:?}");
        let mut invalid = Vec::new();
        for command in &shown {
            let words = shown_commands::words(command.split(['|', '>']).next().unwrap());
            if let [_, name] = words.as_slice() {
                // A sentence may name a command without what it needs.
                if name != "analyze"
                    && !name.starts_with('-')
                    && Args::command().find_subcommand(name).is_none()
                {
                    invalid.push(command.clone());
                }
            } else if let Err(error) = Args::try_parse_from(&words)
                && error.use_stderr()
            {
                invalid.push(format!("{command}: {}", error.to_string().lines().next().unwrap_or_default()));
            }
        }
        assert!(invalid.is_empty(), "{}", invalid.join("\n"));
    }

    #[test]
    fn every_option_has_a_help_text_and_no_two_clash() {
        Args::command().debug_assert();
    }
}
