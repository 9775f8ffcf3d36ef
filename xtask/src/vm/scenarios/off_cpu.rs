//! Compares off-CPU time by offcputime of libbpf-tools and by klock, of the same threads at the same time:
//! threads that sleep, threads that wait for each other, and more busy threads than CPUs, so that all are
//! preempted. Both tools measure from tracepoint to tracepoint with the other's programs in between, which
//! costs microseconds, or more if the host preempts the guest there; klock is the first one in one of the
//! rounds. One of the rounds in which offcputime reports something must be within all bounds. In a guest
//! every switch that the kernel counted must also be a row; a machine may have tasks of its own whose
//! switches its kernel hides. The same holds for the program that records switches without stacks.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use trace_format::{EventKind, Trace};

use super::counts::{causes, lost_here};
use crate::vm::scenario::{self, Files, Finding, Place, Scenario, Setting, last_line, thousands, time};

pub(in crate::vm) const SCENARIO: Scenario =
    Scenario { name: "off-cpu", place: Place::Everywhere, seconds: |_| 200 * ROUNDS, script, check };

const PART: &str = "off-CPU time";
/// Directory of the recording without stacks.
const PLAIN: &str = "plain";
/// Number of measurements.
const ROUNDS: u32 = 3;
/// The largest difference of the two sums, as a part of offcputime's: of all threads, and of the threads of
/// one name, which are a few hundred intervals of milliseconds.
const BOUNDS: [(Option<&str>, f64); 5] = [
    (None, 0.02),
    (Some("sleeper"), 0.05),
    (Some("waiter"), 0.05),
    (Some("waker"), 0.05),
    (Some("spinner"), 0.05),
];
/// The largest part of the switches that a machine may hide.
const HIDDEN: f64 = 0.05;

fn script(setting: &Setting) -> String {
    let naps = if setting.short { 100 } else { 400 };
    scenario::script(&[("rounds", &ROUNDS), ("naps", &naps)], include_str!("../guest/off-cpu.sh"))
}

/// Microseconds by the name of the thread.
type Sums = BTreeMap<String, u64>;

/// Reads offcputime's output: stacks, and below each `-  comm (pid)` and the microseconds.
fn theirs(printed: &str) -> Sums {
    let mut sums = Sums::new();
    let lines: Vec<&str> = printed.lines().map(str::trim).collect();
    for pair in lines.windows(2) {
        let name = pair[0].strip_prefix('-').and_then(|rest| rest.trim().rsplit_once(" ("));
        if let (Some((comm, _)), Ok(us)) = (name, pair[1].parse::<u64>()) {
            *sums.entry(comm.to_owned()).or_default() += us;
        }
    }
    sums
}

/// Reads the output of `klock export --format offwaketime`: `comm;frames us`.
fn ours(folded: &str) -> Sums {
    let mut sums = Sums::new();
    for (stack, us) in folded.lines().filter_map(|line| line.rsplit_once(' ')) {
        let comm = stack.split(';').next().unwrap_or_default();
        *sums.entry(comm.to_owned()).or_default() += us.parse().unwrap_or(0);
    }
    sums
}

/// Reads the program's lines about its threads: `name tid begin end switches`.
fn known(said: &str) -> BTreeMap<i32, (i64, i64, usize)> {
    let thread = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let mut next = || words.next()?.parse::<i64>().ok();
        let (tid, begin_ns, end_ns, switches) = (next()?, next()?, next()?, next()?);
        Some((i32::try_from(tid).ok()?, (begin_ns, end_ns, usize::try_from(switches).ok()?)))
    };
    said.lines().filter_map(thread).collect()
}

/// Counts the rows of these threads between their times.
fn rows(trace: &Trace, known: &BTreeMap<i32, (i64, i64, usize)>) -> Result<usize> {
    let tasks = trace.tasks()?;
    let mut rows = 0;
    for batch in trace.events()? {
        for event in batch?.iter().filter(|event| event.kind == EventKind::OffCpu) {
            let task = event.task.and_then(|task| tasks.get(usize::try_from(task.0).ok()?));
            let of = task.and_then(|task| known.get(&task.tid));
            let inside = |&(begin_ns, end_ns, _): &(i64, i64, usize)| {
                event.ts_ns > begin_ns && event.ts_ns - event.wait_ns.unwrap_or(0) < end_ns
            };
            rows += usize::from(of.is_some_and(inside));
        }
    }
    Ok(rows)
}

/// The sums of offcputime and klock in one round.
struct Round {
    theirs: Sums,
    ours: Sums,
}

