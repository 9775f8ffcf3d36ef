//! Opens the destination of a result: stdout, or a file that appears complete or not at all. Prints warnings
//! to stderr for formats that cannot hold them.

use std::{
    fmt::Display,
    io::{IsTerminal as _, Write},
    path::Path,
};

use analyze::{
    TextStyle,
    output::{Format, layout::Notes},
};
use anyhow::bail;

use crate::{
    args::{Output, Rows},
    files, output, terminal,
};

/// The answer to `-n 0`.
pub(super) const NO_ROW: &str = "nothing to show: no row was asked for (-n 0)";

/// Returns the style of text at the destination.
pub(super) fn style(args: &Output) -> TextStyle {
    if args.file.path(None).is_some() {
        TextStyle { full: args.full, notes: Notes::None, ..TextStyle::default() }
    } else {
        output::style(args.full, args.notes)
    }
}

/// Returns whether text goes to a terminal.
pub(super) fn is_terminal(args: &Output) -> bool {
    args.format == Format::Text && style(args).is_terminal
}

/// Returns the number of rows to show: what the arguments say, or what a screen has room for on a terminal.
pub(super) fn limit(args: &Rows) -> Option<usize> {
    match args.limit {
        None if is_terminal(&args.output) && !args.all => Some(terminal::rows()),
        limit => limit,
    }
}

/// Calls `write` with the destination.
pub(super) fn write(
    args: &Output,
    write: impl FnOnce(&mut (dyn Write + Send)) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let binary = args.format.is_binary().then_some(&args.format as &dyn Display);
    stream(args.file.path(None), args.file.force.force, binary, write)
}

/// Writes the notes of text to stderr where the text has the rows alone.
pub(super) fn notes(
    args: &Output,
    write: impl FnOnce(TextStyle, &mut (dyn Write + Send)) -> std::io::Result<()>,
) -> anyhow::Result<()> {
    if args.format == Format::Text && style(args).notes == Notes::None {
        let notes = if args.notes { Notes::Full } else { Notes::Folded };
        write(TextStyle { notes, ..TextStyle::default() }, &mut std::io::stderr())?;
    }
    Ok(())
}

/// Calls `write` with the file, or with stdout if none is given. Refuses a binary format on a terminal.
pub(super) fn stream(
    path: Option<&Path>,
    force: bool,
    binary: Option<&dyn Display>,
    write: impl FnOnce(&mut (dyn Write + Send)) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    match (path, binary) {
        (Some(path), _) => files::write(path, &files::options(force), write),
        (None, Some(format)) if std::io::stdout().is_terminal() => {
            bail!("cannot write {format} to a terminal; use -o FILE")
        }
        (None, _) => output::to_stdout(write),
    }
}

/// Prints a warning to stderr, unless it is part of text on a terminal.
pub(super) fn warn(args: &Output, warning: Option<String>) {
    let is_shown = |_: &String| args.format == Format::Text && style(args).notes != Notes::None;
    if let Some(warning) = warning.filter(|warning| !is_shown(warning)) {
        output::message(warning);
    }
}
