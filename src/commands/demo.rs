//! `klock demo`: records the workload that klock brings along, prints its report, draws a picture of one lock.
//!
//! The workload is a process of its own and recorded as any command: it records its own locks, and where that is permitted the
//! kernel's locks and futexes are recorded too.

use std::{ffi::OsString, path::Path};

use analyze::report;
use anyhow::Context as _;
use record::{Options, Target};
use trace_format::Trace;

use super::{plot, record as recording, report as reporting};
use crate::{args, exit::Exit, files, output, progress};

/// The lock of the picture.
const PICTURED: &str = "convoy_log";
/// What of the recording the picture shows, in nanoseconds: enough to see the pattern, few enough to see each hold.
const WINDOW_NS: (i64, i64) = (500_000_000, 600_000_000);

pub(super) fn run(args: &args::Demo) -> anyhow::Result<Exit> {
    let trace_path = args.output.join("demo.parquet");
    let picture_path = args.output.join("demo.svg");
    record(args, &trace_path)?;

    let trace = Trace::open(&trace_path)?;
    let options = report::Options { limit: Some(12), allow_loss: true, ..report::Options::default() };
    let report = report::report(&trace, &options)?;
    output::to_stdout(|out| reporting::write_text(out, &report))?;

    let span = trace.info().span_ns();
    let window = (span > WINDOW_NS.1).then_some(WINDOW_NS);
    let svg = plot::draw(&trace, PICTURED, window, 1200)?;
    files::write_file(&picture_path, true, svg.as_bytes())?;
    eprintln!(
        "\nThe picture of {PICTURED} is in {}. Next:\n  klock analyze report {} --by site\n  klock plot {} --lock hot_counter",
        picture_path.display(),
        trace_path.display(),
        trace_path.display()
    );
    Ok(Exit::Done)
}

fn record(args: &args::Demo, trace: &Path) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("failed to find klock's own program")?;
    let time = format!("{}ms", args.duration.as_millis());
    let command = [program.into_os_string(), OsString::from("demo-workload"), OsString::from(time)];
    let options = Options {
        output: trace.to_owned(),
        replace: true,
        target: Target::Command(command.into()),
        command_line: std::env::args().collect(),
        ..Options::default()
    };
    let summary = recording::record(&options, false)?;
    eprintln!("{}\n", progress::summary(&summary, trace));
    Ok(())
}
