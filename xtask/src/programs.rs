//! `cargo xtask programs`: runs the loads of `fixtures/loads` alone and recorded by the in-process recorder, in turns, as
//! an ordinary user. The table has each program's acquisitions, waits and loss, its slowdown by its own measure, the
//! processor time that an acquisition costs, and its hottest lock with the site that waited longest for it.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    harness::{Common, Harness, median},
    home, host,
    process::{Run, root},
    table,
};

const ROUNDS: u32 = 3;
const FEW: u64 = 1_000_000;
/// Sites longer than this are shown without the types of their arguments.
const LONG: usize = 60;
/// The user who records, if this process is root.
pub(crate) const NOBODY: u32 = 65534;
/// The exit status of a load whose program is missing.
const MISSING: &str = "77";

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

/// A world-writable folder with the files that the loads need. Dropping it removes it.
pub(crate) struct Yard {
    pub(crate) folder: PathBuf,
    analyzer: PathBuf,
}

/// The output of a run.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) version: String,
    pub(crate) figure: f64,
    pub(crate) unit: String,
    /// Processor time of the program, in seconds.
    cpu_s: f64,
}

impl Ran {
    #[cfg(test)]
    pub(crate) fn new(version: &str, figure: f64, unit: &str) -> Self {
        Self { version: version.to_owned(), figure, unit: unit.to_owned(), cpu_s: 0.0 }
    }

