//! `klock plot`: draws one lock, all locks or stacks into an SVG or a PNG.

use std::path::Path;

use analyze::{
    Filter,
    export::Of,
    input::lookup,
    plot::{self, blame, flame, lanes, overview},
};
use anyhow::bail;
use trace_format::{EventKind, Trace};

use super::filters::{check_window, ns};
use crate::{
    args::{self, Window},
    exit::Exit,
    files, output,
    progress::Reading,
};

pub(super) fn run(args: &args::Plot) -> anyhow::Result<Exit> {
    let path = args.output();
    let is_png = path.map_or(Ok(false), is_png)?;
    check_window(args.window)?;
    files::restrict_to(&args.trace.trace);
    let file = path.map(|path| files::create(path, &files::options(args.file.force.force))).transpose()?;
    let name = args.trace.trace.to_string_lossy();
    if args.flame.is_some() && name.parse::<Of>().is_ok() && !args.trace.trace.exists() {
        bail!("invalid trace '{name}': --flame={name} draws stacks by {name}");
    }
    let trace = trace_format::open(&args.trace.trace)?;
    let options = plot::Options { width: args.width, theme: args.theme };
    let reading = Reading::start(std::slice::from_ref(&trace));
    let svg = svg(&trace, args, &options)?;
    drop(reading);
    let picture = if is_png { plot::png(&svg)? } else { svg.into_bytes() };
    match file {
        Some(file) => files::fill(file, |out| Ok(out.write_all(&picture)?))?,
        None => output::to_stdout(|out| Ok(out.write_all(&picture)?))?,
    }
    Ok(Exit::Done)
}

/// Whether the ending of the file's name asks for a PNG.
fn is_png(path: &Path) -> anyhow::Result<bool> {
    match path.extension().map(|ending| ending.to_string_lossy().to_lowercase()).as_deref() {
        Some("png") => Ok(true),
        Some("svg") | None => Ok(false),
        Some(other) => bail!("invalid ending '{other}' of -o: use .svg or .png"),
    }
}

/// Draws the picture that the arguments select.
fn svg(trace: &Trace, args: &args::Plot, options: &plot::Options) -> anyhow::Result<String> {
    // Every word parses; whether such a lock exists depends on the trace.
    let Ok(lock) = args.lock.as_deref().map(str::parse).transpose();
    let Window { from, to } = args.window;
    let filter = Filter { lock, from_ns: from.map(ns), to_ns: to.map(ns), ..Filter::default() };
    let is_overview = args.lock.is_none() && !args.blame;
    let flame = match args.flame {
        // A recording of off-CPU times alone has no waits for locks.
        None | Some(Of::Wait) if is_overview && has_off_cpu_alone(trace)? => Some(Of::OffCpu),
        flame => flame,
    };
    Ok(match (flame, &args.lock) {
        (Some(weight), _) => flame::flame(trace, weight, &filter, options)?,
        _ if args.blame => plot::blame_svg(&blame::blame(trace, &filter)?, options)?,
        (None, Some(lock)) => {
            let is_window = from.is_some() || to.is_some();
            let window = is_window.then(|| (from.map_or(0, ns), to.map_or(i64::MAX, ns)));
            draw(trace, lock, window, options)?
        }
        (None, None) => plot::overview_svg(&overview::overview(trace, &filter)?, options)?,
    })
}

/// Whether the trace has off-CPU times and no locks.
fn has_off_cpu_alone(trace: &Trace) -> anyhow::Result<bool> {
    let is_off_cpu = |(kind, _): &(EventKind, u64)| *kind == EventKind::OffCpu;
    Ok(trace.locks()?.is_empty() && trace.events_by_kind()?.iter().any(is_off_cpu))
}

/// Draws the lock that `lock` names by address, id or name. The window is in ns since the start of the trace.
pub(super) fn draw(
    trace: &Trace,
    lock: &str,
    window: Option<(i64, i64)>,
    options: &plot::Options,
) -> anyhow::Result<String> {
    let lock = lookup::one_lock(trace, &lock.parse()?)?;
    let query = lanes::Query { lock, window, columns: options.columns() };
    Ok(plot::svg(&lanes::of_lock(trace, &query)?, options)?)
}
