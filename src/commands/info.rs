//! `klock info`: describes a trace.

use analyze::tables::info;

use crate::{args, exit::Exit, output};

pub(super) fn run(args: &args::Info) -> anyhow::Result<Exit> {
    let trace = trace_format::open(&args.trace)?;
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
