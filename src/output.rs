//! The standard output, with a pager where that helps; messages and the progress line on the standard error.
//!
//! Errors are returned, also the error of a closed pipe: the caller decides what they mean.

use std::{
    fmt::Display,
    io::{self, BufWriter, IsTerminal as _, Write},
};

#[cfg(feature = "analyze")]
use analyze::output::layout::{Notes, TextStyle};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use trace_format::{output::OutputError, text::printable};

use crate::{pager, terminal};

/// Prints a message to stderr, as `klock: MESSAGE`, in lines that a terminal has room for. Control characters
/// are escaped: messages quote names from traces.
pub(crate) fn message(message: impl Display) {
    let text = format!("klock: {}", printable(&message.to_string()));
    match terminal::size_of(io::stderr()) {
        Some(size) => eprintln!("{}", terminal::wrapped(&text, size.columns, 2)),
        None => eprintln!("{text}"),
    }
}

/// Returns a line on stderr that is rewritten in place, never wider than the terminal. It is shown on a
/// terminal unless `quiet` is set.
pub(crate) fn progress_line(quiet: bool) -> ProgressBar {
    let is_shown = !quiet && io::stderr().is_terminal();
    let target = if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(None, target);
    if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
        bar.set_style(style);
    }
    bar
}

/// Calls `write` with the standard output, on a terminal by way of a pager.
pub(crate) fn to_stdout(
    write: impl FnOnce(&mut (dyn Write + Send)) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let plan = terminal::current();
    match &plan.pager {
        Some(command) => pager::page(command, write),
        None => unpaged(write),
    }
}

/// Calls `write` with the buffered standard output.
pub(crate) fn unpaged(
    write: impl FnOnce(&mut (dyn Write + Send)) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut out = BufWriter::with_capacity(64 * 1024, Stdout { failed: None });
    let result = write(&mut out).and_then(|()| Ok(out.flush()?));
    let failed = out.get_ref().failed.map(io::Error::from_raw_os_error);
    match failed.filter(|error| error.kind() != io::ErrorKind::BrokenPipe) {
        Some(source) => Err(OutputError::Io { path: "the standard output".into(), source }.into()),
        None => result,
    }
}

/// The standard output, and the first error of writing to it.
struct Stdout {
    failed: Option<i32>,
}

impl Stdout {
    fn note<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| self.failed = self.failed.or(error.raw_os_error()))
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = io::stdout().write(bytes);
        self.note(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = io::stdout().flush();
        self.note(result)
    }
}

/// Returns the style of text on the standard output.
#[cfg(feature = "analyze")]
pub(crate) fn style(full: bool, all_notes: bool) -> TextStyle {
    let plan = terminal::current();
    let notes = match plan.size {
        None => Notes::None,
        Some(_) if all_notes => Notes::Full,
        Some(_) => Notes::Folded,
    };
    let width = plan.size.map(|size| size.columns);
    TextStyle { width, full, is_terminal: width.is_some(), color: plan.color, notes }
}
