//! `cargo xtask gains`: compares predictions of `klock analyze whatif` with measurements.
//!
//! `fixtures/programs/known_gain.c` is recorded in each setting, again if the recording is refused. Four changes of its lock are predicted, and the changed program is run
//! without a recording. Runs of the settings and changes take turns, so that a slow moment of the machine hits all of them, and they run before other
//! programs of the machine.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::{
    fixture,
    harness::{Common, FIRST, Harness, ROOT, median, verdict},
    process::{Run, say},
    table,
};

/// Compare predicted with measured gains.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Measure all 24 settings, 10 runs of each; without it, 4 settings and 3 runs.
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    common: Common,
}

/// The length of an unchanged run, in µs, if the machine has nothing else to do.
const RUN_US: f64 = 150_000.0;

/// Maximum number of recordings of a setting. One that klock refuses is made again, as a user would: the refusal depends on how well the
/// replay fits the recording, and not on what the changed program does.
const MAX_RECORDINGS: u32 = 4;

/// The threads, and the lengths of a hold and of the work before it in µs.
#[derive(Clone, Copy, Debug)]
struct Setting {
    threads: u32,
    hold_us: f64,
    work_us: f64,
}

/// A change: the option of whatif, and the arguments of the changed program: the factor of the hold, shards and readers.
const CHANGES: [(&str, &str, f64, u32, u32); 4] = [
    ("--hold", "hot=0.5", 0.5, 1, 0),
    ("--hold", "hot=0.25", 0.25, 1, 0),
    ("--shard", "hot=4", 1.0, 4, 0),
    ("--readers", "hot=90%", 1.0, 1, 90),
];

/// A prediction. Changes of the length of the run, in percent.
#[derive(Clone, Copy, Debug)]
struct Predicted {
    change: f64,
    low: f64,
    high: f64,
    is_refused: bool,
}

/// A prediction and what came out.
#[derive(Clone, Debug)]
struct Pair {
    setting: Setting,
    change: String,
    predicted: Predicted,
    measured: f64,
}

impl Pair {
    fn is_inside(&self) -> bool {
        let Predicted { low, high, is_refused, .. } = self.predicted;
        !is_refused && (low..=high).contains(&self.measured)
    }

    fn error(&self) -> f64 {
        (self.predicted.change - self.measured).abs()
    }

    /// Whether a gain of more than 10 % was predicted and the program became slower.
    fn is_loss(&self) -> bool {
        !self.predicted.is_refused && self.predicted.change < -10.0 && self.measured > 0.0
    }
}

impl Setting {
    fn all(full: bool) -> Vec<Self> {
        let mut all = Vec::new();
        for threads in [2, 4] {
            for hold_us in [8.0, 40.0, 200.0] {
                for ratio in [0.25, 1.0, 4.0, 16.0] {
                    all.push(Self { threads, hold_us, work_us: hold_us * ratio });
                }
            }
        }
        if !full {
            all = [5, 6, 17, 18].map(|at| all[at]).to_vec();
        }
        all
    }

    fn rounds(self) -> u32 {
        let threads = f64::from(self.threads);
        let processors = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
        let both = self.hold_us + self.work_us;
        let round_us = (threads * self.hold_us).max(both).max(threads * both / processors);
        ((RUN_US / round_us) as u32).max(10)
    }

    /// Returns the arguments of the program.
    fn arguments(self, factor: f64, shards: u32, readers: u32) -> Vec<String> {
        let Self { threads, hold_us, work_us } = self;
        let (hold_us, rounds) = (hold_us * factor, self.rounds());
        [threads.to_string(), hold_us.to_string(), work_us.to_string()]
            .into_iter()
            .chain([shards, readers, rounds].map(|number| number.to_string()))
            .collect()
    }
}

/// The program, and the iterations of its loop in a microsecond.
struct Program {
    path: PathBuf,
    loops_per_us: String,
}

