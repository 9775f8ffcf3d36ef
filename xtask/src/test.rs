//! `cargo xtask test`: runs the parts of the test suite, each bounded in time, and ends with a table and one line of
//! counts. A part that cannot run here counts as skipped, and as failed under CI=true.
//!
//! Parts run in two stages, and each stage has a side lane:
//!
//! | stage    | main lane                                                        | side lane                      |
//! |----------|------------------------------------------------------------------|--------------------------------|
//! | building | format, build, generated docs, unit tests, BPF object            | downloads of what is missing   |
//! | testing  | lints, own kernel, live test files, demo                         | guests of the VM matrix, niced |
//!
//! - Builds, that of the BPF toolchain among them, and unit tests keep both processors busy, so only downloads run beside
//!   them.
//! - Live tests run one after the other, each file with one thread: recordings of the whole machine see each other's
//!   load. They mostly wait, and the last crate of a lint takes one processor. The guests take what is left, at a lower
//!   priority, and take longest, so they begin with the lints. A live test waits for conditions, never for a length of time,
//!   and passes on a busy machine.
//! - Every test program is built once, and then run directly.

use std::{thread, time::Instant};

use anyhow::Result;
use clap::Args;

use self::{
    parts::{Context, Lane, Part, Stage},
    tally::Tally,
};
use crate::{host, process, table};

mod build;
mod files;
mod parts;
mod tally;

/// Run the tests.
///
/// Without options, installs what the tests need and runs everything; most of it needs root. A part that cannot run
/// here is skipped, and fails under CI=true.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask test --fast              check a change: no root, no VM, no download, under two minutes
  cargo xtask test --list              show the parts and the tests of each live file
  cargo xtask test live_names          run one file of live tests
  cargo xtask test --live pthread kill run the live files whose names contain one of the words
  CI=true cargo xtask test             run everything and fail if anything is skipped")]
pub(crate) struct Options {
    /// Run only the parts whose names contain one of these words.
    words: Vec<String>,
    /// Run only what needs no root, no VM and no download, in a debug build.
    #[arg(long, conflicts_with = "live")]
    fast: bool,
    /// Run only the live test files, which record real programs. Most of them need root.
    #[arg(long)]
    live: bool,
    /// List the parts and the tests of each live file instead of running them.
    #[arg(long)]
    list: bool,
}

impl Options {
    fn selects(&self, part: &Part) -> bool {
        let plain = |text: &str| text.replace(['_', '-'], " ").to_lowercase();
        let by_word = self.words.is_empty()
            || self.words.iter().any(|word| plain(&part.name).contains(plain(word).as_str()));
        by_word && (!self.fast || part.fast) && (!self.live || part.file.is_some())
    }
}

/// Runs the selected parts. Returns whether nothing failed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let all = parts::all()?;
    let needs_build = all.iter().any(|part| part.uses_build && options.selects(part));
    let mut selected: Vec<Part> = Vec::new();
    for part in all {
        if options.selects(&part) || part.name == parts::BUILD && needs_build {
            selected.push(part);
        }
    }
    anyhow::ensure!(!selected.is_empty(), "no part of this name; `cargo xtask test --list` shows all");
    if options.list {
        print!("{}", list(&selected));
        return Ok(true);
    }
    let context = Context::new(options.fast);
    let mut results = Vec::new();
    for stage in [Stage::Building, Stage::Testing] {
        let lane = |lane| selected.iter().filter(move |part| part.stage == stage && part.lane == lane);
        let (main, side): (Vec<&Part>, Vec<&Part>) = (lane(Lane::Main).collect(), lane(Lane::Side).collect());
        thread::scope(|scope| {
            let beside = scope.spawn(|| side.iter().map(|part| beside(part, &context)).collect::<Vec<_>>());
            for part in main {
                println!("\n== {}", part.name);
                let done = Done::of(part, &context);
                done.print_reasons();
                results.push(done);
            }
            results.extend(beside.join().unwrap_or_default());
        });
    }
    Ok(conclude(&results))
}

/// A part that has run.
struct Done {
    name: String,
    tally: Tally,
    seconds: f64,
}

impl Done {
    fn of(part: &Part, context: &Context) -> Self {
        let begin = Instant::now();
        let tally = (part.run)(context).unwrap_or_else(|error| Tally::failed(format!("{error:#}")));
        let tally = if host::is_ci() { tally.strict() } else { tally };
        Self { name: part.name.clone(), tally, seconds: begin.elapsed().as_secs_f64() }
    }

    fn print_reasons(&self) {
        for reason in &self.tally.reasons {
            println!("   {reason}");
        }
    }

    fn row(&self) -> Vec<String> {
        let number = |n: u64| if n == 0 { String::new() } else { n.to_string() };
        vec![
            self.name.clone(),
            number(self.tally.passed),
            number(self.tally.failed),
            number(self.tally.skipped),
            format!("{:.1}", self.seconds),
            self.tally.reasons.join("; "),
        ]
    }
}

/// Runs a part of the side lane and prints its output when it has ended.
fn beside(part: &Part, context: &Context) -> Done {
    let (done, lines) = process::keeping_output(|| Done::of(part, context));
    println!("\n== {} (ran beside others)\n{}", part.name, lines.join("\n"));
    done.print_reasons();
    done
}

/// Prints the table and the line of counts that CI reads.
fn conclude(results: &[Done]) -> bool {
    let rows: Vec<Vec<String>> = results.iter().map(Done::row).collect();
    println!("\n{}", table::markdown(&["part", "passed", "failed", "skipped", "seconds", "why"], &rows));
    let sum = results.iter().fold(Tally::default(), |sum, done| sum.merge(&done.tally));
    println!("{} passed, {} failed, {} skipped", sum.passed, sum.failed, sum.skipped);
    sum.failed == 0
}

/// Returns the names of the parts, what each needs, and the tests of each live file.
fn list(parts: &[Part]) -> String {
    let mut text = String::new();
    for part in parts {
        let needs = part.file.as_ref().map_or_else(String::new, |file| {
            format!(
                "  ({}; needs {})",
                file.path,
                file.needs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            )
        });
        text += &format!("{}{needs}\n", part.name);
        for test in part.file.iter().flat_map(|file| &file.tests) {
            text += &format!("    {test}\n");
        }
    }
    text
}
