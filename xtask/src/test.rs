//! `cargo xtask test`: installs what the tests need and runs them all, part by part, each bounded in time. A part that can't
//! run here is listed as skipped with its reason; under CI=true that is a failure. Ends with a table and one line.

use std::{fs, time::Instant};

use anyhow::{Context, Result};
use clap::Args;

use crate::{
    docs, host,
    process::{Outcome, Run, has, scratch},
    setup, table,
};

/// What to run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run only the parts whose name contains one of these words.
    words: Vec<String>,
}

/// How many tests of a part ended in which way; a part that is no test run counts as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
    /// Why something failed or was skipped.
    reasons: Vec<String>,
}

impl Tally {
    fn passed() -> Self {
        Self { passed: 1, ..Self::default() }
    }

    fn failed(reason: impl Into<String>) -> Self {
        Self { failed: 1, reasons: vec![reason.into()], ..Self::default() }
    }

    fn skipped(reason: impl Into<String>) -> Self {
        Self { skipped: 1, reasons: vec![reason.into()], ..Self::default() }
    }
}

type Part = (&'static str, fn() -> Result<Tally>);

/// In this order: what fails fast comes first, what needs the built program comes after it.
const PARTS: &[Part] = &[
    ("rustfmt and clippy", || Ok(setup::components()?.map_or_else(Tally::passed, Tally::skipped))),
    ("debian packages", || Ok(setup::packages()?.map_or_else(Tally::passed, Tally::skipped))),
    ("python engines", || Ok(setup::engines()?.map_or_else(Tally::passed, Tally::skipped))),
    ("viewers", || Ok(setup::viewers()?.map_or_else(Tally::passed, Tally::skipped))),
    ("format", || cargo(&["fmt", "--check"], 2)),
    ("docs are current", || {
        Ok(docs::run(true).map_or_else(|e| Tally::failed(format!("{e:#}")), |()| Tally::passed()))
    }),
    ("tests", || tests(&["test", "--release", "--no-fail-fast"], 25)),
    ("lints", || cargo(&["clippy", "--release", "--all-targets", "--", "-D", "warnings"], 12)),
    ("in-process recorder", || tests(&["test", "--release", "-p", "record-preload", "--no-fail-fast"], 10)),
    ("in-process lints", || {
        cargo(&["clippy", "--release", "-p", "record-preload", "--all-targets", "--", "-D", "warnings"], 5)
    }),
    ("recorder alone", || cargo(&alone("record"), 8)),
    ("analyzer alone", || cargo(&alone("analyze"), 8)),
    ("bpf object is current", bpf),
    ("interop", || part_of_tests("interop", &[])),
    ("notebook", || part_of_tests("notebook", &[])),
    ("exports in viewers", || part_of_tests("viewers", &["go", "node"])),
    ("live exports", || part_of_tests("live_exports", &["gcc", "perf", "stress-ng"])),
    ("live pthread", || part_of_tests("live_pthread", &["gcc"])),
    ("live preload", || part_of_tests("live_preload", &["gcc"])),
    ("live programs", || part_of_tests("live_programs", &[])),
    ("live lttng", || part_of_tests("live_lttng", &["gcc"])),
    ("live kills", || part_of_tests("live_kills", &["gcc"])),
    ("live conformance", || part_of_tests("live_conformance", &["gcc"])),
    ("live kernel", || part_of_tests("live_kernel", &["stress-ng"])),
    ("live targets", || part_of_tests("live_targets", &["gcc"])),
    ("live filters", || part_of_tests("live_filters", &["gcc"])),
    ("live names", || part_of_tests("live_names", &[])),
    ("live loss", || part_of_tests("live_loss", &["gcc"])),
    ("live privileges", || part_of_tests("live_privileges", &["setpriv", "unshare"])),
    ("live guard", || part_of_tests("live_guard", &["gcc"])),
    ("live descriptors", || part_of_tests("live_descriptors", &["gcc"])),
    ("live single probes", || part_of_tests("live_single_probes", &["gcc"])),
    ("live maps", || part_of_tests("live_maps", &["gcc"])),
    ("demo", demo),
    ("vm", vm),
];

/// Runs every part. Whether nothing failed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let wanted =
        |name: &str| options.words.is_empty() || options.words.iter().any(|w| name.contains(w.as_str()));
    let mut rows = Vec::new();
    let mut sum = Tally::default();
    for (name, part) in PARTS.iter().filter(|(name, _)| wanted(name)) {
        println!("\n== {name}");
        let begin = Instant::now();
        let tally = part().unwrap_or_else(|error| Tally::failed(format!("{error:#}")));
        let tally = if host::is_ci() { strict(tally) } else { tally };
        sum.passed += tally.passed;
        sum.failed += tally.failed;
        sum.skipped += tally.skipped;
        for reason in &tally.reasons {
            println!("   {reason}");
        }
        rows.push(row(name, &tally, begin.elapsed().as_secs_f64()));
    }
    println!("\n{}", table::markdown(&["part", "passed", "failed", "skipped", "seconds", "why"], &rows));
    println!("{} passed, {} failed, {} skipped", sum.passed, sum.failed, sum.skipped);
    Ok(sum.failed == 0)
}

