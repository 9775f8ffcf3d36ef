//! What a trace holds, row by row and with names: events as they were recorded, and the holds and waits that they make.
//!
//! Traces and [`Options`] enter, rows leave into a [`Rows`] as the trace is read, for an analysis of one's own; what comes back is the
//! [`Trust`] block. Nothing is added up and nothing kept but what is open, so memory does not grow with the trace. Events come in the
//! order of the file, holds and waits in the order in which they end; of several traces, one after the other.

use std::{fmt, ops::ControlFlow, str::FromStr};

use trace_format::Trace;

use crate::{
    choices::choices,
    error::AnalyzeError,
    filter::Filter,
    intervals::{Counts, Hold, Sink, Wait},
    names::printable,
    parts::{self, Keys, Part, Trusts},
    pass::{Detail, Walk},
    report::{About, Trust, trust::Watch},
    rows::{Cell, Field, Rows, Value},
    scope::Chosen,
    source,
};

mod events;
mod intervals;
mod labels;
#[cfg(test)]
mod tests;

use labels::Labels;

choices! {
    /// What a row is.
    What, "kind of row" {
        /// One event.
        #[default]
        Events = "events",
        /// One task's wait for one lock.
        Waits = "waits",
        /// One task's hold of one lock.
        Holds = "holds",
    }
}

impl What {
    /// What the trust block is told about.
    pub const fn about(self) -> About {
        match self {
            Self::Events => About::Events,
            Self::Waits => About::Waits,
            Self::Holds => About::Holds,
        }
    }
}

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What a row is.
    pub what: What,
    /// What of the trace. Of events, those with a wait of at least the least time, and those in the window.
    pub filter: Filter,
    /// At most so many rows; `None` is all.
    pub limit: Option<u64>,
}

/// The columns of such rows. Rows of several traces begin with which one they are of.
pub fn fields(what: What, several: bool) -> Vec<Field> {
    let of_trace = [Field::text("trace").shown("trace", Value::Text, (8, 12)), Field::text("host")];
    let mut fields: Vec<Field> = of_trace.into_iter().filter(|_| several).collect();
    fields.extend(match what {
        What::Events => events::fields(),
        What::Waits => intervals::wait_fields(),
        What::Holds => intervals::hold_fields(),
    });
    fields
}

/// What is to be known before the first row: loss, as far as the footers tell it.
pub fn warning(traces: &[Trace]) -> Option<String> {
    let of = |trace: &Trace| Trust {
        lost: trace.info().loss.events(),
        recorded: trace.event_count(),
        ..Trust::default()
    };
    traces.iter().map(of).reduce(Trust::and).and_then(|trust| trust.warning())
}

/// Writes the rows of the trace; says how many there were, and what they don't hold.
///
/// # Errors
///
/// The trace can't be read or holds no events, a filter means nothing in it, or what `rows` says.
pub fn write(trace: &Trace, options: &Options, rows: &mut dyn Rows) -> Result<(u64, Trust), AnalyzeError> {
    write_in(&[trace], options, rows)
}

/// Writes the rows of several traces, one after the other. Times are since the begin of each.
///
/// # Errors
///
/// As [`write`]; but a trace without events, or in which a filter means nothing, is passed over if there is another.
pub fn write_of(
    traces: &[Trace],
    options: &Options,
    rows: &mut dyn Rows,
) -> Result<(u64, Trust), AnalyzeError> {
    write_in(&traces.iter().collect::<Vec<_>>(), options, rows)
}

fn write_in(traces: &[&Trace], options: &Options, rows: &mut dyn Rows) -> Result<(u64, Trust), AnalyzeError> {
    let parts = parts::of(traces, Keys::default(), &options.filter)?;
    write_of_parts(&parts, traces.len() > 1, options, rows)
}

