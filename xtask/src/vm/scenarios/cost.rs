//! Measures the cost of recording to the recorded task: one thread takes an uncontended mutex repeatedly, alone, under
//! klock and under klockstat. The result is the median over the runs of the first decile of each run's thousands of calls,
//! because an emulated processor is half as fast while its neighbour works. Recording waits alone must cost nothing; its
//! runs are paired in the order alone, beside, beside, alone. The times can be compared with each other, but not with
//! those of a real processor.

use anyhow::{Context as _, Result};

use crate::vm::scenario::{ATTACHED, Files, Finding, Place, Scenario, Setting, last_line, time};

pub(super) const SCENARIO: Scenario =
    Scenario { name: "cost", place: Place::Guests, seconds: |_| 900, script, check };

const PART: &str = "cost of an acquisition";

/// Recording of waits, of kernel locks and futexes.
const WAITS: &str = "klock record -a --contended-only -q -f -o t.parquet";

/// Recorders of every acquisition, and their commands.
const RECORDERS: &[(&str, &str)] = &[
    ("klock, fentry", "klock record -a --locks kernel --kernel-probes fentry -q -f -o t.parquet"),
    ("klock, kprobe", "klock record -a --locks kernel --kernel-probes kprobe -q -f -o t.parquet"),
    ("klockstat", "klockstat"),
];

fn script(setting: &Setting) -> String {
    let (rounds, calls, blocks) = if setting.short { (3, 10_000, 3) } else { (5, 50_000, 8) };
    // A run of the pairs is some tenths of a second, emulated.
    let once = format!("known_kernel $WORK lseek 1 {}", 4 * calls);
    let once = vec![once + " >> pairs"; TRIES].join("; ");
    let mut script = format!(
        "{ATTACHED}\n\
         round() {{ for i in $(seq {rounds}); do known_kernel $WORK lseek 1 {calls}; done; }}\n\
         round > alone.0\n"
    );
    if setting.contention() {
        script += &format!(
            "for block in $(seq {blocks}); do\n\
             {once}\n\
             {WAITS} > recorder.waits 2>&1 &\n\
             recorder=$!\n\
             attached $recorder\n\
             {once}; {once}\n\
             kill -INT $recorder; wait $recorder; echo $? >> pairs.status\n\
             {once}\n\
             done\n"
        );
    }
    for (at, (_, words)) in RECORDERS.iter().enumerate() {
        script += &format!(
            "{words} > recorder.{at} 2>&1 &\n\
             recorder=$!\n\
             attached $recorder\n\
             if [ -d /proc/$recorder ]; then round > with.{at}; kill -INT $recorder; fi\n\
             wait $recorder; echo $? > with.{at}.status\n\
             rm -f t.*parquet\n"
        );
    }
    script + "round > alone.1\n"
}

/// Runs of which the quickest counts: an emulated processor is slow for a whole run now and then.
const TRIES: usize = 3;

/// Returns the slowdown in per cent of each run beside a recorder, from smallest to largest.
fn differences(printed: &str) -> Vec<f64> {
    let runs = runs(printed);
    let (tries, _) = runs.as_chunks::<TRIES>();
    let times: Vec<f64> =
        tries.iter().map(|tries| tries.iter().copied().fold(f64::INFINITY, f64::min)).collect();
    let (blocks, _) = times.as_chunks::<4>();
    let percent = |alone: f64, beside: f64| 100.0 * (beside - alone) / alone;
    let mut all: Vec<f64> = blocks
        .iter()
        .flat_map(|&[before, first, second, after]| [percent(before, first), percent(after, second)])
        .collect();
    all.sort_by(f64::total_cmp);
    all
}

