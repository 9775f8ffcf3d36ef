//! `cargo xtask sites`: records real programs with perf and klock at the same time, and compares the call sites of their waits. perf copies
//! more of each stack and unwinds it with code that shares nothing with klock's.
//!
//! A wait counts if both recorded it: the same thread, at the same time. klock must name perf's site, or mark its own as a guess.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;

use crate::{
    harness::{Common, Harness, ROOT},
    setup, table,
    yard::Yard,
};

mod beside;
mod compare;
mod perf_script;
mod trace;
mod wait;

use beside::{Beside, PerfStacks, Waits};
pub use compare::Comparison;
use compare::compare;

/// Bound on the start of a load's program.
const START: Duration = Duration::from_secs(60);

/// Compare call sites with perf.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run only the loads whose name contains one of these words.
    words: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// The loads, each with its Debian package, whether it runs as root, and the way in which perf unwinds it.
const LOADS: &[(&str, &str, bool, PerfStacks)] = &[
    ("memcached", "memcached", false, PerfStacks::Dwarf),
    ("rust", "rustc", true, PerfStacks::Dwarf),
    // Go writes no `.eh_frame`, and keeps frame pointers.
    ("go", "golang-go", true, PerfStacks::FramePointers),
    ("redis-threads", "redis-server", false, PerfStacks::Dwarf),
    ("postgresql", "postgresql", false, PerfStacks::Dwarf),
    ("mariadb", "mariadb-server", false, PerfStacks::Dwarf),
];

/// The part of paired waits whose site must be right.
const GOAL_PERCENT: f64 = 99.0;

/// Records, compares and prints. Returns whether the goal is reached.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let harness = Harness::new("sites", &options.common, &[ROOT, "perf"])?;
    let yard = Yard::new(&harness.klock, None)?;
    let wanted = |name: &str| {
        options.words.is_empty() || options.words.iter().any(|word| name.contains(word.as_str()))
    };
    let mut rows = Vec::new();
    let mut reached = true;
    for &(name, package, as_root, stacks) in LOADS.iter().filter(|(name, ..)| wanted(name)) {
        for (waits, recording) in [(Waits::Futex, "futex"), (Waits::OffCpu, "off-CPU")] {
            let record = || record(&harness, &yard, (name, as_root), (waits, stacks));
            let mut recorded = record()?;
            if let Err(missing) = &recorded {
                if let Some(reason) = setup::install(&[package])? {
                    println!("{name}: left out; {missing} is not there, and {reason}");
                    break;
                }
                recorded = record()?;
            }
            let compared = recorded.map_err(|missing| {
                anyhow!("cannot run {name}: {missing} is missing after its installation")
            })?;
            for description in &compared.described {
                println!("{name}, {recording}: {description}");
            }
            let right = percent(compared.equal, compared.paired);
            reached &= right >= GOAL_PERCENT && compared.wrong == 0;
            rows.push(row(name, recording, &compared));
        }
    }
    let head =
        ["load", "recording", "waits", "paired", "equal", "marked", "wrong", "perf ends early", "right"];
    let verdict = if reached { "The goal is reached." } else { "**The goal is not reached.**" };
    let text = format!("{}\n{verdict}\n", table::markdown(&head, &rows));
    harness.publish("sites", "call-sites.md", "sites", &text)?;
    Ok(reached)
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

fn row(name: &str, recording: &str, compared: &Comparison) -> Vec<String> {
    let numbers =
        [compared.waits, compared.paired, compared.equal, compared.marked, compared.wrong, compared.cut];
    let right = format!("{:.2} %", percent(compared.equal, compared.paired));
    let head = [name.to_owned(), recording.to_owned()];
    head.into_iter().chain(numbers.map(|number| number.to_string())).chain([right]).collect()
}

/// Records a running process with both recorders while `work` runs, and compares the call sites of its off-CPU times or else of its
/// waits for futexes.
///
/// # Errors
/// If a recorder fails.
pub fn compare_process(
    klock: &Path,
    pid: &str,
    off_cpu: bool,
    directory: &Path,
    work: impl FnOnce(),
) -> Result<Comparison> {
    let waits = if off_cpu { Waits::OffCpu } else { Waits::Futex };
    let beside = Beside::start(klock, pid, (waits, PerfStacks::Dwarf), directory)?;
    work();
    let (perf, klock) = beside.finish()?;
    Ok(compare(&perf, &klock))
}

/// Runs a load with both recorders on its program. Returns the missing program if there is one.
fn record(
    harness: &Harness,
    yard: &Yard,
    (name, as_root): (&str, bool),
    recording: (Waits, PerfStacks),
) -> Result<Result<Comparison, String>> {
    let work = yard.empty_work()?;
    let ready = yard.folder.join("loads/ready").display().to_string();
    println!("$ loads/{name}.sh, {:?}", recording.0);
    thread::scope(|scope| {
        let load = scope.spawn(|| yard.script(name, as_root, ("READY", &ready)));
        let begin = Instant::now();
        let pid = loop {
            let text = fs::read_to_string(work.join("pid")).unwrap_or_default();
            if let Some(pid) = text.strip_suffix('\n') {
                break Some(pid.to_owned());
            }
            if load.is_finished() || begin.elapsed() > START {
                break None;
            }
            thread::sleep(Duration::from_millis(20));
        };
        let beside =
            pid.map(|pid| Beside::start(&harness.klock, &pid, recording, &harness.directory)).transpose();
        // The program also continues, and its load ends, if a recorder fails.
        fs::write(work.join("go"), "").context("cannot write the file go")?;
        let printed = load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let beside = beside?;
        match (printed?, beside) {
            (Err(missing), _) => Ok(Err(missing)),
            (Ok(_), Some(beside)) => {
                let (perf, klock) = beside.finish()?;
                Ok(Ok(compare(&perf, &klock)))
            }
            (Ok(printed), None) => bail!("{name}.sh did not call $READY: {printed}"),
        }
    })
}