impl Round {
    /// Returns the difference of klock's sum from offcputime's, as a part of it: of the threads of one name,
    /// or of all.
    fn apart(&self, name: Option<&str>) -> f64 {
        let sum = |sums: &Sums| -> u64 {
            sums.iter().filter(|(of, _)| name.is_none_or(|name| name == *of)).map(|(_, us)| us).sum()
        };
        (sum(&self.ours) as f64 - sum(&self.theirs) as f64) / (sum(&self.theirs) as f64).max(1.0)
    }
}

/// Checks that every switch that the kernel counted is a row. Returns both numbers, and the number of lost
/// rows.
fn check_rows(files: &Files, directory: &str, setting: &Setting, finding: &mut Finding) -> Result<[u64; 3]> {
    let trace = Trace::open(&files.path(&format!("{directory}/t.parquet")))?;
    let known = known(&files.text(&format!("{directory}/known")));
    let switches: usize = known.values().map(|(.., switches)| switches).sum();
    let found = rows(&trace, &known)?;
    let loss = &trace.info().loss;
    let lost = loss.events();
    let missing = switches as f64 - found as f64;
    let bound = if setting.kernel.is_some() { 0.0 } else { HIDDEN * switches as f64 };
    finding.must(lost_here(loss) == 0 && missing >= 0.0 && missing <= bound, || {
        format!("{found} rows of {switches} switches in {directory}, {lost} lost: {}", causes(loss))
    });
    Ok([switches as u64, found as u64, lost])
}

/// Checks that every switch that the kernel counted is a row, in each round and without stacks, and compares
/// the times.
fn check(files: &Files, setting: &Setting, finding: &mut Finding) -> Result<()> {
    let (mut rounds, mut counts, mut reason) = (Vec::new(), [0; 3], String::new());
    for round in 1..=ROUNDS {
        let file = |name: &str| format!("{round}/{name}");
        for name in ["record", "export"] {
            if !files.succeeded(&file(name), finding)? {
                return Ok(());
            }
        }
        for (sum, count) in counts.iter_mut().zip(check_rows(files, &round.to_string(), setting, finding)?) {
            *sum += count;
        }
        let (theirs, ours) = (theirs(&files.text(&file("offcputime"))), ours(&files.text(&file("folded"))));
        if theirs.is_empty() {
            reason = last_line(&files.text(&file("offcputime.log"))).to_owned();
        } else {
            rounds.push(Round { theirs, ours });
        }
    }
    if rounds.is_empty() {
        finding.faults.push(format!("offcputime reports nothing here: {reason}"));
        return Ok(());
    }
    for (name, count) in ["switches", "rows", "lost"].into_iter().zip(counts) {
        finding.figure(PART, name, thousands(count));
    }
    if !files.succeeded(&format!("{PLAIN}/record"), finding)? {
        return Ok(());
    }
    let [switches, found, _] = check_rows(files, PLAIN, setting, finding)?;
    finding.figure(PART, "without stacks", format!("{} of {}", thousands(found), thousands(switches)));
    // The closest round is the one that is the least beyond its bounds, or the furthest within.
    let worst = |round: &Round| {
        BOUNDS.map(|(name, bound)| round.apart(name).abs() / bound).into_iter().fold(0.0, f64::max)
    };
    let best = rounds.into_iter().min_by(|a, b| worst(a).total_cmp(&worst(b))).context("no round")?;
    let sum = |sums: &Sums| time(sums.values().sum::<u64>() as f64 * 1e3);
    finding.figure(PART, "offcputime", sum(&best.theirs));
    finding.figure(PART, "klock", sum(&best.ours));
    let mut most = 0.0_f64;
    for (name, bound) in BOUNDS {
        let apart = best.apart(name);
        finding.must(apart.abs() <= bound, || {
            let who = name.unwrap_or("all threads");
            format!("{who}: klock's off-CPU time is {:+.2} % from offcputime's", 100.0 * apart)
        });
        if name.is_some() && apart.abs() > most.abs() {
            most = apart;
        }
    }
    finding.figure(PART, "apart", format!("{:+.3} %", 100.0 * best.apart(None)));
    finding.figure(PART, "apart, by thread", format!("{:+.3} %", 100.0 * most));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tables_are_summed_by_name() {
        let printed = "Tracing off-CPU time (us) of ...\n    __schedule\n    schedule\n    -                my thread (7)\n        \
                       2919029\n\n    schedule\n    -                my thread (8)\n        1\n";
        assert_eq!(theirs(printed), Sums::from([("my thread".to_owned(), 2_919_030)]));
        assert_eq!(ours("a;b;;c;--;; 5\na;d;;--;; 6\n"), Sums::from([("a".to_owned(), 11)]));
    }

    #[test]
    fn the_switches_of_the_programs_threads_are_read() {
        let said = "ready 4\nsleeper 7 100 900 3\nslept 110 120\ndone\n";
        assert_eq!(known(said), BTreeMap::from([(7, (100, 900, 3))]));
    }
}
