//! `klock demo`: records a program with four known problems, and says what klock finds.
//!
//! klock embeds the program. It is recorded like any command: it records its own locks, which needs no root.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use analyze::{
    TextStyle,
    output::{
        Page,
        layout::{Notes, Paint},
    },
    page,
    tables::{Table as _, report, why},
};
use anyhow::Context as _;
use record::{LockSources, Options, Target};
use trace_format::{Trace, text::shell_word};

use super::record as record_command;
use crate::{args, exit::Exit, files, output, recording};

/// The built `fixtures/programs/demo.c`.
const WORKLOAD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/demo"));

/// The locks of the program, and how it uses each of them.
const BUILT: [(&str, &str); 4] = [
    ("journal_lock", "3 threads hold it while they wait for a disk (they sleep)"),
    ("stock_lock", "2 threads hold it for microseconds, one for milliseconds"),
    ("jobs_lock", "a broadcast announces each job to 6 threads, one gets it"),
    ("routes_lock", "2 threads read under it by turns, one wants to write"),
];

pub(super) fn run(args: &args::Demo) -> anyhow::Result<Exit> {
    let directory = args.output.strip_prefix(".").unwrap_or(&args.output);
    let (trace_path, page_path) = (directory.join("demo.parquet"), directory.join("demo.html"));
    let rules = files::options(args.force.force);
    // The place of the page is checked before the trace is recorded.
    drop(files::create(&page_path, &rules)?);
    record(args, &trace_path)?;
    files::restrict_to(&trace_path);
    let file = files::create(&page_path, &rules)?;

    let trace = Trace::open(&trace_path)?;
    let traces = std::slice::from_ref(&trace);
    let options = report::Options { allow_loss: true, ..report::Options::default() };
    let report = report::report(traces, &options)?;
    let options = why::WhyOptions { allow_loss: true, ..why::WhyOptions::default() };
    let why = why::why(traces, &options)?;
    let page = page::page(&trace, &page::Options { allow_loss: true, ..page::Options::default() })?;
    files::complete(file, |out| Ok(page.write(out)?))?;

    let style = output::style(false, false);
    output::unpaged(|out| {
        report.write(&Page { style: TextStyle { notes: Notes::None, ..style }, ..Page::default() }, out)?;
        writeln!(out, "\nEach of these locks has a problem that was built in. What klock finds:")?;
        for built in BUILT {
            writeln!(out)?;
            write_lock(built, &why, style, out)?;
        }
        let mut said = why.locks.iter().filter_map(|lock| lock.said().next());
        if said.any(|finding| finding.verdict == why::Verdict::HolderPreempted) {
            let busy = "Other programs took the processors meanwhile. On an idle machine, klock finds what was built in.";
            writeln!(out)?;
            style.wrapped(busy, out)?;
        }
        Ok(())
    })?;
    let word = |path: &Path| shell_word(&path.to_string_lossy());
    let trace = word(&trace_path);
    eprintln!("\nOpen {} in a browser, or go on with", word(&page_path));
    eprintln!("  klock why {trace:<20} all that klock knows about the worst locks");
    eprintln!("  klock blame {trace:<18} which code made others wait");
    eprintln!("  klock critical {trace:<15} which locks the length of the run depends on");
    Ok(Exit::Done)
}

/// Writes what was built, what klock found, and what it advises.
fn write_lock(
    (name, built): (&str, &str),
    why: &why::Why,
    style: TextStyle,
    out: &mut dyn Write,
) -> io::Result<()> {
    let judged = why.locks.iter().find(|lock| lock.name.split(' ').any(|word| word == name));
    style.wrapped_in(Paint::Bold, &format!("{name}: {built}"), out)?;
    let mut line = |label: &str, text: &str| style.labelled(&format!("  {label:<6}  "), text, out);
    let Some((lock, finding)) = judged.and_then(|lock| Some((lock, lock.said().next()?))) else {
        return line("found", "no cause of waiting in this run");
    };
    line("found", &finding.summary(lock.parts.waited_ns))?;
    line("", &finding.evidence)?;
    line("advice", &finding.advice)?;
    match &finding.prediction {
        Some(prediction) => line("gain", &prediction.to_string()),
        None => Ok(()),
    }
}

fn record(args: &args::Demo, trace: &Path) -> anyhow::Result<()> {
    let directory =
        tempfile::tempdir().context("cannot create a directory for the demo's program; set TMPDIR")?;
    let program = workload(directory.path()).with_context(|| {
        format!("cannot write the demo's program into {}; set TMPDIR", directory.path().display())
    })?;
    let options = Options {
        output: trace.to_owned(),
        files: files::options(args.force.force),
        target: Target::Command(vec![program.into_os_string()]),
        locks: Some(LockSources { kernel: false, futex: false, pthread: true, rust: false, go: false }),
        command_line: std::env::args().collect(),
        ..Options::default()
    };
    let summary = record_command::record(&options, false)?;
    record_command::report_kept(&summary);
    eprintln!("{}\n", recording::summary(&summary, trace));
    Ok(())
}

/// Writes the program into a directory.
fn workload(directory: &Path) -> io::Result<PathBuf> {
    let program = directory.join("demo");
    fs::write(&program, WORKLOAD)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700))?;
    Ok(program)
}
