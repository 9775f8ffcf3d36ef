//! bcc's locktrace, version 1 (iovisor/bcc pull request 1697): a row of CSV per futex, thread and user stack, with the time that its
//! calls slept and the time that they ran.
//!
//! The futex calls of a trace enter, and with `approximate` the calls on locks of the C library, whose futex calls were not recorded;
//! [`Row`]s leave, as bytes or, from such bytes, as values ([`read`](fn@read)). Waits and wakes are counted, and the times of waits are the
//! kernel's own; what the trace does not tell, and the original did, is in the notes that come back.

use std::{
    fmt,
    io::{self, Write},
    str::FromStr,
};

use trace_format::Trace;

use super::{Options as Export, Written, safe};
use crate::{error::AnalyzeError, loss};

mod calls;
mod hist;
mod read;
#[cfg(test)]
mod tests;

pub use hist::write as write_hist;
pub use read::{ReadError, read};

use calls::Calls;

/// The first line.
pub const HEADER: &str = "pid,tid,addr,blocked_us,sys_us,max_blocked_us,max_sys_us,wait_count,blocked_count,wake_count,errors,stack";

/// What the format takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Also what a trace knows only from calls on locks of the C library: each that waited is a call that waits, and its wait is
    /// the time that it slept.
    pub approximate: bool,
    /// Histograms as the original prints them, with bounds of half the true values and without what took less than 2 µs.
    pub hist_compat: bool,
}

/// One row. Times are in µs, each call's truncated before they are added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The process.
    pub pid: i32,
    /// The thread.
    pub tid: i32,
    /// The futex.
    pub addr: u64,
    /// Asleep, and after that in the run queue.
    pub blocked_us: i64,
    /// In the call beside that.
    pub sys_us: i64,
    /// The longest of the former.
    pub max_blocked_us: i64,
    /// The longest of the latter.
    pub max_sys_us: i64,
    /// Calls that wait.
    pub wait_count: i64,
    /// Of them: those that slept for a microsecond and more.
    pub blocked_count: i64,
    /// Calls that wake.
    pub wake_count: i64,
    /// Calls that failed.
    pub errors: i64,
    /// The name of the process, and the functions of the stack, root first, with semicolons between.
    pub stack: String,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, tid, addr, blocked_us, sys_us, max_blocked_us, max_sys_us, .. } = self;
        let Self { wait_count, blocked_count, wake_count, errors, stack, .. } = self;
        write!(f, "{pid},{tid},{addr:#x},{blocked_us},{sys_us},{max_blocked_us},{max_sys_us},")?;
        write!(f, "{wait_count},{blocked_count},{wake_count},{errors},{stack}")
    }
}

pub(super) fn write(
    trace: &Trace,
    options: &Export,
    out: &mut (dyn Write + Send),
) -> Result<Written, AnalyzeError> {
    let calls = Calls::of(trace, options)?;
    loss::check(trace, &calls.trust, options.allow_loss)?;
    let total = calls.row_count();
    let (mut rows, missing) = calls.rows();
    // Everything behind the first two words only tells equal rows apart.
    rows.sort_by(|a, b| {
        let busiest = (b.pid, b.blocked_us).cmp(&(a.pid, a.blocked_us));
        busiest.then_with(|| (a.tid, a.addr, &a.stack).cmp(&(b.tid, b.addr, &b.stack)))
    });
    write_rows(&rows, out).map_err(AnalyzeError::Write)?;
    let mut notes = calls.notes();
    notes.push(format!("Total records: {total}"));
    if missing > 0 {
        notes.push(format!("WARNING: {missing} stack traces could not be displayed."));
    }
    Ok(Written { items: rows.len() as u64, trust: calls.trust, notes })
}

fn write_rows(rows: &[Row], out: &mut (dyn Write + Send)) -> io::Result<()> {
    writeln!(out, "{HEADER}")?;
    rows.iter().try_for_each(|row| writeln!(out, "{row}"))
}

impl FromStr for Row {
    type Err = &'static str;

    /// Reads a row as the original or klock writes it. The stack is everything behind the eleventh comma: its functions hold commas.
    fn from_str(line: &str) -> Result<Self, &'static str> {
        read::row(line)
    }
}
