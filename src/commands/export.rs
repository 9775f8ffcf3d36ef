//! `klock export`: writes traces in another format to stdout or a file, and notes to stderr.

use std::fmt::Display;

use super::{filters::filter, out, traces};
use crate::{args, exit::Exit, files, output, progress::Reading};
use analyze::export::{self, Format, Options};

mod offwaketime;
mod older;
mod viewers;

pub(super) fn run(args: &args::Export) -> anyhow::Result<Exit> {
    let traces = traces::open(&args.traces)?;
    let options = Options {
        format: args.format,
        filter: filter(&args.filters)?,
        allow_loss: args.allow_loss,
        folded: viewers::folded(&args.folded),
        firefox: viewers::firefox(&args.firefox),
        lock_prof: older::lock_prof(&args.lock_prof),
        locktrace: older::locktrace(&args.locktrace),
        mklockstat: older::mklockstat(&args.mklockstat)?,
        perf_lock: older::perf_lock(&args.perf_lock),
        offwaketime: offwaketime::options(&args.offwaketime),
        metrics: args
            .metrics
            .series
            .map_or_else(Default::default, |series| export::metrics::Options { series }),
    };
    let file_options = files::options(args.force);
    let histograms =
        args.locktrace.hist.as_deref().map(|path| files::create(path, &file_options)).transpose()?;
    let mut reading = args.output.is_some().then(|| Reading::start(&traces));
    let mut written = export::Written::default();
    let binary = args.format.is_binary().then_some(&args.format as &dyn Display);
    out::stream(args.output.as_deref(), args.force, binary, |out| {
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
            Format::Folded => format!("stack has a value for --of {}", options.folded.of),
            format => format!("event has a row in {format}"),
        };
        output::message(format_args!("nothing was written: no {what}; klock info lists what was recorded"));
    }
    Ok(Exit::Nothing)
}
