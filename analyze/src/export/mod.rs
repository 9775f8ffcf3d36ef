//! Writes traces in the formats of other tools and of viewers.
//!
//! Traces and [`Options`] go in, bytes come out. Each format is a module with one `Exporter`, and says which tool defines the
//! format. Facts that a format cannot express are left out and reported in [`Written`], never invented.

use std::io::Write;

use trace_format::{TaskState, Trace};

use crate::{
    choices::choices, error::AnalyzeError, input::filter::Filter, metrics::Syntax, output, tables::intervals,
};

mod charges;
pub mod firefox;
pub mod folded;
pub mod lock_prof;
pub mod locktrace;
pub mod metrics;
pub mod mklockstat;
pub mod offwaketime;
pub mod perf_lock;
mod perfetto;
mod pprof;
mod run;
mod stacks;
mod stream;
#[cfg(test)]
mod tests;

use folded::Folded;
use locktrace::Locktrace;
use offwaketime::{Grammar, OffWakeTime, Space};
use perf_lock::{Aggregate, PerfLock};
pub use run::Written;
use run::{Request, run};

choices! {
    /// An export format.
    Format, "format" {
        /// Events as CSV (RFC 4180).
        #[default]
        Csv = "csv",
        /// Events as JSON, one object per line.
        Jsonl = "jsonl",
        /// The table of FreeBSD's LOCK_PROFILING(9).
        LockProf = "lock-prof",
        /// The CSV of bcc's locktrace.
        Locktrace = "locktrace",
        /// The CSV of milli-klockstat: waits by period.
        Mklockstat = "mklockstat",
        /// The table of perf lock contention.
        PerfLock = "perf-lock",
        /// Folded stacks of bcc's offwaketime, first version (2016).
        Offwaketime = "offwaketime",
        /// Folded stacks of bcc's offwaketime, present version.
        Offwaketime2 = "offwaketime2",
        /// Folded stacks with their waits or holds, for flame graphs.
        Folded = "folded",
        /// Waits by stack as in Go's mutex profile, for `go tool pprof`, Pyroscope and Parca.
        Pprof = "pprof",
        /// Holds and waits per thread, for ui.perfetto.dev and trace_processor.
        Perfetto = "perfetto",
        /// Waits as samples and markers, holds as markers, for profiler.firefox.com.
        Firefox = "firefox",
        /// Events as an Arrow IPC file (Feather).
        Arrow = "arrow",
        /// Events as an Arrow IPC stream, for a pipe.
        Arrows = "arrows",
        /// Counters of locks in OpenMetrics 1.0.
        Openmetrics = "openmetrics",
        /// Counters of locks in the text format of Prometheus, for node_exporter's textfile collector.
        Prometheus = "prometheus",
    }
}

impl Format {
    /// Whether the format is binary, which a terminal cannot show.
    pub const fn is_binary(self) -> bool {
        matches!(self, Self::Pprof | Self::Perfetto | Self::Arrow | Self::Arrows)
    }
}

/// The format, the selection, and what single formats can choose.
#[derive(Clone, Debug)]
pub struct Options {
    /// The format.
    pub format: Format,
    /// The selected part of each trace.
    pub filter: Filter,
    /// Ranks a trace even if it lost too many events.
    pub allow_loss: bool,
    /// Folded: the weight of a stack.
    pub of: folded::Of,
    /// Folded: the unit of weights.
    pub unit: folded::Unit,
    /// Firefox: the number of waits, and of holds; the longest are written. Prometheus and OpenMetrics: the number of locks with series of
    /// their own. perf-lock: the number of rows.
    pub limit: Option<usize>,
    /// mklockstat: the length of a period in ns; at least 1.
    pub period_ns: i64,
    /// mklockstat: includes monitoring threads.
    pub with_monitors: bool,
    /// perf-lock: the subject of a row.
    pub aggregate: Aggregate,
    /// perf-lock: separates values by this, and writes nanoseconds (`-x`).
    pub separator: Option<String>,
    /// offwaketime: separates the two stacks of a side by `-`.
    pub delimited: bool,
    /// offwaketime: selects the stacks of one space (`-U`, `-K`).
    pub stacks: Option<Space>,
    /// offwaketime: selects the threads of programs or of the kernel (`-u`, `-k`). A thread without any user frame counts as a kernel
    /// thread.
    pub threads: Option<Space>,
    /// offwaketime: the longest time to include, in ns (`-M`).
    pub max_wait_ns: i64,
    /// offwaketime: selects off-CPU times by the state of the task; empty for all. A preempted task is `runnable`.
    pub states: Vec<TaskState>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            format: Format::default(),
            filter: Filter::default(),
            allow_loss: false,
            of: folded::Of::default(),
            unit: folded::Unit::default(),
            limit: None,
            period_ns: mklockstat::PERIOD_NS,
            with_monitors: false,
            aggregate: Aggregate::default(),
            separator: None,
            delimited: false,
            stacks: None,
            threads: None,
            max_wait_ns: i64::MAX,
            states: Vec::new(),
        }
    }
}

