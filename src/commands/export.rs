//! `klock export`: the trace in the format that was asked for, to stdout or a file; what it lacks, to stderr.

use analyze::export::{self, Options};
use anyhow::bail;
use trace_format::Trace;

use super::filters::filter;
use crate::{args, exit::Exit, files, output};

pub(super) fn run(args: &args::Export) -> anyhow::Result<Exit> {
    check_options(args)?;
    let trace = Trace::open(&args.trace)?;
    let options = Options {
        format: args.format,
        filter: filter(&args.filters),
        allow_loss: args.allow_loss,
        folded: args.folded(),
    };
    let mut written = export::Written::default();
    let mut write = |out: &mut (dyn std::io::Write + Send)| {
        written = export::write(&trace, &options, out)?;
        Ok(())
    };
    match &args.output {
        Some(path) => files::stream_file(path, args.force, &mut write)?,
        None => output::to_stdout(&mut write)?,
    }
    for note in written.trust.warning().iter().chain(&written.notes) {
        eprintln!("klock: {note}");
    }
    Ok(if written.items == 0 { Exit::Nothing } else { Exit::Done })
}

/// An option that the format does not know would change nothing, and nobody would notice.
fn check_options(args: &args::Export) -> anyhow::Result<()> {
    for (option, given, formats) in args.own_options() {
        if given && !formats.contains(&args.format) {
            let formats: Vec<&str> = formats.iter().map(|format| format.as_str()).collect();
            bail!("{option} means nothing with --format {}; it is for {}", args.format, formats.join(", "));
        }
    }
    Ok(())
}
