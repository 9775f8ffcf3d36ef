//! `cargo xtask recorders`: how much a program is slowed by `klock record`, and by LTTng's wrapper of the pthread functions
//! (`liblttng-ust-pthread-wrapper`), which writes to disk as well. Each round runs a load of `fixtures/loads` alone, under klock and under LTTng, as an
//! ordinary user. One table, with the budgets.

use std::{
    fs, thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::{
    fixture,
    harness::{Common, Harness, median, rounds, verdict},
    table,
    yard::{Ran, Yard, figure},
};

mod lttng;

use lttng::Lttng;

const ROUNDS: u32 = 7;
/// Threads of the program whose trace is awaited, and the pairs of lock and unlock of each.
const AWAITED: [&str; 2] = ["2", "4000000"];
/// Maximum time from the end of that program to its trace.
const MAX_AWAITED_S: f64 = 2.0;
/// Maximum of the time that klock adds, as a part of what LTTng adds.
const MAX_OF_LTTNG: f64 = 0.5;

/// Run programs alone, under klock and under LTTng.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Rounds of one run of each way.
    #[arg(long, default_value_t = ROUNDS)]
    rounds: u32,
    #[command(flatten)]
    common: Common,
}

/// A load, and how many times as long it may take under klock.
const LOADS: [(&str, f64); 3] = [("memcached", 1.0 / 0.7), ("cpp", 4.0), ("sysbench", 1.1)];

/// A way to run a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Alone,
    Klock,
    Lttng,
}

/// A run of a load.
#[derive(Debug)]
struct Measured {
    ran: Ran,
    /// Number of events that the recorder lost.
    lost: u64,
}

/// The programs that the runs need.
struct Bench {
    harness: Harness,
    yard: Yard,
    lttng: Lttng,
}

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.rounds > 0, "invalid --rounds '0': 1 or more");
    let harness = Harness::new("recorders", &options.common, &["gcc", "lttng", "lttng-sessiond"])?;
    let yard = Yard::new(&harness.klock, None)?;
    yard.empty_work()?;
    let lttng = Lttng::start(&yard.folder)?;
    let bench = Bench { harness, yard, lttng };
    let others = busy_share(Duration::from_secs(1))?;
    let (mut rows, mut budgets) = (Vec::new(), Vec::new());
    for (load, budget) in LOADS {
        let ways = [Way::Alone, Way::Klock, Way::Lttng];
        let runs = rounds(options.rounds, &ways, |way| bench.once(load, way))?;
        let [alone, klock, lttng] = &runs[..] else { bail!("a way was left out") };
        let slower = [klock, lttng].map(|runs| slowdowns(runs, alone));
        rows.push(row(load, [alone, klock, lttng], &slower));
        let [klock, lttng] = slower.map(|slower| median(&slower));
        let of_lttng = (klock - 1.0).max(0.0) / (lttng - 1.0).max(f64::MIN_POSITIVE);
        budgets.push(times(&format!("{load}: time, of its time alone"), klock, budget));
        budgets.push(times(
            &format!("{load}: time that klock adds, of what LTTng adds"),
            of_lttng,
            MAX_OF_LTTNG,
        ));
    }
    budgets.push(bench.awaited()?);
    let head = [
        "load",
        "program",
        "alone",
        "klock",
        "LTTng",
        "slower by klock",
        "slower by LTTng",
        "klock lost",
        "LTTng lost",
    ];
    let tables = format!(
        "Before it, other programs took {:.0} % of the processors' time.\n\n{}\n{}",
        others * 100.0,
        table::markdown(&head, &rows),
        table::markdown(&["what", "measured", "budget", "reached"], &budgets)
    );
    let command = format!("recorders --rounds {}", options.rounds);
    bench.harness.publish(&command, "benchmarks.md", "recorders", &tables)
}