/// The pairs of runs without and with recording of waits.
fn check_pairs(files: &Files, finding: &mut Finding) {
    let percent = differences(&files.text("pairs"));
    if percent.is_empty() {
        let said = files.text("recorder.waits");
        finding.faults.push(format!("no pair of runs: {}", last_line(&said)));
        return;
    }
    let statuses = files.text("pairs.status");
    finding.must(statuses.lines().all(|status| status == "0"), || {
        format!("recording waits ended with {}", statuses.replace('\n', " "))
    });
    let pairs = percent.len();
    let Difference { median: middle, low, high } = Difference::of(percent);
    finding.figure(PART, "klock, waits", format!("{middle:+.1} % ({low:+.1} to {high:+.1}, {pairs} pairs)"));
    // The interval leaves nothing out by chance alone once in forty runs; a cost that is there is a larger one.
    finding.must(low < 2.0, || format!("recording waits costs {low:+.1} to {high:+.1} %"));
}

/// Nanoseconds per call, from the lines that the program ends with.
fn per_call(printed: &str) -> Option<f64> {
    let runs = runs(printed);
    (!runs.is_empty()).then(|| median(&runs))
}

/// Returns the nanoseconds per call of each run.
fn runs(printed: &str) -> Vec<f64> {
    /// Calls in one measurement of the program.
    const CHUNK: f64 = 1000.0;
    let quick = |line: &str| line.strip_prefix("QUICK ")?.split_once(' ')?.1.parse::<f64>().ok();
    printed.lines().filter_map(quick).map(|ns| ns / CHUNK).collect()
}

fn check(files: &Files, setting: &Setting, finding: &mut Finding) -> Result<()> {
    let alone = per_call(&(files.text("alone.0") + &files.text("alone.1")))
        .context("the load alone was not measured")?;
    finding.figure(PART, "call alone", time(alone));
    if setting.contention() {
        check_pairs(files, finding);
    }
    for (at, (name, _)) in RECORDERS.iter().enumerate() {
        let with = per_call(&files.text(&format!("with.{at}")));
        finding.figure(PART, name, with.map_or_else(|| "-".to_owned(), |with| added(with - alone)));
        finding.must(with.is_some(), || {
            format!("{name} did not record: {}", last_line(&files.text(&format!("recorder.{at}"))))
        });
    }
    Ok(())
}

/// The median of paired differences.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Difference {
    median: f64,
    /// The interval that holds the true median with a probability of 95 % or more.
    low: f64,
    high: f64,
}

impl Difference {
    fn of(differences: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = differences.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = interval(&sorted);
        Self { median: median(&sorted), low, high }
    }
}

/// Returns the median; of an even number of values, the mean of the two in the middle.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// Returns the smallest interval between a value and its counterpart from the other end that holds the true median with
/// 95 %. The number of values below the median is distributed as heads among that many throws of a coin.
fn interval(sorted: &[f64]) -> (f64, f64) {
    let throws = sorted.len();
    let mut probability = 0.5_f64.powi(i32::try_from(throws).unwrap_or(i32::MAX));
    let (mut below, mut rank) = (probability, 0);
    for heads in 1..throws / 2 {
        if below > 0.025 {
            break;
        }
        rank = heads - 1;
        probability *= (throws - heads + 1) as f64 / heads as f64;
        below += probability;
    }
    (sorted[rank], sorted[throws - 1 - rank])
}

/// A time with its sign.
fn added(ns: f64) -> String {
    let sign = if ns < 0.0 { "-" } else { "+" };
    format!("{sign}{}", time(ns.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_rounds_is_per_call() {
        let printed = "COUNT lseek mutex exclusive 7 9000\nTIME lseek 1\nQUICK lseek 10000\nQUICK lseek 50000\nQUICK lseek 20000\n";
        assert_eq!(per_call(printed), Some(20.0));
    }

    #[test]
    fn each_run_beside_a_recorder_is_compared_with_its_neighbour() {
        let quickest = [1000, 1500, 3000, 4000];
        let printed: String =
            quickest.iter().map(|ns| format!("QUICK a 9000\nQUICK a {ns}\nQUICK a 5000\n")).collect();
        assert_eq!(differences(&printed), [-25.0, 50.0]);
    }

    #[test]
    fn the_sixth_of_twenty_pairs_from_either_end_bounds_the_median() {
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!(Difference::of(values), Difference { median: 10.5, low: 6.0, high: 15.0 });
    }

    #[test]
    fn only_the_whole_range_of_six_pairs_is_certain_enough() {
        assert_eq!(interval(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), (1.0, 6.0));
    }
}
