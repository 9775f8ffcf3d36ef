//! `klock plot`: draws one lock, all locks or stacks into an SVG or a PNG.

use std::{
    collections::BTreeSet,
    io::{IsTerminal as _, stdout},
    path::Path,
    time::Duration,
};

use analyze::{
    Filter,
    input::lookup,
    plot,
    plot::{lanes, several},
};
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
    let paths = [Some(&args.trace), args.after.as_ref()].into_iter().flatten();
    let traces = paths.map(|path| trace_format::open(path)).collect::<Result<Vec<Trace>, _>>()?;
    let options = plot::Options { width: args.width, theme: args.theme, ..plot::Options::default() };
    let reading = Reading::start(&traces);
    let svg = svg(&traces, args, &options)?;
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
fn svg(traces: &[Trace], args: &args::Plot, options: &plot::Options) -> anyhow::Result<String> {
    let filter = |lock: Option<&String>| {
        // Every word parses; whether such a lock exists depends on the trace.
        let Ok(lock) = lock.map(|lock| lock.parse()).transpose();
        Filter { lock, from_ns: args.from.map(ns), to_ns: args.to.map(ns), ..Filter::default() }
    };
    let window = window(args.from, args.to);
    Ok(match (traces, &args.lock[..]) {
        ([before, after], [] | [_]) => {
            let changes = plot::changes::changes(before, after, &filter(args.lock.first()))?;
            plot::changes_svg(&changes, options)?
        }
        ([_, _], _) => bail!("cannot compare two traces by several locks; give one --lock, or none"),
        ([trace, ..], [] | [_]) if args.flame.is_some() || args.blame => {
            let filter = filter(args.lock.first());
            match args.flame {
                Some(weight) => plot::flame::flame(trace, weight, &filter, options)?,
                None => plot::blame_svg(&plot::blame::blame(trace, &filter)?, options)?,
            }
        }
        ([trace, ..], [lock]) => draw(trace, lock, window, options)?,
        ([trace, ..], []) => match args.locks {
            Some(count) => {
                let locks = several::most_waited(trace, &filter(None), count.into())?;
                plot::several_svg(&several::several(trace, &locks, window, options.columns())?, options)?
            }
            None => plot::overview_svg(&plot::overview::overview(trace, &filter(None))?, options)?,
        },
        ([_, ..], _) if args.flame.is_some() || args.blame => {
            bail!("cannot draw several locks as --flame or --blame; give one --lock, or none")
        }
        ([_, ..], locks) if locks.len() > several::MAX_LOCKS => {
            bail!(
                "cannot draw {} locks on one axis; give --lock at most {} times",
                locks.len(),
                several::MAX_LOCKS
            )
        }
        ([trace, ..], locks) => {
            let ids = locks.iter().map(|lock| Ok(lookup::one_lock(trace, &lock.parse()?)?));
            let mut ids = ids.collect::<anyhow::Result<Vec<_>>>()?;
            // One lock may have been given by two names.
            let mut seen = BTreeSet::new();
            ids.retain(|id| seen.insert(*id));
            plot::several_svg(&several::several(trace, &ids, window, options.columns())?, options)?
        }
        ([], _) => bail!("cannot draw: no trace was given; name one"),
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
