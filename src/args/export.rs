//! The arguments of `klock export`.

use std::{path::PathBuf, str::FromStr as _};

use analyze::export::Format;
use clap::{ArgMatches, Args as ClapArgs, Id};

use super::common::Filters;

mod metrics;
mod offwaketime;
mod older;
mod viewers;

pub(crate) use metrics::Metrics;
pub(crate) use offwaketime::Offwaketime;
pub(crate) use older::{LockProf, Locktrace, Mklockstat, PerfLock};
pub(crate) use viewers::{Firefox, Folded};

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Formats:
  csv           events as CSV (RFC 4180), times in nanoseconds
  jsonl         events as JSON, one object per line
  arrow         events as an Arrow IPC file (Feather)
  arrows        the same as an Arrow IPC stream, for a pipe
  folded        stacks and their times, for flamegraph.pl, inferno, speedscope
  pprof         waits by stack, for go tool pprof, Pyroscope and Parca
  perfetto      holds, waits and hand-offs per thread, for ui.perfetto.dev
  firefox       waits and holds per thread, for profiler.firefox.com
  chrome        holds and waits per thread, for viewers of Chrome trace events
  lock-prof     the table of FreeBSD's debug.lock.prof.stats
  locktrace     the CSV of bcc's locktrace: futex calls
  mklockstat    the CSV of milli-klockstat: waits by period
  offwaketime   the output of bcc's offwaketime -f, first version: off-CPU times
  offwaketime2  the same, present version
  perf-lock     the table of perf lock contention: waits for kernel locks
  prometheus    counters of locks, for node_exporter's textfile collector
  openmetrics   the same in OpenMetrics 1.0

csv, jsonl, arrow, arrows, folded, pprof, lock-prof, perf-lock, offwaketime, prometheus and openmetrics take several traces.

Examples:
  klock export --format csv -o events.csv
  klock export --format folded | flamegraph.pl --countname=us > waits.svg
  klock export --format offwaketime | flamegraph.pl --color=chain > off.svg")]
pub(crate) struct Export {
    /// Traces to export: files, or directories of them.
    #[arg(value_name = "TRACE", default_value = "trace.parquet")]
    pub(crate) traces: Vec<PathBuf>,
    /// Write this format.
    #[arg(long, value_name = "FORMAT", value_parser = Format::from_str)]
    pub(crate) format: Format,
    /// Write to FILE instead of stdout.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace an existing file. As root, write also where other users can rename files.
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Rank rows even if more than 5 % of the events were lost.
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
    #[command(flatten)]
    pub(crate) metrics: Metrics,
}

/// The groups of options that belong to certain formats. A flattened struct is a group of its name.
const OPTIONS_OF: [(&str, &[Format]); 8] = [
    ("Folded", &[Format::Folded]),
    ("Firefox", &[Format::Firefox]),
    ("LockProf", &[Format::LockProf]),
    ("Locktrace", &[Format::Locktrace]),
    ("Mklockstat", &[Format::Mklockstat]),
    ("PerfLock", &[Format::PerfLock]),
    ("Offwaketime", &[Format::Offwaketime, Format::Offwaketime2]),
    ("Metrics", &[Format::Openmetrics, Format::Prometheus]),
];

impl Export {
    /// Returns an error message if an option of another format was given.
    pub(super) fn misplaced(&self, given: &ArgMatches) -> Option<String> {
        let others = OPTIONS_OF.iter().filter(|(_, formats)| !formats.contains(&self.format));
        let name = |id: &Id| match id.as_str() {
            "field_separator" => "-x".to_owned(),
            id => format!("--{}", id.replace('_', "-")),
        };
        let first = |(group, formats): &(&str, &'static [Format])| {
            Some((name(given.get_many::<Id>(group)?.next()?), *formats))
        };
        let (option, formats) = others.filter_map(first).next()?;
        let formats: Vec<&str> = formats.iter().map(|format| format.as_str()).collect();
        Some(format!(
            "cannot use {option}: it is an option of --format {}, not of {}; leave it out or give that format",
            formats.join(" and "),
            self.format
        ))
    }
}
