//! `klock analyze events`, `waits` and `holds`: the rows of a trace with names, for an analysis of one's own.
//!
//! Rows go into a [`Rows`] as the trace is read, so memory does not grow with the trace; sorted rows go there at the end. Events come in the order of the file, waits
//! and holds in the order in which they end, several traces one after the other.

use std::io::{self, Write};

use trace_format::Trace;

use crate::{
    error::AnalyzeError,
    input::{
        Input,
        trust::{Trust, TrustCounter},
    },
    output::{
        Rows,
        layout::{self, TextStyle},
    },
};

mod columns;
mod events;
mod holds;
mod options;
mod ranking;
mod row;
#[cfg(test)]
mod tests;
mod waits;
mod writing;

pub use columns::{chosen_fields, fields, help};
pub use options::{Options, RowKind};

use writing::{Intervals, Out, What};

/// The rows that were written, and the events and intervals that they do not hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The number of rows.
    pub rows: u64,
    /// The number of rows beyond the limit; `None` if reading stopped there.
    pub hidden: Option<u64>,
    /// Events and intervals that the rows do not hold.
    pub trust: Trust,
}

impl Written {
    /// Writes the sentence that stands for rows of this kind, if there are none.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_nothing(
        &self,
        what: RowKind,
        style: TextStyle,
        out: &mut (dyn Write + Send),
    ) -> io::Result<()> {
        if self.rows > 0 {
            return Ok(());
        }
        let row = match what {
            RowKind::Events => "event is",
            RowKind::Waits => "wait ended",
            RowKind::Holds => "hold ended",
        };
        let nothing =
            format!("nothing to show: no {row} in what was selected; `klock info` shows what was recorded");
        style.wrapped(&nothing, out)
    }

    /// Writes that there are more rows than the limit, if there are.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_hidden(&self, style: TextStyle, out: &mut (dyn Write + Send)) -> io::Result<()> {
        match self.hidden {
            Some(rows) => layout::hidden(usize::try_from(rows).unwrap_or(usize::MAX), "", style, out),
            None => layout::hidden_somewhere(style, out),
        }
    }
}

/// Returns the warning before the first row: loss, as far as the footers report it.
pub fn warning(traces: &[Trace]) -> Option<String> {
    let of = |trace: &Trace| Trust {
        lost: trace.info().loss.events(),
        recorded: trace.event_count(),
        ..Trust::default()
    };
    Trust::merged(traces.iter().map(of)).warning()
}

/// Writes the rows of one trace or several, one after the other; times are since the start of each. Returns the number of rows, and
/// what they do not hold.
///
/// # Errors
///
/// A trace cannot be read or holds no events, a filter finds nothing in any of them, or `rows` fails.
pub fn write(traces: &[Trace], options: &Options, rows: &mut dyn Rows) -> Result<Written, AnalyzeError> {
    let inputs = Input::open_all(traces, 0, &options.filter)?;
    of_inputs(&inputs, traces.len() > 1, options, rows)
}

/// Writes the rows of these inputs; with `several`, each with its trace.
pub(crate) fn of_inputs(
    inputs: &[Input<'_>],
    several: bool,
    options: &Options,
    rows: &mut dyn Rows,
) -> Result<Written, AnalyzeError> {
    let (what, mut ranking) = What::new(several, options)?;
    let (mut trusts, mut written) = (Vec::new(), 0);
    let mut stopped = false;
    for input in inputs {
        let mut out = Out {
            rows: row::Rows::new(input),
            selection: &input.selection,
            limit: options.limit,
            out: &mut *rows,
            ranking: ranking.as_mut(),
            written,
            has_more: false,
            failed: Ok(()),
        };
        let mut trust = TrustCounter::default();
        let outcome = match &what {
            What::Events(columns) => out.events(columns, input)?,
            what => input.run(&mut Intervals { out: &mut out, what, trust: &mut trust })?,
        };
        stopped |= out.is_full();
        out.failed?;
        written = out.written;
        // Rows that are not ranked are never refused.
        trusts.push(input.trust(trust, &outcome, true)?);
    }
    let mut hidden = (!stopped).then_some(0);
    if let Some(ranking) = ranking {
        let all = ranking.count();
        let ranked = ranking.into_rows();
        written = ranked.len() as u64;
        hidden = Some(all - written);
        ranked.iter().try_for_each(|cells| rows.push(cells))?;
    }
    rows.finish()?;
    Ok(Written { rows: written, hidden, trust: Trust::merged(trusts) })
}
