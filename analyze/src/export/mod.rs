//! Writes traces in the formats of other tools and of viewers.
//!
//! Traces and [`Options`] go in, bytes come out. Each format is a module with one `Exporter`, and says which tool defines the
//! format. Facts that a format cannot express are left out and reported in [`Written`], never invented.

use std::io::Write;

use trace_format::Trace;

use crate::metrics::Syntax;
use output::error::AnalyzeError;
use tables::intervals;

mod charges;
#[cfg(test)]
mod cross_checks;
pub mod firefox;
pub mod folded;
pub mod lock_prof;
pub mod locktrace;
pub mod metrics;
pub mod mklockstat;
pub mod offwaketime;
mod options;
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
use offwaketime::OffWakeTime;
use options::Grammar;
pub use options::{Aggregate, Format, Of, Options, PERIOD_NS, Space, Unit};
use perf_lock::PerfLock;
pub use run::Written;
use run::{Request, run};

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
        Format::Folded if options.of == Of::Combined => run(Folded::<true>::new(options, out), request),
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
