//! `klock info`: describes traces. `klock verify`: checks that a trace is as it was written.

use analyze::{output::layout::Paint, tables::info};
use indicatif::HumanCount;
use trace_format::{Trace, text::printable};

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

pub(super) fn verify(args: &args::Verify) -> anyhow::Result<Exit> {
    let path = &args.trace.trace;
    let trace = Trace::open(path)?;
    trace.verify()?;
    output::to_stdout(|out| {
        let (path, groups) = (path.to_string_lossy(), trace.row_groups());
        let (path, events) = (printable(&path), HumanCount(trace.event_count()));
        let found = format!(
            "{path}: {events} events in {groups} row groups, and 3 side tables, are as they were written"
        );
        output::style(false, true).wrapped_in(Paint::Plain, &found, out)?;
        Ok(())
    })?;
    Ok(Exit::Done)
}