pub(crate) fn write_of_parts(
    parts: &[Part<'_>],
    several: bool,
    options: &Options,
    rows: &mut dyn Rows,
) -> Result<(u64, Trust), AnalyzeError> {
    let (mut trusts, mut written) = (Trusts::default(), 0);
    for part in parts {
        let mut with_trace = WithTrace { trace: &part.label, host: part.names.host(), rows };
        let rows: &mut dyn Rows = if several { &mut with_trace } else { with_trace.rows };
        let Part { names, chosen, .. } = part;
        let labels = Labels::new(names, chosen.start_ns);
        let mut out = Out { labels, chosen, limit: options.limit, rows, written, failed: Ok(()) };
        let mut watch = Watch::default();
        let (walk, counts) = if options.what == What::Events {
            (out.events(part.trace)?, Counts::default())
        } else {
            part.run(Detail::All, &mut Intervals { out: &mut out, what: options.what, watch: &mut watch })?
        };
        out.failed?;
        written = out.written;
        // What is not ranked is never refused.
        trusts.add(part, watch, (&walk, &counts), true)?;
    }
    rows.finish()?;
    Ok((written, trusts.finish()))
}

/// Rows of one of several traces.
struct WithTrace<'a, 'b> {
    trace: &'a str,
    host: Option<&'a str>,
    rows: &'b mut dyn Rows,
}

impl Rows for WithTrace<'_, '_> {
    fn push(&mut self, cells: &[Cell<'_>]) -> Result<(), AnalyzeError> {
        let host = self.host.map(|host| printable(host).into_owned());
        let mut all: Vec<Cell<'_>> = vec![self.trace.into(), host.into()];
        all.extend(cells.iter().cloned());
        self.rows.push(&all)
    }

    fn finish(&mut self) -> Result<(), AnalyzeError> {
        self.rows.finish()
    }
}

/// Where rows go, until there are enough.
struct Out<'a> {
    labels: Labels<'a>,
    chosen: &'a Chosen,
    limit: Option<u64>,
    rows: &'a mut dyn Rows,
    written: u64,
    failed: Result<(), AnalyzeError>,
}

impl Out<'_> {
    fn is_full(&self) -> bool {
        self.failed.is_err() || self.limit.is_some_and(|limit| self.written >= limit)
    }

    fn events(&mut self, trace: &Trace) -> Result<Walk, AnalyzeError> {
        let mut walk = Walk::default();
        let to_ns = self.chosen.window.to_ns;
        source::for_each(trace, |event| {
            if self.is_full() || to_ns.is_some_and(|to_ns| event.ts_ns >= to_ns) {
                return ControlFlow::Break(());
            }
            walk.see_event(event, self.chosen);
            if self.chosen.wants_event(event) {
                self.written += 1;
                self.failed = events::push(event, &mut self.labels, self.rows);
            }
            ControlFlow::Continue(())
        })?;
        Ok(walk)
    }
}

/// Takes the intervals of which the rows are.
struct Intervals<'a, 'b> {
    out: &'a mut Out<'b>,
    what: What,
    watch: &'a mut Watch,
}

impl Sink for Intervals<'_, '_> {
    fn hold(&mut self, hold: &Hold) {
        // What is open when the reading is broken off is no news.
        if self.out.is_full() || !self.out.chosen.wants_hold(hold) {
            return;
        }
        self.watch.hold(hold);
        if self.what == What::Holds {
            self.out.written += 1;
            self.out.failed = intervals::push_hold(hold, &mut self.out.labels, self.out.rows);
        }
    }

    fn wait(&mut self, wait: &Wait) {
        if self.out.is_full() || !self.out.chosen.wants_wait(wait) {
            return;
        }
        self.watch.wait(wait);
        if self.what == What::Waits {
            self.out.written += 1;
            self.out.failed = intervals::push_wait(wait, &mut self.out.labels, self.out.rows);
        }
    }

    fn has_enough(&self) -> bool {
        self.out.is_full()
    }
}
