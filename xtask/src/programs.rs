//! `cargo xtask programs`: runs the loads of `fixtures/loads` alone and recorded by the in-process recorder, in turns, as
//! an ordinary user. The table has each program's acquisitions, waits and loss, its slowdown by its own measure, the
//! processor time that an acquisition costs, and its hottest lock with the site that waited longest for it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::{
    harness::{Common, Harness, median},
    host, table,
    yard::{Ran, Yard, figure},
};

const ROUNDS: u32 = 3;
const FEW: u64 = 1_000_000;
/// Sites longer than this are shown without the types of their arguments.
const LONG: usize = 60;

/// Run real programs alone and recorded.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run only the loads whose name contains one of these words.
    words: Vec<String>,
    /// Pairs of a run alone and a recorded run.
    #[arg(long, default_value_t = ROUNDS)]
    rounds: u32,
    /// Analyze with this klock instead of the one that records.
    #[arg(long, value_name = "FILE")]
    analyzer: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// A program to run.
struct Load {
    name: &'static str,
    /// Its kind of lock; `None` stands for those that a report shows by default.
    kind: Option<&'static str>,
    /// Whether its locks are recorded by probes in the kernel, which only root can set.
    as_root: bool,
    /// Whether each run does the same work, so that processor times can be compared.
    same_work: bool,
}

const LOADS: &[Load] = &[
    Load { name: "sysbench", kind: None, as_root: false, same_work: true },
    Load { name: "stress-ng", kind: None, as_root: false, same_work: true },
    Load { name: "redis", kind: None, as_root: false, same_work: true },
    Load { name: "memcached", kind: None, as_root: false, same_work: true },
    // Its own locks are atomic words, and a process that has to wait sleeps on a semaphore.
    Load { name: "postgresql", kind: Some("user_semaphore"), as_root: false, same_work: false },
    Load { name: "postgresql-200", kind: Some("user_semaphore"), as_root: false, same_work: false },
    Load { name: "cpp", kind: None, as_root: false, same_work: true },
    Load { name: "rust", kind: Some("rust_mutex"), as_root: true, same_work: true },
    Load { name: "python", kind: None, as_root: false, same_work: true },
    Load { name: "java-version", kind: None, as_root: false, same_work: true },
    Load { name: "java-threads", kind: None, as_root: false, same_work: true },
    Load { name: "java-500", kind: None, as_root: false, same_work: true },
    Load { name: "node", kind: None, as_root: false, same_work: true },
];

/// Runs the loads and prints.
pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.rounds > 0, "invalid --rounds '0': 1 or more");
    let wanted = |load: &&Load| {
        options.words.is_empty() || options.words.iter().any(|word| load.name.contains(word.as_str()))
    };
    let harness = Harness::new("programs", &options.common, &[])?;
    let yard = Yard::new(&harness.klock, options.analyzer.as_deref())?;
    let mut rows = Vec::new();
    for load in LOADS.iter().filter(wanted) {
        if load.as_root && !host::is_root() {
            println!("{}: left out; recording its locks needs root", load.name);
            continue;
        }
        match row(&yard, load, options.rounds)? {
            Ok(row) => rows.push(row),
            Err(missing) => println!("{}: left out; {missing} is not there", load.name),
        }
    }
    let head = [
        "load",
        "program",
        "acquired",
        "waited",
        "lost",
        "alone",
        "recorded",
        "slower",
        "added ns",
        "hottest lock",
        "waits most at",
    ];
    let command = format!("programs --rounds {}", options.rounds);
    harness.publish(&command, "programs.md", "programs", &table::markdown(&head, &rows))
}

/// Returns a row of the table, or the missing program.
fn row(yard: &Yard, load: &Load, rounds: u32) -> Result<Result<Vec<String>, String>> {
    let trace = yard.folder.join(format!("{}.parquet", load.name));
    let (mut alone, mut recorded, mut slower) = (Vec::new(), Vec::new(), Vec::new());
    let mut added_s = Vec::new();
    let (mut program, mut unit) = (String::new(), String::new());
    for _ in 0..rounds {
        let without = match once(yard, load, None)? {
            Ok(ran) => ran,
            Err(missing) => return Ok(Err(missing)),
        };
        let with = match once(yard, load, Some(&trace))? {
            Ok(ran) => ran,
            Err(missing) => return Ok(Err(missing)),
        };
        slower.push(with.slowdown(&without));
        added_s.push(with.cpu_s - without.cpu_s);
        alone.push(without.figure);
        recorded.push(with.figure);
        (program, unit) = (without.version, without.unit);
    }
    slower.sort_by(f64::total_cmp);
    let all = yard.report(&trace, &["--by", "kind", "--idle"])?;
    let (acquired, waited) = acquisitions(&all);
    let (lock, place) = hottest(yard, load, &trace)?;
    let loss = all["trust"]["lost"].as_u64().context("no loss in the report")?;
    Ok(Ok(vec![
        load.name.to_owned(),
        program,
        acquired.to_string(),
        percent(waited, acquired),
        loss.to_string(),
        figure(median(&alone), &unit),
        figure(median(&recorded), &unit),
        format!(
            "{:.2} ({:.2} to {:.2})",
            median(&slower),
            slower[0],
            slower.last().copied().unwrap_or_default()
        ),
        if load.same_work { per_acquisition(median(&added_s), acquired) } else { String::new() },
        lock,
        place,
    ]))
}

