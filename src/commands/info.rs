//! `klock info`: describes traces.

use analyze::tables::info;

use super::traces;
use crate::{args, exit::Exit, output};

pub(super) fn run(args: &args::Info) -> anyhow::Result<Exit> {
    let traces = traces::open(&args.traces.traces)?;
    let all = traces.iter().map(info::info).collect::<Result<Vec<_>, _>>()?;
    output::to_stdout(|out| {
        for (at, info) in all.iter().enumerate() {
            if args.json {
                info.write_json(out)?;
                continue;
            }
            if at > 0 {
                writeln!(out)?;
            }
            info.write_text(output::style(args.full, true), out)?;
        }
        Ok(())
    })?;
    Ok(Exit::Done)
}
