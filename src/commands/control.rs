//! `klock control`: asks a running recording to pause, resume, begin again or stop, and prints its answer.

use clap::ValueEnum as _;
use trace_format::text::printable;

use crate::{args, exit::Exit, output};

pub(super) fn run(args: &args::Control) -> anyhow::Result<Exit> {
    let request = args.action.to_possible_value();
    let answer = record::control(args.pid, request.as_ref().map_or("", |request| request.get_name()))?;
    output::to_stdout(|out| Ok(writeln!(out, "{}", printable(&answer))?))?;
    Ok(Exit::Done)
}
