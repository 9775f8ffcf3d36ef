//! Writes traces in the formats of other tools and of viewers.
//!
//! Traces and [`Options`] go in, bytes come out. Each format is a module with one `Exporter`, and says which tool defines the
//! format. Facts that a format cannot express are left out and reported in [`Written`], never invented.

use std::io::Write;

use trace_format::Trace;

use crate::{
    choices::choices, error::AnalyzeError, input::filter::Filter, metrics::Syntax, output, tables::intervals,
};

mod attempts;
mod charges;
mod chrome;
pub mod firefox;
pub mod folded;
mod lanes;
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
mod waiting;

use folded::Folded;
use locktrace::Locktrace;
use offwaketime::{Grammar, OffWakeTime};
use perf_lock::PerfLock;
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
        /// Holds and waits per thread as Chrome trace events.
        Chrome = "chrome",
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

/// The format, the selection, and the options of all formats.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The format.
    pub format: Format,
    /// The selected part of each trace.
    pub filter: Filter,
    /// Ranks a trace even if it lost too many events.
    pub allow_loss: bool,
    /// Options of [`Format::LockProf`].
    pub lock_prof: lock_prof::Options,
    /// Options of [`Format::Locktrace`].
    pub locktrace: locktrace::Options,
    /// Options of [`Format::Mklockstat`].
    pub mklockstat: mklockstat::Options,
    /// Options of [`Format::PerfLock`].
    pub perf_lock: perf_lock::Options,
    /// Options of [`Format::Offwaketime`] and [`Format::Offwaketime2`].
    pub offwaketime: offwaketime::Options,
    /// Options of [`Format::Folded`].
    pub folded: folded::Options,
    /// Options of [`Format::Firefox`].
    pub firefox: firefox::Options,
    /// Options of [`Format::Openmetrics`] and [`Format::Prometheus`].
    pub metrics: metrics::Options,
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
        Format::LockProf => lock_prof::write(request, options.lock_prof, out),
        Format::Locktrace => run(Locktrace::new(options.locktrace, out), request),
        Format::Mklockstat => run(mklockstat::Lines::new(options.mklockstat, out), request),
        Format::PerfLock => {
            let filter = &perf_lock::kernel_unless_chosen(&options.filter);
            run(PerfLock::new(&options.perf_lock, out), Request { filter, ..request })
        }
        Format::Offwaketime => run(OffWakeTime::new(Grammar::Seed, &options.offwaketime, out), request),
        Format::Offwaketime2 => run(OffWakeTime::new(Grammar::Modern, &options.offwaketime, out), request),
        Format::Folded if options.folded.of == folded::Of::Combined => {
            run(Folded::<true>::new(options.folded, out), request)
        }
        Format::Folded => run(Folded::<false>::new(options.folded, out), request),
        Format::Pprof => run(pprof::Pprof::new(out), request),
        Format::Perfetto => run(perfetto::Perfetto::new(out), request),
        Format::Firefox => run(firefox::Firefox::new(options.firefox, out), request),
        Format::Chrome => run(chrome::Chrome::new(out), request),
        Format::Openmetrics => run(metrics::Metrics::new(options.metrics, Syntax::OpenMetrics, out), request),
        Format::Prometheus => run(metrics::Metrics::new(options.metrics, Syntax::Prometheus, out), request),
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
    run(Locktrace::histograms(options.locktrace, out), options.request(traces)).map(drop)
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