    /// The time that the same work takes, divided by that in the other run.
    pub(crate) fn slowdown(&self, other: &Self) -> f64 {
        let ratio = self.figure / other.figure;
        if self.unit == "s" { ratio } else { 1.0 / ratio }
    }
}

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
        match yard.row(load, options.rounds)? {
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

impl Yard {
    /// Makes the folder, with a copy of the klock that records.
    pub(crate) fn new(recorder: &Path, analyzer: Option<&Path>) -> Result<Self> {
        let analyzer = analyzer.unwrap_or(recorder);
        let analyzer = fs::canonicalize(analyzer).with_context(|| analyzer.display().to_string())?;
        let folder = std::env::temp_dir().join(format!("klock-programs-{}", std::process::id()));
        let yard = Self { folder, analyzer };
        for (from, to) in [("fixtures/loads", "loads"), ("fixtures/programs", "programs")] {
            let to = yard.folder.join(to);
            fs::create_dir_all(&to).with_context(|| to.display().to_string())?;
            for file in fs::read_dir(root().join(from)).with_context(|| from.to_owned())? {
                let file = file?;
                fs::copy(file.path(), to.join(file.file_name()))?;
            }
        }
        fs::copy(recorder, yard.folder.join("klock"))?;
        Ok(yard)
    }

    /// Returns a row of the table, or the missing program.
    fn row(&self, load: &Load, rounds: u32) -> Result<Result<Vec<String>, String>> {
        let trace = self.folder.join(format!("{}.parquet", load.name));
        let (mut alone, mut recorded, mut slower) = (Vec::new(), Vec::new(), Vec::new());
        let mut added_s = Vec::new();
        let (mut program, mut unit) = (String::new(), String::new());
        for _ in 0..rounds {
            let without = match self.once(load, None)? {
                Ok(ran) => ran,
                Err(missing) => return Ok(Err(missing)),
            };
            let with = match self.once(load, Some(&trace))? {
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
        let all = self.report(&trace, &["--by", "kind", "--idle"])?;
        let (acquired, waited) = acquisitions(&all);
        let (lock, place) = self.hottest(load, &trace)?;
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
    fn once(&self, load: &Load, trace: Option<&Path>) -> Result<Result<Ran, String>> {
        self.ran(load.name, load.as_root, &trace.map_or_else(String::new, |trace| self.klock_into(trace)))
    }

    /// Returns the words of a shell that record a program with klock.
    pub(crate) fn klock_into(&self, trace: &Path) -> String {
        format!("{} record --quiet -f -o {} --", self.folder.join("klock").display(), trace.display())
    }

    /// Runs a load once behind the words of a shell that start a recorder. Returns the missing program if there is one.
    pub(crate) fn ran(&self, load: &str, as_root: bool, recorder: &str) -> Result<Result<Ran, String>> {
        let work = self.empty_work()?;
        let record = format!("{recorder} {}", self.folder.join("loads/timed").display());
        println!("$ loads/{load}.sh, behind: {recorder}");
        let printed = match self.script(load, as_root, ("RECORD", &record))? {
            Ok(printed) => printed,
            Err(missing) => return Ok(Err(missing)),
        };
        let lines: Vec<&str> = printed.lines().collect();
        let of = |word: &str| lines.iter().find_map(|line| line.strip_prefix(word)).map(str::trim);
        let (Some(version), Some((number, unit))) =
            (of("VERSION "), of("FIGURE ").and_then(|f| f.split_once(' ')))
        else {
            bail!("{load}.sh did not say VERSION and FIGURE: {printed}")
        };
        let figure = number.parse().with_context(|| number.to_owned())?;
        let cpu = fs::read_to_string(work.join("cpu")).context("the program left no processor time")?;
        let cpu_s = cpu.split_whitespace().filter_map(|seconds| seconds.parse::<f64>().ok()).sum();
        Ok(Ok(Ran { version: version.to_owned(), figure, unit: unit.to_owned(), cpu_s }))
    }

    /// Makes an empty directory for a load's files.
    pub(crate) fn empty_work(&self) -> Result<PathBuf> {
        let work = self.folder.join("work");
        fs::remove_dir_all(&work).ok();
        fs::create_dir(&work).with_context(|| work.display().to_string())?;
        for folder in [&self.folder, &work] {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o777))?;
        }
        Ok(work)
    }

    /// Runs the script of a load with a variable of its environment. Returns its output, or the missing program.
    pub(crate) fn script(
        &self,
        name: &str,
        as_root: bool,
        (variable, value): (&str, &str),
    ) -> Result<Result<String, String>> {
        // A load that ends with 77 prints the name of the missing program.
        let script = "cd \"$WORK\" && { bash \"$LOAD\"; s=$?; [ $s = 77 ] && echo 77 || exit $s; }";
        let home = home::of_user(NOBODY)?.filter(|_| !as_root);
        let printed = self
            .bash(script, home.as_ref())
            .env("LOAD", self.folder.join(format!("loads/{name}.sh")))
            .env("FIXTURES", self.folder.join("programs"))
            .env(variable, value)
            .read()?;
        let lines: Vec<&str> = printed.lines().collect();
        Ok(match lines[..] {
            [missing, MISSING] => Err(missing.to_owned()),
            _ => Ok(printed),
        })
    }

    /// Runs the words of a shell as the ordinary user, and returns the output.
    pub(crate) fn shell(&self, script: &str) -> Result<String> {
        self.bash(script, home::of_user(NOBODY)?.as_ref()).read()
    }

    /// Returns a run of bash, as the user of a home directory or as this one.
    fn bash(&self, script: &str, home: Option<&TempDir>) -> Run {
        let run = match home {
            Some(home) => {
                let user = ["--reuid=65534", "--regid=65534", "--clear-groups", "bash", "-c", script];
                Run::new("setpriv", &user).env("HOME", home.path())
            }
            None => Run::new("bash", &["-c", script]),
        };
        let work = self.folder.join("work");
        run.env("WORK", &work).env("TMPDIR", &work).minutes(3)
    }

    /// Returns the number of events that a trace lacks.
    pub(crate) fn lost(&self, trace: &Path) -> Result<u64> {
        self.events(trace).map(|(_, lost)| lost)
    }

    /// Returns the number of rows of a trace, and of events that it lacks.
    pub(crate) fn events(&self, trace: &Path) -> Result<(u64, u64)> {
        let report = self.report(trace, &["--idle", "--allow-loss"])?;
        let number =
            |name: &str| report["trust"][name].as_u64().with_context(|| format!("no {name} in the report"));
        Ok((number("events")?, number("lost")?))
    }

    fn report(&self, trace: &Path, options: &[&str]) -> Result<Value> {
        let run = Run::new(&self.analyzer, &["analyze", "report", "--format", "json"]);
        let text = options.iter().fold(run, Run::arg).arg(trace).read()?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Returns the lock with the longest waits, or the most acquisitions if there were no waits, and the site that waited
    /// longest for it.
    fn hottest(&self, load: &Load, trace: &Path) -> Result<(String, String)> {
        let options =
            [&["--by", "lock"][..], &load.kind.map_or(vec![], |kind| vec!["--kind", kind])].concat();
        let report = self.report(trace, &options)?;
        let rows = report["rows"].as_array().context("no rows in the report")?;
        let Some(hottest) = rows.iter().max_by_key(|row| heat(row)) else {
            return Ok((String::new(), String::new()));
        };
        let id = format!("#{}", hottest["lock_id"]);
        let sites = self.report(trace, &["--by", "site", "--lock", &id])?;
        let sites = sites["rows"].as_array().context("no rows in the report")?;
        let site = sites.iter().max_by_key(|row| heat(row));
        let name = hottest["name"].as_str().unwrap_or_default();
        let name = name.strip_prefix(&format!("{id} ")).unwrap_or(name);
        let place = site.map_or(String::new(), |site| {
            let place = site["place"].as_str().unwrap_or_default();
            let place = place.strip_prefix(&format!("{}/", self.folder.display())).unwrap_or(place);
            match site["function"].as_str().filter(|_| !site["file"].is_null()) {
                Some(function) => format!("{place} ({function})"),
                None if place.len() > LONG => without_arguments(place),
                None => place.to_owned(),
            }
        });
        Ok((code(name), code(&place)))
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.folder).ok();
    }
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

pub(crate) fn figure(number: f64, unit: &str) -> String {
    if unit == "s" { format!("{number:.3} s") } else { format!("{number:.0} {unit}") }
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