fn row(name: &str, tally: &Tally, seconds: f64) -> Vec<String> {
    let number = |n: u64| if n == 0 { String::new() } else { n.to_string() };
    vec![
        name.to_owned(),
        number(tally.passed),
        number(tally.failed),
        number(tally.skipped),
        format!("{seconds:.1}"),
        tally.reasons.join("; "),
    ]
}

/// Where everything must run, a skip is a failure.
fn strict(tally: Tally) -> Tally {
    if tally.skipped == 0 {
        return tally;
    }
    let reasons = tally.reasons.iter().map(|reason| format!("skipped under CI=true: {reason}")).collect();
    Tally { failed: tally.failed + tally.skipped, skipped: 0, reasons, ..tally }
}

/// A cargo command that is one check.
fn cargo(arguments: &[&str], minutes: u32) -> Result<Tally> {
    let outcome = Run::cargo(arguments).minutes(minutes).stream()?;
    Ok(one(&outcome, arguments.first().copied().unwrap_or_default(), minutes))
}

fn one(outcome: &Outcome, what: &str, minutes: u32) -> Tally {
    match outcome {
        Outcome { timed_out: true, .. } => Tally::failed(format!("did not end within {minutes} minutes")),
        Outcome { ok: true, .. } => Tally::passed(),
        Outcome { .. } => Tally::failed(format!("{what} failed, see above")),
    }
}

const fn alone(feature: &'static str) -> [&'static str; 7] {
    ["check", "--release", "-p", "klock", "--no-default-features", "--features", feature]
}

/// A run of Rust's test harness, or of several.
fn tests(arguments: &[&str], minutes: u32) -> Result<Tally> {
    let outcome = Run::cargo(arguments).minutes(minutes).stream()?;
    let mut tally = count(&outcome.lines);
    if outcome.timed_out {
        tally.failed += 1;
        tally.reasons.push(format!("did not end within {minutes} minutes"));
    } else if !outcome.ok && tally.failed == 0 {
        tally.failed = 1;
        tally.reasons.push("the tests did not build or did not end".to_owned());
    }
    Ok(tally)
}

/// Adds up the lines `test result: ok. 3 passed; 0 failed; ...`. A test that can't run here says `skipped: why` and counts
/// as passed for the harness, but not here. Ignored tests belong to another part.
fn count(lines: &[String]) -> Tally {
    let mut tally = Tally::default();
    for line in lines {
        if let Some(result) = line.strip_prefix("test result: ") {
            let number = |word: &str| {
                let words: Vec<&str> = result.split([' ', ';', '.']).filter(|w| !w.is_empty()).collect();
                let at = words.iter().position(|w| *w == word);
                at.and_then(|at| words.get(at.checked_sub(1)?)?.parse::<u64>().ok()).unwrap_or(0)
            };
            tally.passed += number("passed");
            tally.failed += number("failed");
        } else if let Some(reason) = line.strip_prefix("skipped: ") {
            tally.skipped += 1;
            if !tally.reasons.iter().any(|known| known == reason) {
                tally.reasons.push(reason.to_owned());
            }
        } else if let Some(name) = line.strip_prefix("    ").filter(|l| l.contains("::") || l.contains('_')) {
            // The list of failures that the harness ends with.
            let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == ':');
            if is_name && !tally.reasons.iter().any(|known| known == name) {
                tally.reasons.push(name.to_owned());
            }
        }
    }
    tally.passed = tally.passed.saturating_sub(tally.skipped);
    tally
}

