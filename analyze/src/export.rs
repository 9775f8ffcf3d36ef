//! A trace in the languages of other tools: of older ones, whose users have scripts, and of viewers that people have.
//!
//! A trace and [`Options`] enter, bytes leave; each format is a module of its own, which says whose format it is and where that is
//! written down. What a format can't say is left out and told by the [`Trust`] that comes back, never invented.

use std::{fmt, io::Write, str::FromStr};

use trace_format::Trace;

use crate::{choices::choices, error::AnalyzeError, filter::Filter, raw, report::Trust, rows};

mod charges;
mod chrome;
pub mod firefox;
pub mod folded;
mod lanes;
pub mod lock_prof;
pub mod locktrace;
pub mod mklockstat;
pub mod offwaketime;
pub mod perf_lock;
mod perfetto;
mod pprof;
pub(crate) mod safe;
mod stacks;
mod waiting;

#[cfg(test)]
mod tests;

choices! {
    /// A format.
    Format, "format" {
        /// The events, RFC 4180.
        #[default]
        Csv = "csv",
        /// The events, one JSON object per line.
        Jsonl = "jsonl",
        /// FreeBSD's table of LOCK_PROFILING(9).
        LockProf = "lock-prof",
        /// bcc's locktrace.
        Locktrace = "locktrace",
        /// milli-klockstat's waits by period.
        Mklockstat = "mklockstat",
        /// The table of perf lock contention.
        PerfLock = "perf-lock",
        /// bcc's offwaketime, folded, as it was first.
        Offwaketime = "offwaketime",
        /// bcc's offwaketime, folded, as it is now.
        Offwaketime2 = "offwaketime2",
        /// Stacks with their waits or holds, for flame graphs.
        Folded = "folded",
        /// What Go's mutex profile says: waits by stack, for `go tool pprof`, Pyroscope and Parca.
        Pprof = "pprof",
        /// Holds and waits per thread, for ui.perfetto.dev and trace_processor.
        Perfetto = "perfetto",
        /// Waits as samples and markers, holds as markers, for profiler.firefox.com.
        Firefox = "firefox",
        /// Chrome's trace events: holds and waits per thread.
        Chrome = "chrome",
        /// The events as an Arrow IPC file (Feather).
        Arrow = "arrow",
    }
}

impl Format {
    /// Whether it is nothing for a terminal.
    pub const fn is_binary(self) -> bool {
        matches!(self, Self::Pprof | Self::Perfetto | Self::Arrow)
    }
}

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The format.
    pub format: Format,
    /// What of the trace.
    pub filter: Filter,
    /// Also if the trace lost too much for an order of rows to mean anything.
    pub allow_loss: bool,
    /// What [`Format::LockProf`] takes.
    pub lock_prof: lock_prof::Options,
    /// What [`Format::Locktrace`] takes.
    pub locktrace: locktrace::Options,
    /// What [`Format::Mklockstat`] takes.
    pub mklockstat: mklockstat::Options,
    /// What [`Format::PerfLock`] takes.
    pub perf_lock: perf_lock::Options,
    /// What [`Format::Offwaketime`] and [`Format::Offwaketime2`] take.
    pub offwaketime: offwaketime::Options,
    /// With [`Format::Folded`].
    pub folded: folded::Options,
    /// With [`Format::Firefox`].
    pub firefox: firefox::Options,
}

/// What was written.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// How many rows, stacks or intervals; 0 is nothing found.
    pub items: u64,
    /// What they don't hold.
    pub trust: Trust,
    /// What the user is to be told beside that, for example what the format can't say.
    pub notes: Vec<String>,
}

/// Writes the trace in the format.
///
/// # Errors
///
/// The trace can't be read or holds no events, a filter means nothing in it, it lacks what the format is about, or what `out` says.
pub fn write(
    trace: &Trace,
    options: &Options,
    out: &mut (dyn Write + Send),
) -> Result<Written, AnalyzeError> {
    match options.format {
        Format::Csv => events(trace, options, rows::Format::Csv, out),
        Format::Jsonl => events(trace, options, rows::Format::Json, out),
        Format::LockProf => lock_prof::write(trace, options, out),
        Format::Locktrace => locktrace::write(trace, options, out),
        Format::Mklockstat => mklockstat::write(trace, options, out),
        Format::PerfLock => perf_lock::write(trace, options, out),
        Format::Offwaketime => offwaketime::write(trace, options, offwaketime::Grammar::Seed, out),
        Format::Offwaketime2 => offwaketime::write(trace, options, offwaketime::Grammar::Modern, out),
        Format::Folded => folded::write(trace, options, out),
        Format::Pprof => pprof::write(trace, options, out),
        Format::Perfetto => perfetto::write(trace, options, out),
        Format::Firefox => firefox::write(trace, options, out),
        Format::Chrome => chrome::write(trace, options, out),
        Format::Arrow => events(trace, options, rows::Format::Arrow, out),
    }
}

fn events(
    trace: &Trace,
    options: &Options,
    format: rows::Format,
    out: &mut (dyn Write + Send),
) -> Result<Written, AnalyzeError> {
    let asked = raw::Options { what: raw::What::Events, filter: options.filter.clone(), limit: None };
    let mut rows = rows::writer(format, &raw::fields(asked.what, false), None, out)?;
    let (items, trust) = raw::write(trace, &asked, &mut *rows)?;
    Ok(Written { items, trust, notes: Vec::new() })
}
