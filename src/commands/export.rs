//! `klock export`: writes traces in another format to stdout or a file, and notes to stderr.

use std::fmt::Display;

use analyze::export::{self, Format, Options};

use super::{
    filters::{filter, ns},
    out, traces,
};
use crate::{args, exit::Exit, files, output, progress::Reading};

pub(super) fn run(args: &args::Export) -> anyhow::Result<Exit> {
    let traces = traces::open(&args.traces.traces)?;
    let own = &args.own;
    let options = Options {
        format: args.format,
        filter: filter(&args.filters)?,
        allow_loss: args.loss.allow_loss,
        of: own.of.unwrap_or_default(),
        unit: own.unit.unwrap_or_default(),
        limit: own.limit,
        period_ns: own.period.map(ns),
        with_monitors: own.no_filter_monitors,
        aggregate: own.by.unwrap_or_default(),
        separator: own.field_separator.clone(),
        delimited: own.delimited,
        stacks: own.stacks,
        threads: own.threads,
        max_wait_ns: own.max_wait.map(ns),
        states: args.states.state.clone(),
    };
    let file_options = files::options(args.file.force.force);
    let histograms = own.hist.as_deref().map(|path| files::create(path, &file_options)).transpose()?;
    let mut reading = args.file.path(None).is_some().then(|| Reading::start(&traces));
    let mut written = export::Written::default();
    let binary = args.format.is_binary().then_some(&args.format as &dyn Display);
    out::stream(args.file.path(None), args.file.force.force, binary, |out| {
        written = export::write(&traces, &options, out)?;
        // The line of the progress must be gone when the file is reported.
        drop(reading.take());
        Ok(())
    })?;
    if let Some(file) = histograms {
        files::fill(file, |out| Ok(export::write_locktrace_histograms(&traces, &options, out)?))?;
    }
    for note in written.trust.warning().iter().chain(&written.notes) {
        output::message(note);
    }
    if written.items > 0 {
        return Ok(Exit::Done);
    }
    if written.notes.is_empty() {
        let what = match options.format {
            Format::Folded => format!("stack has a value for --of {}", options.of),
            format => format!("event has a row in {format}"),
        };
        output::message(format_args!("nothing was written: no {what}; `klock info` lists what was recorded"));
    }
    Ok(Exit::Nothing)
}