/// Runs the load once, alone or recorded into a trace. Returns the missing program if there is one.
fn once(yard: &Yard, load: &Load, trace: Option<&Path>) -> Result<Result<Ran, String>> {
    yard.ran(load.name, load.as_root, &trace.map_or_else(String::new, |trace| yard.klock_into(trace)))
}

/// Returns the lock with the longest waits, or the most acquisitions if there were no waits, and the site that waited
/// longest for it.
fn hottest(yard: &Yard, load: &Load, trace: &Path) -> Result<(String, String)> {
    let options = [&["--by", "lock"][..], &load.kind.map_or(vec![], |kind| vec!["--kind", kind])].concat();
    let report = yard.report(trace, &options)?;
    let rows = report["rows"].as_array().context("no rows in the report")?;
    let Some(hottest) = rows.iter().max_by_key(|row| heat(row)) else {
        return Ok((String::new(), String::new()));
    };
    let id = format!("#{}", hottest["lock_id"]);
    let sites = yard.report(trace, &["--by", "site", "--lock", &id])?;
    let sites = sites["rows"].as_array().context("no rows in the report")?;
    let site = sites.iter().max_by_key(|row| heat(row));
    let name = hottest["name"].as_str().unwrap_or_default();
    let name = name.strip_prefix(&format!("{id} ")).unwrap_or(name);
    let place = site.map_or(String::new(), |site| {
        let place = site["place"].as_str().unwrap_or_default();
        let place = place.strip_prefix(&format!("{}/", yard.folder.display())).unwrap_or(place);
        match site["function"].as_str().filter(|_| !site["file"].is_null()) {
            Some(function) => format!("{place} ({function})"),
            None if place.len() > LONG => without_arguments(place),
            None => place.to_owned(),
        }
    });
    Ok((code(name), code(&place)))
}
/// Orders rows by wait, then by acquisitions.
fn heat(row: &Value) -> (u64, u64) {
    (row["wait_total_ns"].as_u64().unwrap_or(0), row["count"].as_u64().unwrap_or(0))
}

/// Returns the acquisitions of user locks, and those that waited.
fn acquisitions(report: &Value) -> (u64, u64) {
    let rows = report["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let user = rows.iter().filter(|row| {
        let kind = row["kind"].as_str().unwrap_or_default();
        kind.starts_with("pthread_")
            || kind.starts_with("rust_")
            || kind == "user_semaphore"
            || kind == "futex"
    });
    user.fold((0, 0), |(acquired, waited), row| {
        let number = |column: &str| row[column].as_u64().unwrap_or(0);
        (acquired + number("count"), waited + number("cnt_lock"))
    })
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { String::new() } else { format!("{:.3} %", part as f64 * 100.0 / whole as f64) }
}

/// Returns the nanoseconds per acquisition. A few acquisitions are lost in the noise between two runs.
fn per_acquisition(seconds: f64, acquired: u64) -> String {
    if acquired < FEW { String::new() } else { format!("{:+.0}", seconds * 1e9 / acquired as f64) }
}

/// Shortens `a::b(int, c<d>)+0x10` to `a::b+0x10`.
fn without_arguments(place: &str) -> String {
    let (open, close) = (place.find('('), place.rfind(')'));
    match (open, close) {
        (Some(open), Some(close)) if open < close => format!("{}{}", &place[..open], &place[close + 1..]),
        _ => place.to_owned(),
    }
}

/// Formats a cell as code.
fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{}`", text.replace('|', "\\|")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_without_its_arguments_keeps_its_offset() {
        assert_eq!(without_arguments("a::b(int, c<d>&)+0x10"), "a::b+0x10");
        assert_eq!(without_arguments("plain+0x10"), "plain+0x10");
    }

    #[test]
    fn too_few_acquisitions_give_no_cost() {
        assert_eq!(per_acquisition(0.1, 2_000_000), "+50");
        assert_eq!(per_acquisition(0.1, 20_000), "");
    }
}
