//! Writes traces in the formats of other tools and of viewers.
//!
//! Each format is a module with a function `write`, and says which tool defines the format.
//! Facts that a format cannot express are left out and reported in [`Written`], never invented.

use trace_format::Trace;

use output::error::AnalyzeError;
use tables::intervals;

#[cfg(test)]
mod cross_checks;
mod firefox;
mod folded;
mod lock_prof;
mod locktrace;
mod metrics;
mod mklockstat;
mod offwaketime;
mod options;
mod perf_lock;
mod perfetto;
mod pprof;
mod read;
mod stacks;
#[cfg(test)]
mod tests;

pub use locktrace::write_histograms as write_locktrace_histograms;
pub use options::{Aggregate, Format, Of, Options, Space, Unit};
use read::Out;
pub use read::Written;

/// Writes the traces in a format.
///
/// # Errors
///
/// A trace cannot be read, holds no events or lost too much, the filter selects nothing, a trace lacks what
/// the format needs, the format takes one trace only, or `out` fails.
pub fn write(traces: &[Trace], options: &Options, out: Out<'_>) -> Result<Written, AnalyzeError> {
    match options.format {
        Format::Csv => events(traces, options, output::Format::Csv, out),
        Format::Jsonl => events(traces, options, output::Format::Json, out),
        Format::Arrow => events(traces, options, output::Format::Arrow, out),
        Format::Arrows => events(traces, options, output::Format::Arrows, out),
        Format::LockProf => lock_prof::write(traces, options, out),
        Format::Locktrace => locktrace::write(traces, options, out),
        Format::Mklockstat => mklockstat::write(traces, options, out),
        Format::PerfLock => perf_lock::write(traces, options, out),
        Format::Offwaketime | Format::Offwaketime2 | Format::OffwaketimeText => {
            offwaketime::write(traces, options, out)
        }
        Format::Folded => folded::write(traces, options, out),
        Format::Pprof => pprof::write(traces, options, out),
        Format::Perfetto => perfetto::write(traces, options, out),
        Format::Firefox => firefox::write(traces, options, out),
        Format::Openmetrics | Format::Prometheus => metrics::write(traces, options, out),
    }
}

/// Writes events: a table of klock's own.
fn events(
    traces: &[Trace],
    options: &Options,
    format: output::Format,
    out: Out<'_>,
) -> Result<Written, AnalyzeError> {
    let (what, filter) = (intervals::RowKind::Events, options.filter.clone());
    let events = intervals::Options { what, filter, ..intervals::Options::default() };
    let mut rows = output::writer(format, &intervals::fields(what, traces.len() > 1), None, out)?;
    let intervals::Written { rows: items, trust, .. } = intervals::write(traces, &events, &mut *rows)?;
    Ok(Written { items, trust, notes: Vec::new() })
}