/// Writes the traces in a format.
///
/// # Errors
///
/// A trace cannot be read, holds no events or lost too much, the filter selects nothing, a trace lacks what the format needs, the
/// format takes one trace only, or `out` fails.
pub fn write(
    traces: &[Trace],
    options: &Options,
    out: &mut (dyn Write + Send),
) -> Result<Written, AnalyzeError> {
    let request = options.request(traces);
    match options.format {
        Format::Csv => events(request, output::Format::Csv, out),
        Format::Jsonl => events(request, output::Format::Json, out),
        Format::Arrow => events(request, output::Format::Arrow, out),
        Format::Arrows => events(request, output::Format::Arrows, out),
        Format::LockProf => lock_prof::write(request, out),
        Format::Locktrace => run(Locktrace::new(false, out), request),
        Format::Mklockstat => {
            run(mklockstat::Lines::new(options.period_ns, options.with_monitors, out), request)
        }
        Format::PerfLock => {
            let filter = &perf_lock::kernel_unless_chosen(&options.filter);
            run(PerfLock::new(options, out), Request { filter, ..request })
        }
        Format::Offwaketime => run(OffWakeTime::new(Grammar::Seed, options, out), request),
        Format::Offwaketime2 => run(OffWakeTime::new(Grammar::Modern, options, out), request),
        Format::Folded if options.of == folded::Of::Combined => {
            run(Folded::<true>::new(options, out), request)
        }
        Format::Folded => run(Folded::<false>::new(options, out), request),
        Format::Pprof => run(pprof::Pprof::new(out), request),
        Format::Perfetto => run(perfetto::Perfetto::new(out), request),
        Format::Firefox => run(firefox::Firefox::new(options.limit, out), request),
        Format::Openmetrics => run(metrics::Metrics::new(options.limit, Syntax::OpenMetrics, out), request),
        Format::Prometheus => run(metrics::Metrics::new(options.limit, Syntax::Prometheus, out), request),
    }
}

/// Writes the histograms of locktrace: the blocked times of all futexes of a trace.
///
/// # Errors
///
/// Several traces are given, the trace cannot be read or holds no futex calls, or `out` fails.
pub fn write_locktrace_histograms(
    traces: &[Trace],
    options: &Options,
    out: &mut (dyn Write + Send),
) -> Result<(), AnalyzeError> {
    run(Locktrace::new(true, out), options.request(traces)).map(drop)
}

impl Options {
    fn request<'a>(&'a self, traces: &'a [Trace]) -> Request<'a> {
        Request { format: self.format.as_str(), traces, filter: &self.filter, allow_loss: self.allow_loss }
    }
}

/// Writes events: a table of klock's own.
fn events(
    request: Request<'_>,
    format: output::Format,
    out: &mut (dyn Write + Send),
) -> Result<Written, AnalyzeError> {
    let Request { traces, filter, .. } = request;
    let filter = filter.clone();
    let events =
        intervals::Options { what: intervals::RowKind::Events, filter, ..intervals::Options::default() };
    let mut rows = output::writer(format, &intervals::fields(events.what, traces.len() > 1), None, out)?;
    let intervals::Written { rows: items, trust, .. } = intervals::write(traces, &events, &mut *rows)?;
    Ok(Written { items, trust, notes: Vec::new() })
}