impl Program {
    fn run(&self, arguments: &[String]) -> Result<f64> {
        let run = Run::new(FIRST[0], &FIRST[1..]).arg(&self.path).args(arguments);
        let run = run.env("LOOPS_PER_US", &self.loops_per_us);
        let printed = run.read()?;
        let wall = printed.lines().find_map(|line| line.strip_prefix("wall "));
        wall.and_then(|ns| ns.parse().ok()).with_context(|| format!("no wall time in {printed}"))
    }
}

/// Measures and prints. Returns whether every budget is reached.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let harness = Harness::new("gains", &options.common, &[ROOT, "gcc"])?;
    let path = fixture::build("known_gain", &harness.directory, &[])?;
    let loops_per_us = Run::new(&path, &["calibrate"]).read()?.trim().to_owned();
    let program = Program { path, loops_per_us };
    let settings = Setting::all(options.full);
    let runs = if options.full { 10 } else { 3 };
    let mut predicted = Vec::new();
    let mut repeated = 0;
    for setting in &settings {
        let mut found = predict(&harness, &program, *setting)?;
        for _ in 1..MAX_RECORDINGS {
            if found.iter().all(|prediction| !prediction.is_refused) {
                break;
            }
            repeated += 1;
            found = predict(&harness, &program, *setting)?;
        }
        predicted.push(found);
    }
    // By setting: the unchanged program, then each change.
    let mut walls = vec![vec![Vec::new(); CHANGES.len() + 1]; settings.len()];
    for run in 0..runs {
        say(&format!("run {} of {runs}", run + 1));
        for (setting, walls) in settings.iter().zip(&mut walls) {
            walls[0].push(program.run(&setting.arguments(1.0, 1, 0))?);
            for ((_, _, factor, shards, readers), walls) in CHANGES.iter().zip(&mut walls[1..]) {
                walls.push(program.run(&setting.arguments(*factor, *shards, *readers))?);
            }
        }
    }
    let mut pairs = Vec::new();
    for ((setting, predicted), walls) in settings.iter().zip(predicted).zip(&walls) {
        for (((option, value, ..), predicted), changed) in CHANGES.iter().zip(predicted).zip(&walls[1..]) {
            let measured = 100.0 * (median(changed) / median(&walls[0]) - 1.0);
            pairs.push(Pair { setting: *setting, change: format!("{option} {value}"), predicted, measured });
        }
    }
    let (text, is_reached) = tables(&pairs);
    let text = format!(
        "{} settings were recorded {} times: {repeated} recordings were refused for at least one change.\n\n{text}",
        settings.len(),
        settings.len() + repeated
    );
    let command = if options.full { "gains --full" } else { "gains" };
    harness.publish(command, "causes.md", "gains", &text)?;
    Ok(is_reached)
}

/// Records the program in a setting, and predicts the changes.
fn predict(harness: &Harness, program: &Program, setting: Setting) -> Result<Vec<Predicted>> {
    let trace = harness.directory.join("trace.parquet");
    let words =
        ["record", "--quiet", "-f", "--off-cpu", "--locks", "pthread", "--pthread-probes", "preload", "-o"];
    let record = Run::new(FIRST[0], &FIRST[1..]).arg(&harness.klock).args(words);
    let record = record.arg(&trace).arg("--").arg(&program.path);
    record.args(setting.arguments(1.0, 1, 0)).env("LOOPS_PER_US", &program.loops_per_us).read()?;
    let found = whatif(&harness.klock, &trace)?;
    ensure!(found.len() == CHANGES.len(), "{} rows for {} changes", found.len(), CHANGES.len());
    Ok(found)
}

