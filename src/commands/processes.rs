//! `klock analyze processes`: one line per process to the skin that was asked for.

use analyze::processes::{self, Options};
use trace_format::Trace;

use super::{filters::filter, out};
use crate::{args, exit::Exit};

pub(super) fn run(args: &args::Processes) -> anyhow::Result<Exit> {
    let trace = Trace::open(&args.trace)?;
    let options = Options { limit: args.limit, filter: filter(&args.filters), allow_loss: args.allow_loss };
    let processes = processes::processes(&trace, &options)?;
    out::warn_of(&args.output, &processes.trust);
    out::write(&args.output, |look, out| Ok(processes::write(&processes, args.output.format, look, out)?))?;
    Ok(if processes.rows.is_empty() { Exit::Nothing } else { Exit::Done })
}
