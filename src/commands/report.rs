//! `klock analyze report`: filters to options, the report to the skin that was asked for.

use std::io::{self, IsTerminal as _};

use analyze::{
    report::{self, Options},
    rows::Format,
};

use super::{filters::filter, out, traces};
use crate::{args, exit::Exit};

pub(super) fn run(args: &args::Report) -> anyhow::Result<Exit> {
    let output = &args.table.rows.output;
    let traces = traces::open(&args.table.rows.traces)?;
    let report = report::report_of(&traces, &options(args))?;
    out::warn_of(output, &report.trust);
    out::write(output, |look, out| match output.format {
        Format::Text => Ok(report::text::write(&report, &args.columns, look, out)?),
        Format::Json => Ok(report::json::write(&report, out)?),
        format => Ok(report::rows::write(&report, &args.columns, format, out)?),
    })?;
    Ok(if report.rows.is_empty() { Exit::Nothing } else { Exit::Done })
}

/// The usual columns of the report for people, as wide as the terminal.
#[cfg(feature = "record")]
pub(super) fn write_text(out: &mut dyn io::Write, report: &report::Report) -> anyhow::Result<()> {
    Ok(report::text::write(report, &[], terminal_width(), out)?)
}

fn options(args: &args::Report) -> Options {
    Options {
        by: args.keys.by.unwrap_or_default(),
        sort: args.sort,
        columns: args.columns.clone(),
        limit: args.table.rows.limit,
        filter: filter(&args.table.rows.filters),
        depth: args.keys.depth,
        allow_loss: args.table.allow_loss,
        ..Options::default()
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
