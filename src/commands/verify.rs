//! `klock verify`: checks that a trace is as it was written.

use analyze::output::layout::Paint;
use indicatif::HumanCount;
use trace_format::{Trace, text::printable};

use crate::{args, exit::Exit, output};

pub(super) fn run(args: &args::Verify) -> anyhow::Result<Exit> {
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
