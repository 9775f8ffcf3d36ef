//! `klock analyze report`: filters to options, the report to the skin that was asked for.

use std::{
    io::{self, IsTerminal as _, Write},
    time::Duration,
};

use analyze::report::{self, Options, Report};
use trace_format::Trace;

use crate::{
    args::{self, Format},
    exit::Exit,
    output,
};

pub(super) fn run(args: &args::Report) -> anyhow::Result<Exit> {
    let trace = Trace::open(&args.trace)?;
    let report = report::report(&trace, &options(args))?;
    output::to_stdout(|out| match args.format {
        Format::Text => Ok(report::text::write(&report, &args.columns, terminal_width(), out)?),
        Format::Csv => Ok(report::csv::write(&report, &args.columns, out)?),
        Format::Json => Ok(report::json::write(&report, out)?),
    })?;
    Ok(if report.rows.is_empty() { Exit::Nothing } else { Exit::Done })
}

/// The usual columns of the report for people, as wide as the terminal.
pub(super) fn write_text(out: &mut dyn Write, report: &Report) -> anyhow::Result<()> {
    Ok(report::text::write(report, &[], terminal_width(), out)?)
}

fn options(args: &args::Report) -> Options {
    // Every word is a lock or task that may be asked for; whether it exists is for the trace to say.
    let Ok(lock) = args.lock.as_deref().map(str::parse).transpose();
    let Ok(task) = args.task.as_deref().map(str::parse).transpose();
    let ns = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    Options {
        by: args.by,
        sort: args.sort,
        columns: args.columns.clone(),
        limit: args.limit,
        lock,
        task,
        kinds: args.kind.clone(),
        include_idle: args.idle,
        from_ns: args.from.map(ns),
        to_ns: args.to.map(ns),
    }
}

/// Columns of the terminal that stdout is, or `None` if it is none.
pub(super) fn terminal_width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    // SAFETY: winsize is plain integers, for which all zeros are a value.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: TIOCGWINSZ writes one winsize through the pointer, which is valid for it.
    let answer = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    (answer == 0 && size.ws_col > 0).then_some(usize::from(size.ws_col))
}
