//! The arguments of `klock export`.

use std::{path::PathBuf, str::FromStr as _, time::Duration};

use analyze::export::{Aggregate, Format, Of, Space, Unit};
use clap::{ArgMatches, Args as ClapArgs, parser::ValueSource};

use super::{
    common::{Filters, Loss, OutputFile, States, Traces},
    shared::{duration, positive},
};

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
  lock-prof     the table of FreeBSD's debug.lock.prof.stats
  locktrace     the CSV of bcc's locktrace: futex calls
  mklockstat    the CSV of milli-klockstat: waits by period
  offwaketime   the output of bcc's offwaketime -f, first version: off-CPU times
  offwaketime2  the same, present version
  offwaketime-text  the same without -f, a line per function
  perf-lock     the table of perf lock contention: waits for kernel locks
  prometheus    counters of locks, for node_exporter's textfile collector
  openmetrics   the same in OpenMetrics 1.0

csv, jsonl, arrow, arrows, folded, pprof, lock-prof, perf-lock, offwaketime, prometheus and openmetrics take several traces.

Examples:
  klock export --format csv -o events.csv
  klock export --format folded | flamegraph.pl --countname=us > waits.svg
  klock export --format offwaketime | flamegraph.pl --color=chain > off.svg")]
pub(crate) struct Export {
    #[command(flatten)]
    pub(crate) traces: Traces,
    /// Write this format.
    #[arg(long, value_name = "FORMAT", value_parser = Format::from_str)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) file: OutputFile,
    #[command(flatten)]
    pub(crate) loss: Loss,
    #[command(flatten)]
    pub(crate) filters: Filters,
    #[command(flatten)]
    pub(crate) own: OwnOptions,
    #[command(flatten)]
    pub(crate) states: States,
}

/// Options that belong to single formats.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Single formats")]
pub(crate) struct OwnOptions {
    /// folded: weigh stacks by wait, hold, wait_caused (the time that others waited for a hold), combined
    /// (the waiter's stack, --, the holder's stack), blocked (sleep in waits), sys (time in futex calls that
    /// was not sleep), or by a number of calls: count (acquisitions), wakes, errors or offcpu [default:
    /// wait].
    #[arg(long, value_name = "WHAT", value_parser = Of::from_str)]
    pub(crate) of: Option<Of>,
    /// folded: set the unit of the weights: us or ns [default: us].
    #[arg(long, value_name = "UNIT", value_parser = Unit::from_str)]
    pub(crate) unit: Option<Unit>,
    /// firefox: write the longest N waits and N holds [default: 50000]. prometheus, openmetrics: give the N
    /// locks that were waited for longest series of their own [default: 20]. perf-lock: show the first N rows
    /// [default: all].
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// locktrace: write a histogram of the blocked times of each futex to FILE.
    #[arg(long, value_name = "FILE")]
    pub(crate) hist: Option<PathBuf>,
    /// mklockstat: set the length of a period [default: 50ms].
    #[arg(long, value_name = "TIME", value_parser = positive)]
    pub(crate) period: Option<Duration>,
    /// mklockstat: include the threads of collect, collectl and tcplife-bpfcc.
    #[arg(long)]
    pub(crate) no_filter_monitors: bool,
    /// perf-lock: make a row for each caller, task, lock or owner [default: caller].
    #[arg(long, value_name = "KEY", value_parser = Aggregate::from_str)]
    pub(crate) by: Option<Aggregate>,
    /// perf-lock: separate values by SEP and print nanoseconds. SEP cannot contain : + or . because names
    /// contain them.
    #[arg(short = 'x', long, value_name = "SEP", value_parser = separator)]
    pub(crate) field_separator: Option<String>,
    /// offwaketime: separate user and kernel frames by a dash.
    #[arg(long)]
    pub(crate) delimited: bool,
    /// offwaketime: show user frames only, or kernel frames only.
    #[arg(long, value_name = "user|kernel", value_parser = Space::from_str)]
    pub(crate) stacks: Option<Space>,
    /// offwaketime: show threads of programs only, or kernel threads only.
    #[arg(long, value_name = "user|kernel", value_parser = Space::from_str)]
    pub(crate) threads: Option<Space>,
    /// offwaketime: show only times of at most this length: 9ms. --min-wait sets the least one.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) max_wait: Option<Duration>,
}

/// The options of single formats, and these formats.
const FORMATS_OF: [(&[&str], &[Format]); 6] = [
    (&["of", "unit"], &[Format::Folded]),
    (&["limit"], &[Format::Firefox, Format::Openmetrics, Format::Prometheus, Format::PerfLock]),
    (&["hist"], &[Format::Locktrace]),
    (&["period", "no_filter_monitors"], &[Format::Mklockstat]),
    (&["by", "field_separator"], &[Format::PerfLock]),
    (&["delimited", "stacks", "threads", "max_wait", "state"], &OFFWAKETIME),
];
const OFFWAKETIME: [Format; 3] = [Format::Offwaketime, Format::Offwaketime2, Format::OffwaketimeText];

impl Export {
    /// Returns an error message if an option of another format was given.
    pub(super) fn misplaced(&self, given: &ArgMatches) -> Option<String> {
        let others = FORMATS_OF.iter().filter(|(_, formats)| !formats.contains(&self.format));
        let all = others.flat_map(|(ids, formats)| ids.iter().map(move |id| (*id, *formats)));
        let (id, formats) =
            all.into_iter().find(|(id, _)| given.value_source(id) == Some(ValueSource::CommandLine))?;
        let option = match id {
            "limit" => "-n".to_owned(),
            "field_separator" => "-x".to_owned(),
            id => format!("--{}", id.replace('_', "-")),
        };
        let formats: Vec<&str> = formats.iter().map(|format| format.as_str()).collect();
        Some(format!(
            "cannot use {option}: it is an option of --format {}, not of {}; leave it out or give that format",
            formats.join(" and "),
            self.format
        ))
    }
}

/// Parses a separator that perf accepts.
fn separator(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains([':', '+', '.', '\n', '\r']) {
        return Err(format!("invalid separator '{text}': use characters other than : + . and line ends"));
    }
    Ok(text.to_owned())
}
