//! `klock html`: writes the page of a trace.

use std::path::Path;

use analyze::page;

use super::filters::ns;
use crate::{args, exit::Exit, files, output, progress::Reading};

pub(super) fn run(args: &args::Html) -> anyhow::Result<Exit> {
    let path = args.file.path(Some("report.html"));
    let is_picture = |path: &Path| path.extension().is_some_and(|ending| ending == "png" || ending == "svg");
    if let Some(path) = path.filter(|path| is_picture(path)) {
        anyhow::bail!(
            "cannot write a page to {0}: a page is HTML; `klock plot -o {0}` makes a picture",
            path.display()
        );
    }
    files::restrict_to(&args.trace.trace);
    let file = path.map(|path| files::create(path, &files::options(args.file.force.force))).transpose()?;
    let trace = trace_format::open(&args.trace.trace)?;
    let windows = args.windows.iter().map(|window| (ns(window.from), ns(window.to))).collect();
    let options = page::Options { windows, intervals: args.intervals, allow_loss: args.loss.allow_loss };
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