fn whatif(klock: &Path, trace: &Path) -> Result<Vec<Predicted>> {
    let mut run = Run::new(klock, &["analyze", "whatif", "--anyway", "--format", "json"]);
    for (at, (option, value, ..)) in CHANGES.iter().enumerate() {
        if at > 0 {
            run = run.arg("--also");
        }
        run = run.args([option, value]);
    }
    let document: Value = serde_json::from_str(&run.arg(trace).read()?)?;
    let rows = document["rows"].as_array().context("no rows")?;
    let percent = |row: &Value, column: &str| {
        row[column].as_i64().map(|ppm| ppm as f64 / 1e4).with_context(|| format!("no {column} in {row}"))
    };
    let predicted = |row: &Value| {
        Ok(Predicted {
            change: percent(row, "change_ppm")?,
            low: percent(row, "low_ppm")?,
            high: percent(row, "high_ppm")?,
            is_refused: !row["reason"].is_null(),
        })
    };
    rows.iter().map(predicted).collect()
}

/// Returns the tables, and whether every budget is reached.
fn tables(pairs: &[Pair]) -> (String, bool) {
    let row = |pair: &Pair| {
        let Pair { setting: Setting { threads, hold_us, work_us }, change, predicted, measured } = pair;
        let Predicted { change: by, low, high, is_refused } = predicted;
        let inside = match (is_refused, pair.is_inside()) {
            (true, _) => "no prediction",
            (false, true) => "yes",
            (false, false) => "**no**",
        };
        vec![
            threads.to_string(),
            format!("{hold_us} µs"),
            format!("{work_us} µs"),
            format!("`{change}`"),
            format!("{by:+.1} %"),
            format!("{low:+.1} .. {high:+.1} %"),
            format!("{measured:+.1} %"),
            inside.to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = pairs.iter().map(row).collect();
    let count = |is_it: fn(&Pair) -> bool| pairs.iter().filter(|pair| is_it(pair)).count();
    let (inside, losses) = (count(Pair::is_inside), count(Pair::is_loss));
    let error = median(&pairs.iter().map(Pair::error).collect::<Vec<_>>());
    let is_inside = inside * 5 >= pairs.len() * 4;
    let verdicts = [
        verdict(
            "measured change inside the interval",
            format!("{inside} of {}", pairs.len()),
            "80 %".to_owned(),
            is_inside,
        ),
        verdict("median error", format!("{error:.1} points"), "5 points".to_owned(), error <= 5.0),
        verdict(
            "predicted gains of more than 10 % that are losses",
            losses.to_string(),
            "0".to_owned(),
            losses == 0,
        ),
    ];
    let head = ["threads", "hold", "work", "change", "predicted", "interval", "measured", "inside"];
    let budgets = table::markdown(&["what", "measured", "budget", "reached"], &verdicts);
    (format!("{budgets}\n{}", table::markdown(&head, &rows)), is_inside && error <= 5.0 && losses == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(change: f64, measured: f64, is_refused: bool) -> Pair {
        let predicted = Predicted { change, low: change - 2.0, high: change + 2.0, is_refused };
        let setting = Setting { threads: 2, hold_us: 8.0, work_us: 8.0 };
        Pair { setting, change: "--hold hot=0.5".to_owned(), predicted, measured }
    }

    #[test]
    fn four_of_five_must_be_inside_and_a_refusal_is_not() {
        let mut pairs: Vec<Pair> = (0..4).map(|_| pair(-20.0, -21.0, false)).collect();
        pairs.push(pair(-20.0, -30.0, false));
        assert!(tables(&pairs).1);
        pairs.push(pair(-20.0, -20.0, true));
        assert!(!tables(&pairs).1);
    }

    #[test]
    fn a_predicted_gain_must_not_be_a_loss() {
        let mut pairs = vec![pair(-20.0, -20.0, false); 40];
        assert!(tables(&pairs).1);
        pairs.push(pair(-11.0, 1.0, false));
        assert!(!tables(&pairs).1);
    }

    #[test]
    fn there_are_24_settings_of_equal_length() {
        assert_eq!(Setting::all(true).len(), 24);
        assert_eq!(Setting::all(false).len(), 4);
    }
}
