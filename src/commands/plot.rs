//! `klock plot`: a lock by address, id or name, drawn into an SVG.

use std::{path::Path, time::Duration};

use analyze::{plot, select, timeline};
use trace_format::Trace;

use crate::{args, exit::Exit, files, output};

pub(super) fn run(args: &args::Plot) -> anyhow::Result<Exit> {
    let to_stdout = args.output == Path::new("-");
    if !to_stdout {
        files::check_new(&args.output, args.force)?;
    }
    let trace = Trace::open(&args.trace)?;
    let window = window(args.from, args.to);
    let svg = draw(&trace, &args.lock, window, args.width)?;
    if to_stdout {
        output::to_stdout(|out| Ok(out.write_all(svg.as_bytes())?))?;
    } else {
        files::write_file(&args.output, args.force, svg.as_bytes())?;
    }
    Ok(Exit::Done)
}

/// The picture of the one lock that `lock` names.
pub(super) fn draw(
    trace: &Trace,
    lock: &str,
    window: Option<(i64, i64)>,
    width: u32,
) -> anyhow::Result<String> {
    let lock = select::one_lock(trace, &lock.parse()?)?;
    let options = plot::Options { width, ..plot::Options::default() };
    let query = timeline::Query { lock, window, columns: options.columns() };
    Ok(plot::svg(&timeline::of_lock(trace, &query)?, &options)?)
}

/// Nanoseconds from the trace's begin; an open end is the end of the trace.
pub(super) fn window(from: Option<Duration>, to: Option<Duration>) -> Option<(i64, i64)> {
    let ns = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    (from.is_some() || to.is_some()).then(|| (from.map_or(0, ns), to.map_or(i64::MAX, ns)))
}
