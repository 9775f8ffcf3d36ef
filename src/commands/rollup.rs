//! `klock rollup`: writes the tables of each trace below a directory.

use std::{fs, path::Path};

use analyze::rollup::{self, Options};
use trace_format::output::{OutputError, OutputOptions};

use super::{
    filters::{filter, ns},
    traces,
};
use crate::{args, exit::Exit, files, output, progress::Reading};

pub(super) fn run(args: &args::Rollup) -> anyhow::Result<Exit> {
    let options = Options {
        period_ns: ns(args.period),
        long_period_ns: ns(args.long_period),
        keys: Some(args.keys),
        labels: args.labels.clone(),
        filter: filter(&args.filters)?,
    };
    let rules = OutputOptions { replace: true, ..files::options(args.force.force) };
    for trace in traces::open(&args.traces.traces)? {
        let reading = Reading::start(std::slice::from_ref(&trace));
        let rollup = rollup::rollup(&trace, &options)?;
        drop(reading);
        if let Some(warning) = rollup.trust.warning() {
            output::message(format_args!("{}: {warning}", trace.paths().events.display()));
        }
        for file in rollup.files() {
            let path = args.output.join(&file.path);
            make_directory(path.parent().unwrap_or(&args.output))?;
            // The name tells what is in the file, so an older one has the same rows or fewer.
            files::write(&path, &rules, |out| Ok(file.write(out)?))?;
        }
    }
    Ok(Exit::Done)
}

fn make_directory(path: &Path) -> anyhow::Result<()> {
    let failed = |source| OutputError::Io { path: path.to_owned(), source };
    Ok(fs::create_dir_all(path).map_err(failed)?)
}
