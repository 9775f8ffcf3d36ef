//! `klock analyze blame`: filters to options, the table to the skin that was asked for.

use analyze::blame::{self, Options};
use trace_format::Trace;

use super::report::terminal_width;
use crate::{
    args::{self, Format},
    exit::Exit,
    output,
};

pub(super) fn run(args: &args::Blame) -> anyhow::Result<Exit> {
    let trace = Trace::open(&args.trace)?;
    // Every word is a lock that may be asked for; whether it exists is for the trace to say.
    let Ok(lock) = args.lock.as_deref().map(str::parse).transpose();
    let options =
        Options { by: args.by, limit: args.limit, lock, kinds: args.kind.clone(), include_idle: args.idle };
    let blame = blame::blame(&trace, &options)?;
    output::to_stdout(|out| match args.format {
        Format::Text => Ok(blame::text::write(&blame, terminal_width(), out)?),
        Format::Csv => Ok(blame::csv::write(&blame, out)?),
        Format::Json => Ok(blame::json::write(&blame, out)?),
    })?;
    Ok(if blame.rows.is_empty() { Exit::Nothing } else { Exit::Done })
}
