//! The CSV of bcc's locktrace, version 1 (iovisor/bcc pull request 1697): a row per futex, thread and user stack, with the times
//! that its calls slept and ran.
//!
//! The futex calls of a trace go in, and with `approximate` also the calls on locks of the C library, whose futex calls were not
//! recorded. [`Row`]s come out as bytes; [`read`](fn@read) turns such bytes into rows again. Waits and wakes are counted, and the
//! times of waits are those of the kernel. Notes report what the original shows and the trace does not hold.

use std::io::{self, Write};

use trace_format::Event;

use super::run::{Exporter, Reads};
use crate::{error::AnalyzeError, input::Input, input::trust::Trust};

mod calls;
mod hist;
mod row;
#[cfg(test)]
mod tests;

pub use row::{HEADER, ReadError, Row, read};

use calls::Calls;
pub(super) use calls::sys_ns;

/// Options of the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Takes calls on locks of the C library for futex calls: a call that waited is a futex wait that slept as long.
    pub approximate: bool,
    /// Prints histograms as the original does: with bounds of half the true values, and without times of less than 2 µs.
    pub hist_compat: bool,
}

/// Adds up calls and writes the table or the histograms.
pub(super) struct Locktrace<'w> {
    calls: Calls,
    options: Options,
    writes_histograms: bool,
    out: &'w mut (dyn Write + Send),
}

impl<'w> Locktrace<'w> {
    pub(super) fn new(options: Options, out: &'w mut (dyn Write + Send)) -> Self {
        Self { calls: Calls::new(options.approximate), options, writes_histograms: false, out }
    }

    /// Writes the histograms instead of the table.
    pub(super) fn histograms(options: Options, out: &'w mut (dyn Write + Send)) -> Self {
        Self { writes_histograms: true, ..Self::new(options, out) }
    }
}

impl Exporter for Locktrace<'_> {
    const RANKS: bool = true;
    const ONE_TRACE: Option<&'static str> = Some("a futex is an address of one process in one trace");

    fn begin(&mut self, input: &Input<'_>) -> Result<Reads, AnalyzeError> {
        self.calls.begin(input)
    }

    fn event(&mut self, event: &Event, input: &Input<'_>) {
        self.calls.add(event, &input.names);
    }

    fn end(&mut self, input: &Input<'_>) -> Result<(), AnalyzeError> {
        self.calls.end(input)
    }

    fn finish(self, _trust: &Trust) -> Result<(u64, Vec<String>), AnalyzeError> {
        if self.writes_histograms {
            let slots = &self.calls.slots;
            hist::write_all(slots, self.options.hist_compat, self.out).map_err(AnalyzeError::Write)?;
            return Ok((slots.len() as u64, Vec::new()));
        }
        let total = self.calls.row_count();
        let (mut rows, missing) = self.calls.rows();
        // The rest of the key only makes the order of equal rows definite.
        rows.sort_by(|a, b| {
            let busiest = (b.pid, b.blocked_us).cmp(&(a.pid, a.blocked_us));
            busiest.then_with(|| (a.tid, a.addr, &a.stack).cmp(&(b.tid, b.addr, &b.stack)))
        });
        write_rows(&rows, self.out).map_err(AnalyzeError::Write)?;
        let mut notes = self.calls.notes();
        notes.push(format!("Total records: {total}"));
        if missing > 0 {
            notes.push(format!("WARNING: {missing} stack traces could not be displayed."));
        }
        Ok((rows.len() as u64, notes))
    }
}

fn write_rows(rows: &[Row], out: &mut (dyn Write + Send)) -> io::Result<()> {
    writeln!(out, "{HEADER}")?;
    rows.iter().try_for_each(|row| writeln!(out, "{row}"))
}
