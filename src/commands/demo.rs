//! `klock demo`: records a built-in demo workload, prints its report and draws a picture of one lock.
//!
//! The workload is a program that klock embeds. It is recorded like any command: it records its own locks. Kernel locks and futexes
//! are recorded too if that is permitted.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use analyze::{
    TextStyle,
    output::{Page, layout::Notes},
    tables::{Table as _, report, why},
};
use anyhow::Context as _;
use record::{Options, Target};
use trace_format::{Trace, output::OutputOptions, text::printable};

use super::{plot, record as record_command};
use crate::{args, exit::Exit, files, output, recording};

/// The built `fixtures/programs/demo.c`.
const WORKLOAD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/demo"));

/// The lock that is drawn.
const PICTURED: &str = "convoy_log";

pub(super) fn run(args: &args::Demo) -> anyhow::Result<Exit> {
    let trace_path = args.output.join("demo.parquet");
    let picture_path = args.output.join("demo.svg");
    record(args, &trace_path)?;

    let trace = Trace::open(&trace_path)?;
    let options = report::Options { limit: Some(12), allow_loss: true, ..report::Options::default() };
    let report = report::report(std::slice::from_ref(&trace), &options)?;
    let page = Page { style: output::style(false, false), ..Page::default() };
    output::unpaged(|out| Ok(report.write(&page, out)?))?;
    let options = why::WhyOptions { limit: Some(why::LOCKS), allow_loss: true, ..why::WhyOptions::default() };
    let why = why::why(std::slice::from_ref(&trace), &options)?;
    let page = Page { style: TextStyle { notes: Notes::None, ..page.style }, ..page };
    output::unpaged(|out| {
        writeln!(out)?;
        Ok(why.write(&page, out)?)
    })?;

    let svg = plot::draw(&trace, PICTURED, None, &analyze::plot::Options::default())?;
    files::write(&picture_path, &picture_options(args), |out| Ok(out.write_all(svg.as_bytes())?))?;
    let shown = |path: &Path| printable(&path.display().to_string()).into_owned();
    eprintln!(
        "\nThe picture of {PICTURED} is in {}. Next:\n  klock report {} --by site\n  klock plot {} --lock hot_counter -o hot_counter.svg",
        shown(&picture_path),
        shown(&trace_path),
        shown(&trace_path)
    );
    Ok(Exit::Done)
}

/// Returns the rules for the picture of the demo, which replaces that of an earlier one.
fn picture_options(args: &args::Demo) -> OutputOptions {
    OutputOptions { replace: true, ..files::options(args.force.force) }
}

fn record(args: &args::Demo, trace: &Path) -> anyhow::Result<()> {
    let directory =
        tempfile::tempdir().context("cannot create a directory for the demo's program; set TMPDIR")?;
    let program = workload(directory.path()).with_context(|| {
        format!("cannot write the demo's program into {}; set TMPDIR", directory.path().display())
    })?;
    let time = args.duration.as_millis().to_string();
    let command = [program.into_os_string(), time.into()];
    let options = Options {
        output: trace.to_owned(),
        files: OutputOptions { keep_old: true, replace: false, ..files::options(args.force.force) },
        target: Target::Command(command.into()),
        command_line: std::env::args().collect(),
        ..Options::default()
    };
    let summary = record_command::record(&options, false)?;
    record_command::report_kept(&summary);
    eprintln!("{}\n", recording::summary(&summary, trace));
    Ok(())
}

/// Writes the program into a directory.
fn workload(directory: &Path) -> std::io::Result<PathBuf> {
    let program = directory.join("demo");
    fs::write(&program, WORKLOAD)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700))?;
    Ok(program)
}
