//! `cargo xtask test`: runs the parts of the test suite and ends with a table and one line of counts. A part
//! that cannot run here counts as skipped, and as failed under CI=true.
//!
//! The suite has three sizes. A part has the least size that includes it:
//!
//! | size  | holds                                                                                                    |
//! |-------|----------------------------------------------------------------------------------------------------------|
//! | fast  | format, documentation, and the tests of each crate by itself: no root, no download                       |
//! | small | also the tests of the built program, and recordings of programs that log the truth themselves. A test of |
//! |       | these two sizes never fails by chance: its result follows from the code and the kernel, also under load  |
//! | full  | also lints, emulated kernels, other tools, viewers, engines, statistics over recordings, long attacks    |
//!
//! Parts run in three stages. Downloads run beside the builds of the first stage. What needs processors, such
//! as unit tests and emulated kernels, runs beside the recordings of the second one, which mostly wait.
//! Recordings of the whole machine run one after the other, and beside none of another program by root. The
//! third stage has the recordings of the full size that measure: nothing runs beside them. Every test program
//! is built once, and then run directly.

use std::{
    collections::BTreeMap,
    iter,
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::Instant,
};

use anyhow::Result;
use clap::Args;

use self::{
    parts::{Context, Lane, Part, Size, Stage},
    tally::Tally,
};
use crate::{host, process, setup, table};

mod build;
mod files;
mod fuzz;
mod parts;
mod tally;
mod touched;

/// Run the tests.
///
/// Without options, runs the small size: it installs what its tests need and never fails by chance. Most of
/// the recordings need root. A part that cannot run here is skipped, and fails under CI=true.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cargo xtask test --fast              check a change: no root, no download
  cargo xtask test --list              show the parts and the tests of each live file
  cargo xtask test live_names          run the parts whose names contain a word
  cargo xtask test --full vm           the same, of all sizes
  cargo xtask test --touched           run the small size, and what else belongs to what changed
  cargo xtask test --repeat 5          run the small size five times
  CI=true cargo xtask test --full      run everything and fail if anything is skipped")]
pub(crate) struct Options {
    /// Run only the parts whose names contain one of these words.
    words: Vec<String>,
    /// Run only what needs no root and no download.
    #[arg(long, conflicts_with_all = ["full", "touched"])]
    fast: bool,
    /// Run the parts of all sizes.
    #[arg(long)]
    full: bool,
    /// Run also the parts of the full size that belong to the files that differ from the main branch; on the
    /// main branch itself, to the files of the last day's commits.
    #[arg(long, conflicts_with = "full")]
    touched: bool,
    /// Run the selected parts this many times.
    #[arg(long, default_value_t = 1, value_name = "N")]
    repeat: u32,
    /// List the parts and the tests of each live file instead of running them.
    #[arg(long)]
    list: bool,
}

impl Options {
    /// Returns the selected parts.
    fn select(&self, all: Vec<Part>) -> Result<Vec<Part>> {
        let plain = |text: &str| text.replace(['_', '-'], " ").to_lowercase();
        let by_word = |part: &Part| {
            let name = plain(&part.name);
            self.words.is_empty() || self.words.iter().any(|word| name.contains(plain(word).as_str()))
        };
        let touched = if self.touched { touched::parts(&touched::files()?) } else { Vec::new() };
        let by_size = |part: &Part| match part.size {
            _ if self.full => true,
            Size::Full => touched.contains(&part.name.as_str()),
            Size::Small => !self.fast,
            Size::Fast => true,
        };
        Ok(all.into_iter().filter(|part| by_word(part) && by_size(part)).collect())
    }
}

/// Runs the selected parts, and returns whether nothing failed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let selected = options.select(parts::all()?)?;
    anyhow::ensure!(!selected.is_empty(), "no part of this name; `cargo xtask test --full --list` shows all");
    if options.list {
        list(&selected);
        return Ok(true);
    }
    let mut parts = parts::before(&selected);
    parts.extend(selected);
    let mut failed_runs = BTreeMap::new();
    for run in 1..=options.repeat {
        let begin = Instant::now();
        for part in run_once(&parts) {
            *failed_runs.entry(part).or_insert(0) += 1;
        }
        if options.repeat > 1 {
            println!("run {run} of {} took {:.0} s", options.repeat, begin.elapsed().as_secs_f64());
            failed_runs.iter().for_each(|(part, runs)| println!("{part} failed in {runs} of {run} runs"));
        }
    }
    Ok(failed_runs.is_empty())
}