impl Bench {
    fn once(&self, load: &str, way: Way) -> Result<Measured> {
        let run = |recorder: &str| -> Result<Ran> {
            match self.yard.ran(load, false, recorder)? {
                Ok(ran) => Ok(ran),
                Err(missing) => bail!("cannot run {load}: no {missing}; run cargo xtask setup"),
            }
        };
        let trace = self.yard.folder.join(format!("{load}.parquet"));
        let (ran, lost) = match way {
            Way::Alone => (run("")?, 0),
            Way::Klock => (run(&self.yard.klock_into(&trace))?, self.yard.lost(&trace)?),
            Way::Lttng => self.lttng.record(run)?,
        };
        Ok(Measured { ran, lost })
    }

    /// Returns the row of the time from the end of a program to its trace.
    fn awaited(&self) -> Result<Vec<String>> {
        let program = fixture::build("lock_pairs", &self.yard.folder, &[])?;
        let trace = self.yard.folder.join("awaited.parquet");
        let script = format!("{} {}; date +%s%N", program.display(), AWAITED.join(" "));
        let mut waited_s = Vec::new();
        for _ in 0..3 {
            let words = format!("{} sh -c '{script}'", self.yard.klock_into(&trace));
            let printed = self.yard.shell(&words)?;
            let ended = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as f64;
            let last = printed.lines().last().context("the program printed nothing")?;
            waited_s.push((ended - last.parse::<f64>().with_context(|| last.to_owned())?) / 1e9);
        }
        let (waited, lost) = (median(&waited_s), self.yard.lost(&trace)?);
        let what = format!("end of a program to its trace of 16 million events ({lost} lost)");
        let (measured, budget) = (format!("{waited:.2} s"), format!("{MAX_AWAITED_S:.0} s"));
        Ok(verdict(&what, measured, budget, waited <= MAX_AWAITED_S))
    }
}

fn times(what: &str, measured: f64, budget: f64) -> Vec<String> {
    verdict(what, format!("{measured:.2} times"), format!("{budget:.2} times"), measured <= budget)
}

/// The length of each run, divided by that of the run alone of its round.
fn slowdowns(runs: &[Measured], alone: &[Measured]) -> Vec<f64> {
    let mut all: Vec<f64> = runs.iter().zip(alone).map(|(run, alone)| run.ran.slowdown(&alone.ran)).collect();
    all.sort_by(f64::total_cmp);
    all
}

fn row(load: &str, runs: [&Vec<Measured>; 3], slower: &[Vec<f64>; 2]) -> Vec<String> {
    let program = runs[0].first().map_or(String::new(), |run| run.ran.version.clone());
    let mut cells = vec![load.to_owned(), program];
    for runs in runs {
        let figures: Vec<f64> = runs.iter().map(|run| run.ran.figure).collect();
        let unit = runs.first().map_or("", |run| &run.ran.unit);
        cells.push(figure(median(&figures), unit));
    }
    for slower in slower {
        let (least, most) = (slower.first().unwrap_or(&0.0), slower.last().unwrap_or(&0.0));
        cells.push(format!("{:.2} ({least:.2} to {most:.2})", median(slower)));
    }
    cells.extend(runs[1..].iter().map(|runs| runs.iter().map(|run| run.lost).sum::<u64>().to_string()));
    cells
}

/// Returns the share of the processors' time that is not idle during the next moments.
fn busy_share(during: Duration) -> Result<f64> {
    let times = || -> Result<[f64; 2]> {
        let text = fs::read_to_string("/proc/stat").context("/proc/stat")?;
        let line = text.lines().next().unwrap_or_default();
        let times: Vec<f64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
        let idle = times.get(3).context("/proc/stat")? + times.get(4).unwrap_or(&0.0);
        Ok([idle, times.iter().take(8).sum()])
    };
    let before = times()?;
    thread::sleep(during);
    let [idle, all] = times()?;
    Ok(1.0 - (idle - before[0]) / (all - before[1]).max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(figure: f64, unit: &str) -> Measured {
        Measured { ran: Ran::new("x", figure, unit), lost: 0 }
    }

    #[test]
    fn a_run_that_takes_twice_as_long_or_does_half_is_slower_by_two() {
        let of = |run: f64, alone: f64, unit| slowdowns(&[measured(run, unit)], &[measured(alone, unit)]);
        assert_eq!(of(3.0, 1.5, "s"), [2.0]);
        assert_eq!(of(50.0, 100.0, "requests/s"), [2.0]);
    }
}