/// The tests of one file that are ignored by default because they need what only this chore brings. One at a time:
/// recordings of the whole machine would see each other's load.
///
/// All packages are chosen, as in the part before: chosen alone, one of them would have its dependencies built anew with fewer
/// features.
fn part_of_tests(file: &str, programs: &[&str]) -> Result<Tally> {
    if file.starts_with("live") && !host::is_root() {
        return Ok(Tally::skipped("needs root"));
    }
    if let Some(missing) = programs.iter().find(|program| !has(program)) {
        return Ok(Tally::skipped(format!("needs {missing}")));
    }
    if ["interop", "notebook"].contains(&file)
        && Run::new(setup::python(), &["-c", "import duckdb, pandas, polars, pyarrow"]).read().is_err()
    {
        return Ok(Tally::skipped("needs the python engines"));
    }
    tests(&["test", "--release", "--test", file, "--", "--ignored", "--nocapture", "--test-threads=1"], 10)
}

/// Rebuilds the BPF object in a process of its own, because its output is worth streaming. What it can't do here it says
/// in a line that begins with `skipped: `.
fn bpf() -> Result<Tally> {
    let this = std::env::current_exe().context("where this program is")?;
    let outcome = Run::new(this, &["bpf", "--check"]).minutes(15).stream()?;
    let skipped =
        outcome.lines.iter().find_map(|line| line.split_once("skipped: ").map(|(_, reason)| reason));
    Ok(skipped.map_or_else(|| one(&outcome, "bpf --check", 15), Tally::skipped))
}

/// Every kernel of the matrix, in short, in a process of its own: its output is worth streaming.
fn vm() -> Result<Tally> {
    if !host::is_root() {
        return Ok(Tally::skipped("needs root"));
    }
    let this = std::env::current_exe().context("where this program is")?;
    let outcome = Run::new(this, &["vm", "--short"]).minutes(40).stream()?;
    let of = |mark: &str| outcome.lines.iter().filter_map(|line| line.strip_prefix(mark)).collect::<Vec<_>>();
    if let [reason, ..] = of("skipped: ")[..] {
        return Ok(Tally::skipped(reason));
    }
    let faults = of("fault: ");
    if faults.is_empty() {
        return Ok(one(&outcome, "vm --short", 40));
    }
    Ok(Tally {
        failed: faults.len() as u64,
        reasons: faults.into_iter().map(str::to_owned).collect(),
        ..Tally::default()
    })
}

/// The README's first command, in an empty directory; its picture must be XML, and drawable where librsvg is.
fn demo() -> Result<Tally> {
    let directory = scratch("demo")?;
    let outcome =
        Run::cargo(&["run", "--release", "--", "demo"]).arg("-o").arg(&directory).minutes(5).stream()?;
    if !outcome.ok {
        return Ok(one(&outcome, "demo", 5));
    }
    let names = fs::read_dir(&directory)?.filter_map(|entry| entry.ok().map(|e| e.path()));
    let pictures: Vec<_> = names.filter(|path| path.extension().is_some_and(|e| e == "svg")).collect();
    if pictures.is_empty() {
        return Ok(Tally::failed(format!("the demo left no picture in {}", directory.display())));
    }
    for picture in &pictures {
        if has("xmllint") {
            Run::new("xmllint", &["--noout"]).arg(picture).must()?;
        }
        if has("rsvg-convert") {
            Run::new("rsvg-convert", &["-o"]).arg(picture.with_extension("png")).arg(picture).must()?;
        }
    }
    Ok(Tally::passed())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn results_of_several_test_programs_are_added_up() {
        let text = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured\n\
                    test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured";
        let tally = count(&lines(text));
        assert_eq!((tally.passed, tally.failed, tally.skipped), (4, 2, 0));
    }

    #[test]
    fn a_test_that_says_it_was_skipped_is_not_counted_as_passed() {
        let tally = count(&lines("skipped: no stress-ng\ntest result: ok. 2 passed; 0 failed; 0 ignored"));
        assert_eq!((tally.passed, tally.skipped), (1, 1));
        assert_eq!(tally.reasons, ["no stress-ng"]);
    }

    #[test]
    fn where_everything_must_run_a_skip_is_a_failure() {
        let tally = strict(Tally::skipped("not root"));
        assert_eq!((tally.failed, tally.skipped), (1, 0));
    }
}
