//! `klock control`: asks a running recording to pause, resume or begin again, and prints its answer.

use record::{Action, control};
use trace_format::text::printable;

use crate::{args, exit::Exit, output};

pub(super) fn run(args: &args::Control) -> anyhow::Result<Exit> {
    let action = match args.action {
        args::Action::Pause => Action::Pause,
        args::Action::Resume => Action::Resume,
        args::Action::Reset => Action::Reset,
        args::Action::Stats => Action::Stats,
    };
    let answer = control(args.pid, action)?;
    output::to_stdout(|out| Ok(writeln!(out, "{}", printable(&answer))?))?;
    Ok(Exit::Done)
}
