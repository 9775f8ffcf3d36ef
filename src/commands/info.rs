//! `klock info`: what a trace holds and how it was made.

use analyze::info;
use trace_format::Trace;

use crate::{args, exit::Exit, output};

pub(super) fn run(args: &args::Info) -> anyhow::Result<Exit> {
    let trace = Trace::open(&args.trace)?;
    let info = info::info(&trace)?;
    output::to_stdout(|out| {
        if args.json {
            info::json::write(&info, out)?
        } else {
            info::text::write(&info, out)?
        }
        Ok(())
    })?;
    Ok(Exit::Done)
}
