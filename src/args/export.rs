//! `klock export`, as it is typed.

use std::{path::PathBuf, str::FromStr as _};

use analyze::export::Format;
use clap::Args as ClapArgs;

use super::common::Filters;

mod offwaketime;
mod older;
mod viewers;

pub(crate) use offwaketime::Offwaketime;
pub(crate) use older::{LockProf, Locktrace, Mklockstat, PerfLock};
pub(crate) use viewers::{Firefox, Folded};

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Formats:
  csv           the events, RFC 4180, times in nanoseconds
  jsonl         the events, one JSON object per line
  folded        stacks by how long they waited, for flamegraph.pl, inferno and speedscope
  pprof         contentions and delay by stack, for go tool pprof, Pyroscope and Parca
  perfetto      holds and waits per thread, who handed the lock to whom, waiters, for ui.perfetto.dev
  firefox       waits as samples and markers, holds as markers, for profiler.firefox.com
  chrome        holds and waits on their threads, for viewers of Chrome's trace events
  arrow         the events as an Arrow IPC file (Feather)
  lock-prof     FreeBSD's debug.lock.prof.stats
  locktrace     bcc's locktrace: futex calls, CSV
  mklockstat    milli-klockstat: waits by period, CSV
  offwaketime   bcc's offwaketime -f: off-CPU time by stack and waker's stack
  offwaketime2  the same as present versions of it write it
  perf-lock     perf lock contention: waits for kernel locks

Examples:
  klock export --format csv -o events.csv
  klock export --format folded --of combined | flamegraph.pl --color=chain --countname=us > waits.svg
  klock export --format offwaketime | flamegraph.pl --color=chain > off.svg")]
pub(crate) struct Export {
    /// The trace.
    #[arg(value_name = "TRACE", default_value = "trace.parquet")]
    pub(crate) trace: PathBuf,
    /// Which format.
    #[arg(long, value_name = "FORMAT", value_parser = Format::from_str)]
    pub(crate) format: Format,
    /// Write to FILE instead of stdout.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace a file that exists.
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Also if more than 5 % of the events were lost, and an order of rows may mean nothing.
    #[arg(long)]
    pub(crate) allow_loss: bool,
    #[command(flatten)]
    pub(crate) filters: Filters,
    #[command(flatten)]
    pub(crate) folded: Folded,
    #[command(flatten)]
    pub(crate) firefox: Firefox,
    #[command(flatten)]
    pub(crate) lock_prof: LockProf,
    #[command(flatten)]
    pub(crate) locktrace: Locktrace,
    #[command(flatten)]
    pub(crate) mklockstat: Mklockstat,
    #[command(flatten)]
    pub(crate) perf_lock: PerfLock,
    #[command(flatten)]
    pub(crate) offwaketime: Offwaketime,
}

impl Export {
    /// The options that mean something to some formats only: whose they are, and one that was given, if one was.
    fn own(&self) -> Vec<(&'static [Format], Option<&'static str>)> {
        vec![
            (&[Format::Folded], self.folded.given()),
            (&[Format::Firefox], self.firefox.given()),
            (&[Format::LockProf], self.lock_prof.given()),
            (&[Format::Locktrace], self.locktrace.given()),
            (&[Format::Mklockstat], self.mklockstat.given()),
            (&[Format::PerfLock], self.perf_lock.given()),
            (&[Format::Offwaketime, Format::Offwaketime2], self.offwaketime.given()),
        ]
    }

    /// An option of another format than the one that was asked for, in words.
    pub(crate) fn misplaced(&self) -> Option<String> {
        let own = self.own();
        let (formats, option) = own.iter().find_map(|(formats, given)| {
            given.filter(|_| !formats.contains(&self.format)).map(|option| (formats, option))
        })?;
        let formats: Vec<&str> = formats.iter().map(|format| format.as_str()).collect();
        Some(format!(
            "{option} is an option of --format {}, not of {}; leave it out or give that format",
            formats.join(" and "),
            self.format
        ))
    }
}

/// The first of these options that was given.
fn first_given(options: &[(&'static str, bool)]) -> Option<&'static str> {
    options.iter().find(|(_, given)| *given).map(|(option, _)| *option)
}