/// Runs the parts, prints their table, and returns the names of those that failed.
fn run_once(parts: &[Part]) -> Vec<String> {
    let context = Context::of(parts);
    let mut results = Vec::new();
    for stage in [Stage::Building, Stage::Testing, Stage::Measuring] {
        if stage != Stage::Building
            && parts.iter().any(|part| part.name == parts::BUILD)
            && context.build().is_err()
        {
            break;
        }
        let lane = |lane| parts.iter().filter(move |part| part.stage == stage && part.lane == lane);
        let (main, shared): (Vec<&Part>, Vec<&Part>) =
            (lane(Lane::Main).collect(), lane(Lane::Shared).collect());
        let (offer, offered) = mpsc::channel();
        let offered = Mutex::new(offered);
        let next = || offered.lock().unwrap_or_else(PoisonError::into_inner).recv().ok();
        thread::scope(|scope| {
            let others = [Lane::Side, Lane::User].map(|other| {
                let parts = lane(other).chain(iter::from_fn(&next));
                scope.spawn(|| parts.map(|part| beside(part, &context)).collect::<Vec<_>>())
            });
            for part in main {
                results.push(in_front(part, &context));
                if part.name == parts::BUILD && context.build().is_err() {
                    break;
                }
            }
            // A lane without work waits for these.
            shared.into_iter().all(|part| offer.send(part).is_ok());
            drop(offer);
            results.extend(iter::from_fn(&next).map(|part| in_front(part, &context)));
            results.extend(others.into_iter().flat_map(|other| other.join().unwrap_or_default()));
        });
    }
    conclude(&results);
    results.into_iter().filter(|done| done.tally.failed > 0).map(|done| done.name).collect()
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
        let tally = match part.needs.iter().find(|need| !setup::is_met(need)) {
            Some(need) => Tally::skipped(format!("needs {need}")),
            None => (part.run)(context).unwrap_or_else(|error| Tally::failed(format!("{error:#}"))),
        };
        let tally = if host::is_ci() { tally.strict() } else { tally };
        Self { name: part.name.clone(), tally, seconds: begin.elapsed().as_secs_f64() }
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

/// Runs a part whose output is seen as it runs.
fn in_front(part: &Part, context: &Context) -> Done {
    println!("\n== {}", part.name);
    let done = Done::of(part, context);
    done.tally.reasons.iter().for_each(|reason| println!("   {reason}"));
    done
}

/// Runs a part of another lane and prints its output when it has ended.
fn beside(part: &Part, context: &Context) -> Done {
    let (done, lines) = process::keeping_output(|| Done::of(part, context));
    println!("\n== {} (ran beside others)\n{}", part.name, lines.join("\n"));
    done.tally.reasons.iter().for_each(|reason| println!("   {reason}"));
    done
}

/// Prints the table and the line of counts that CI reads.
fn conclude(results: &[Done]) {
    let rows: Vec<Vec<String>> = results.iter().map(Done::row).collect();
    println!("\n{}", table::markdown(&["part", "passed", "failed", "skipped", "seconds", "why"], &rows));
    let sum = results.iter().fold(Tally::default(), |sum, done| sum.merge(&done.tally));
    println!("{} passed, {} failed, {} skipped", sum.passed, sum.failed, sum.skipped);
}

/// Prints the names of the parts, what each needs, and the tests of each live file.
fn list(parts: &[Part]) {
    for part in parts {
        let needs = part.needs.join(", ");
        let needs = if needs.is_empty() { needs } else { format!("  (needs {needs})") };
        println!("{}{needs}", part.name);
        part.tests.iter().for_each(|test| println!("    {test}"));
    }
}
