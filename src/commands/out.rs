//! Where an analysis goes: stdout, or a file that appears whole or not at all, and how a warning gets there.

use std::io::{IsTerminal as _, Write};

use analyze::{Look, report::Trust, rows::Format};
use anyhow::bail;

use super::report::terminal_width;
use crate::{args::Output, files, output};

/// Lets `write` write to where the arguments say, and tells it how text is to look there.
pub(super) fn write(
    args: &Output,
    write: impl FnOnce(Look, &mut (dyn Write + Send)) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let look = |width| Look { width, full: args.full };
    match &args.output {
        Some(path) => files::stream_file(path, args.force, |out| write(look(None), out)),
        None if args.format.is_binary() && std::io::stdout().is_terminal() => {
            bail!("{} is nothing for a terminal; give -o FILE", args.format)
        }
        None => output::to_stdout(|out| write(look(terminal_width()), out)),
    }
}

/// What a table warns of, where its format has no place for it.
pub(super) fn warn(args: &Output, warning: Option<String>) {
    if let Some(warning) = warning.filter(|_| args.format != Format::Text || args.output.is_some()) {
        eprintln!("klock: {warning}");
    }
}

/// The same of a table that is finished.
pub(super) fn warn_of(args: &Output, trust: &Trust) {
    warn(args, trust.warning());
}
