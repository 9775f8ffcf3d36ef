//! `klock export`: the trace in the format that was asked for, to stdout or a file; what it lacks, to stderr.

use std::io::IsTerminal as _;

use analyze::export::{self, Options};
use trace_format::Trace;

use super::filters::filter;
use crate::{args, exit::Exit, files, output};

mod offwaketime;
mod older;
mod viewers;

pub(super) fn run(args: &args::Export) -> anyhow::Result<Exit> {
    if let Some(misplaced) = args.misplaced() {
        anyhow::bail!(misplaced);
    }
    let trace = Trace::open(&args.trace)?;
    let options = Options {
        format: args.format,
        filter: filter(&args.filters),
        allow_loss: args.allow_loss,
        folded: viewers::folded(&args.folded),
        firefox: viewers::firefox(&args.firefox),
        lock_prof: older::lock_prof(&args.lock_prof),
        locktrace: older::locktrace(&args.locktrace),
        mklockstat: older::mklockstat(&args.mklockstat)?,
        perf_lock: older::perf_lock(&args.perf_lock),
        offwaketime: offwaketime::options(&args.offwaketime),
    };
    if let Some(path) = &args.locktrace.hist {
        files::check_new(path, args.force)?;
    }
    let mut written = export::Written::default();
    let mut write = |out: &mut (dyn std::io::Write + Send)| {
        written = export::write(&trace, &options, out)?;
        Ok(())
    };
    match &args.output {
        Some(path) => files::stream_file(path, args.force, &mut write)?,
        None if args.format.is_binary() && std::io::stdout().is_terminal() => {
            anyhow::bail!("{} is nothing for a terminal; give -o FILE", args.format)
        }
        None => output::to_stdout(&mut write)?,
    }
    if let Some(path) = &args.locktrace.hist {
        files::stream_file(path, args.force, |out| {
            Ok(export::locktrace::write_hist(&trace, &options, out)?)
        })?;
    }
    for note in written.trust.warning().iter().chain(&written.notes) {
        eprintln!("klock: {note}");
    }
    Ok(if written.items == 0 { Exit::Nothing } else { Exit::Done })
}
