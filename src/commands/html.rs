//! `klock html`: writes the page of a trace.

use std::path::Path;

use analyze::page;

use super::filters::ns;
use crate::{args, exit::Exit, files, output, progress::Reading};

pub(super) fn run(args: &args::Html) -> anyhow::Result<Exit> {
    let to_stdout = args.output == Path::new("-");
    let file = if to_stdout { None } else { Some(files::create(&args.output, &files::options(args.force))?) };
    let trace = trace_format::open(&args.trace)?;
    let windows = args.windows.iter().map(|window| (ns(window.from), ns(window.to))).collect();
    let options = page::Options { windows, intervals: args.intervals, allow_loss: args.allow_loss };
    let reading = Reading::start(std::slice::from_ref(&trace));
    let page = page::page(&trace, &options)?;
    drop(reading);
    for warning in page.warnings() {
        output::message(warning);
    }
    match file {
        Some(file) => files::fill(file, |out| Ok(page.write(out)?))?,
        None => output::to_stdout(|out| Ok(page.write(out)?))?,
    }
    Ok(Exit::Done)
}
