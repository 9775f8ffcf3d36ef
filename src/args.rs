//! The command line, exactly as it was typed: the doc comments here are the help text. Values are parsed, nothing is
//! opened and nothing decided.

use std::{path::PathBuf, time::Duration};

use clap::{Args as ClapArgs, Parser, Subcommand};

#[cfg(feature = "analyze")]
mod analyze;
#[cfg(feature = "analyze")]
mod common;
#[cfg(feature = "analyze")]
mod export;
#[cfg(feature = "analyze")]
mod plot;
#[cfg(feature = "record")]
mod record;

#[cfg(feature = "record")]
pub(crate) use self::record::{Check, KernelProbes, LockSource, PthreadProbes, Record};
#[cfg(all(feature = "record", feature = "analyze"))]
pub(crate) use self::record::{Demo, DemoWorkload};
#[cfg(feature = "analyze")]
pub(crate) use self::{
    analyze::{Analyze, Blame, Diff, Hist, Periods, Processes, Report, Timeline},
    common::{Filters, Output, Rows},
    export::{Export, Firefox, Folded, LockProf, Locktrace, Mklockstat, Offwaketime, PerfLock},
    plot::{Info, Plot},
};

/// Record every acquire, wait and release of locks, and see which lock costs what.
///
/// klock record writes a trace; klock analyze and klock plot read it, here or on another machine.
#[derive(Debug, Parser)]
#[command(name = "klock", version, max_term_width = 100, help_expected = true)]
#[command(after_help = "\
Examples:
  klock demo                                   see what klock does, on a workload of its own
  sudo klock record -- ./server --threads 8    record a program's locks into trace.parquet
  sudo klock record -a -d 10s                  record the whole machine for ten seconds
  klock analyze report                         which lock cost what
  klock analyze blame                          who made whom wait
  klock analyze diff old.parquet new.parquet   what became longer
  klock plot --lock cache_lock -o lock.svg     one lock as a picture

Exit codes: 0 done, 1 nothing found, 2 bad input or use, 3 not permitted or not supported here,
4 the trace lost too much to rank, 5 the disk failed, 6 a --fail-if condition holds. klock record -- COMMAND passes on COMMAND's.")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Record lock events into a trace.
    #[cfg(feature = "record")]
    Record(Box<Record>),
    /// Tables from a trace.
    #[cfg(feature = "analyze")]
    #[command(subcommand)]
    Analyze(Analyze),
    /// One lock as a picture (SVG): who held it, who waited, how many at a time.
    #[cfg(feature = "analyze")]
    Plot(Plot),
    /// The trace in the language of another tool, or of a viewer.
    #[cfg(feature = "analyze")]
    Export(Export),
    /// What a trace holds and how it was made.
    #[cfg(feature = "analyze")]
    Info(Info),
    /// Finish the trace of a recorder that was killed.
    Recover(Recover),
    /// What this machine can record, and what is in the way.
    #[cfg(feature = "record")]
    Check(Check),
    /// Record a workload that klock brings along, print its report and draw a picture.
    #[cfg(all(feature = "record", feature = "analyze"))]
    Demo(Demo),
    /// The workload of the demo.
    #[cfg(all(feature = "record", feature = "analyze"))]
    #[command(hide = true)]
    DemoWorkload(DemoWorkload),
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
A recorder keeps a journal beside the trace (trace.parquet.journal) while it runs. From both, klock recover makes a
trace of everything up to less than a second before the recorder was killed.")]
pub(crate) struct Recover {
    /// The trace.
    #[arg(value_name = "TRACE", default_value = "trace.parquet")]
    pub(crate) trace: PathBuf,
}

/// `500ms`, `10s`, `1.5s`, `2m`, `1h`; a bare number is seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("'{text}' is no time; write 500ms, 10s or 2m");
    let split = text.find(|c: char| c.is_ascii_alphabetic() || c == 'µ').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().ok().ok_or_else(bad)?;
    let scale = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(bad()),
    };
    Duration::try_from_secs_f64(number * scale).ok().ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_option_has_a_help_text_and_no_two_clash() {
        Args::command().debug_assert();
    }

    #[test]
    fn times_take_a_unit_and_default_to_seconds() {
        let read = |text| duration(text).map(|d| d.as_nanos());
        assert_eq!(read("500ms"), Ok(500_000_000));
        assert_eq!(read("1.5s"), Ok(1_500_000_000));
        assert_eq!(read("2"), Ok(2_000_000_000));
        assert_eq!(read("2m"), Ok(120_000_000_000));
        assert!(read("-1s").is_err() && read("soon").is_err() && read("1y").is_err() && read("").is_err());
    }
}
