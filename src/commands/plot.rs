//! `klock plot`: draws one lock, all locks or stacks into an SVG or a PNG.

use std::{
    io::{IsTerminal as _, stdout},
    path::Path,
    time::Duration,
};

use analyze::{Filter, input::lookup, plot, plot::lanes};
use anyhow::bail;
use trace_format::Trace;

use super::filters::{check_window, ns};
use crate::{
    args::{self, PictureFormat},
    exit::Exit,
    files, output,
    progress::Reading,
};

pub(super) fn run(args: &args::Plot) -> anyhow::Result<Exit> {
    let path = args.output();
    let to_stdout = path == Path::new("-");
    let format = format(args)?;
    check_window(args.from, args.to)?;
    if to_stdout && format == PictureFormat::Png && stdout().is_terminal() {
        bail!("cannot write PNG to a terminal; use -o FILE");
    }
    let file = if to_stdout { None } else { Some(files::create(path, &files::options(args.force))?) };
    let trace = trace_format::open(&args.trace)?;
    let options = plot::Options { width: args.width, theme: args.theme, ..plot::Options::default() };
    let reading = Reading::start(std::slice::from_ref(&trace));
    let svg = svg(&trace, args, &options)?;
    drop(reading);
    let picture = match format {
        PictureFormat::Svg => svg.into_bytes(),
        PictureFormat::Png => plot::png(&svg)?,
    };
    match file {
        Some(file) => files::fill(file, |out| Ok(out.write_all(&picture)?))?,
        None => output::to_stdout(|out| Ok(out.write_all(&picture)?))?,
    }
    Ok(Exit::Done)
}

/// Returns the format: the one that is given, otherwise that of the file's ending.
fn format(args: &args::Plot) -> anyhow::Result<PictureFormat> {
    let ending = args.output().extension().map(|ending| ending.to_string_lossy().to_lowercase());
    Ok(match (args.format, ending.as_deref()) {
        (Some(format), _) => format,
        (None, Some("png")) => PictureFormat::Png,
        (None, Some("svg") | None) => PictureFormat::Svg,
        (None, Some(other)) => bail!("invalid ending '{other}' of -o: use .svg or .png, or give --format"),
    })
}

/// Draws the picture that the arguments select.
fn svg(trace: &Trace, args: &args::Plot, options: &plot::Options) -> anyhow::Result<String> {
    if let (Some(lock), None) = (&args.lock, args.flame) {
        return draw(trace, lock, window(args.from, args.to), options);
    }
    // Every word parses; whether such a lock exists depends on the trace.
    let Ok(lock) = args.lock.as_deref().map(str::parse).transpose();
    let filter = Filter { lock, from_ns: args.from.map(ns), to_ns: args.to.map(ns), ..Filter::default() };
    Ok(match args.flame {
        Some(weight) => plot::flame::flame(trace, weight, &filter, options)?,
        None => plot::overview_svg(&plot::overview::overview(trace, &filter)?, options)?,
    })
}

/// Draws the lock that `lock` names by address, id or name.
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

/// Returns the window in nanoseconds since the start of the trace; a missing end is the end of the trace.
pub(super) fn window(from: Option<Duration>, to: Option<Duration>) -> Option<(i64, i64)> {
    (from.is_some() || to.is_some()).then(|| (from.map_or(0, ns), to.map_or(i64::MAX, ns)))
}
