//! `cargo xtask causes`: records the modes of `fixtures/programs/known_causes.c`, each of which makes threads wait for a known cause, and
//! compares the first verdict of `klock why` with the mode's. The fixed program of each mode must lose the verdict.
//!
//! Recordings are made by an ordinary user, who gets the off-CPU times of holders, and by root with all off-CPU times.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    fixture,
    harness::{Common, FIRST, Harness, median},
    home, host,
    process::Running,
    table,
};

/// Recordings of each mode with `--full`, and of its fixed variant.
const FULL: (usize, usize) = (10, 5);
/// The user who records, if this process is root.
/// Bound on a recording of half a second; generous, because the machine may be busy.
const LIMIT: Duration = Duration::from_secs(120);

/// Record programs that wait for known causes, and compare the verdicts of klock why.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Record only the modes whose name contains one of these words.
    words: Vec<String>,
    /// Record each mode ten times, and its fixed variant five times, not once.
    #[arg(long)]
    full: bool,
    /// Analyze with this klock instead of the one that records.
    #[arg(long, value_name = "FILE")]
    analyzer: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// A mode of the program, as the program lists it.
struct Mode {
    name: String,
    verdict: String,
    lock: String,
    options: Vec<String>,
}

/// The user that records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recorder {
    User,
    Root,
}

impl Recorder {
    const fn as_str(self) -> &'static str {
        match self {
            Self::User => "ordinary user",
            Self::Root => "root",
        }
    }

    /// Returns the options of `klock record`, with those of a mode.
    fn options(self, of_mode: &[String]) -> Vec<&str> {
        let own: &[&str] = match (self, of_mode.is_empty()) {
            (Self::User, _) => &[],
            (Self::Root, true) => &["--locks", "pthread", "--off-cpu"],
            (Self::Root, false) => &["--locks", "pthread"],
        };
        own.iter().copied().chain(of_mode.iter().map(String::as_str)).collect()
    }
}

/// A recording, and what `klock why` says of it.
struct Judged {
    wall_ns: Option<f64>,
    /// The name of the lock that was waited for longest, and the verdicts on it; none if no task waited.
    lock: String,
    verdicts: Vec<String>,
}

impl Judged {
    /// Returns the first verdict, with its lock if that is not the expected one.
    fn first(&self, lock: &str) -> String {
        let is_of = |word: &str| word == lock;
        match self.verdicts.first() {
            Some(verdict) if self.lock.split(' ').any(is_of) => verdict.clone(),
            Some(verdict) => format!("{verdict} of {}", self.lock),
            None => "none".to_owned(),
        }
    }
}

/// Records, prints and compares. Returns whether every mode has its verdict.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let harness = Harness::new("causes", &options.common, &["gcc"])?;
    let place = Place::new(&harness, options.analyzer.as_deref())?;
    let (recordings, of_fixed) = if options.full { FULL } else { (1, 1) };
    let recorders: &[Recorder] =
        if host::is_root() { &[Recorder::User, Recorder::Root] } else { &[Recorder::User] };
    let is_chosen = |mode: &&Mode| {
        options.words.is_empty() || options.words.iter().any(|word| mode.name.contains(word.as_str()))
    };
    let modes = place.modes()?;
    let (mut rows, mut reached) = (Vec::new(), true);
    for mode in modes.iter().filter(is_chosen) {
        for recorder in recorders {
            println!("$ known_causes {}, recorded by {}", mode.name, recorder.as_str());
            let all = |is_fixed, count| {
                let each = (0..count).map(|_| place.judge(mode, *recorder, is_fixed));
                each.collect::<Result<Vec<Judged>>>()
            };
            let (found, fixed) = (all(false, recordings)?, all(true, of_fixed)?);
            let is_right = is_right(mode, &found, &fixed);
            reached &= is_right;
            rows.push(vec![
                format!("`{}`", mode.name),
                format!("`{}`", mode.verdict),
                recorder.as_str().to_owned(),
                firsts(&found, &mode.lock),
                firsts(&fixed, &mode.lock),
                wall(&found),
                wall(&fixed),
                if is_right { "yes" } else { "**no**" }.to_owned(),
            ]);
        }
    }
    let head = ["mode", "verdict", "recorded by", "first verdicts", "fixed", "ms", "fixed ms", "right"];
    let goal = if reached { "The goal is reached." } else { "**The goal is not reached.**" };
    let text = format!("{}\n{goal}\n", table::markdown(&head, &rows));
    let command = if options.full { "causes --full" } else { "causes" };
    harness.publish(command, "causes.md", "verdicts", &text)?;
    Ok(reached)
}

/// Whether the mode's verdict is the first one nine times out of ten and never said of the fixed program. A quiet mode has no other verdict.
fn is_right(mode: &Mode, found: &[Judged], fixed: &[Judged]) -> bool {
    if mode.verdict == "quiet" {
        let mut all = found.iter().chain(fixed).flat_map(|judged| &judged.verdicts);
        return all.all(|verdict| *verdict == mode.verdict);
    }
    let right = found.iter().filter(|judged| judged.first(&mode.lock) == mode.verdict).count();
    right * 10 >= found.len() * 9 && fixed.iter().all(|judged| !judged.verdicts.contains(&mode.verdict))
}

/// Counts the first verdicts: `nested 9, none 1`.
fn firsts(judged: &[Judged], lock: &str) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for judged in judged {
        *counts.entry(judged.first(lock)).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let counts: Vec<String> = counts.iter().map(|(first, count)| format!("{first} {count}")).collect();
    counts.join(", ")
}

/// Returns the median wall time of the program in milliseconds, if it ended.
fn wall(judged: &[Judged]) -> String {
    let times: Vec<f64> = judged.iter().filter_map(|judged| judged.wall_ns).collect();
    if times.is_empty() { String::new() } else { format!("{:.0}", median(&times) / 1e6) }
}

/// A world-writable directory with the program and a copy of klock.
struct Place {
    folder: TempDir,
    home: Option<TempDir>,
    klock: PathBuf,
    analyzer: PathBuf,
    program: PathBuf,
}

impl Place {
    fn new(harness: &Harness, analyzer: Option<&Path>) -> Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a temporary directory")?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))?;
        let klock = folder.path().join("klock");
        fs::copy(&harness.klock, &klock).with_context(|| harness.klock.display().to_string())?;
        let program = fixture::build("known_causes", folder.path(), &[])?;
        let analyzer = analyzer.unwrap_or(&harness.klock);
        let analyzer = fs::canonicalize(analyzer).with_context(|| analyzer.display().to_string())?;
        Ok(Self { home: home::of_nobody()?, folder, klock, analyzer, program })
    }

    fn modes(&self) -> Result<Vec<Mode>> {
        let ended = Running::start(Command::new(&self.program).arg("list"))?.succeed_within(LIMIT)?;
        let mode = |line: &str| {
            let mut words = line.split_whitespace().map(str::to_owned);
            let [name, verdict, lock, _] = [(); 4].map(|()| words.next());
            let (name, verdict, lock) = (name?, verdict?, lock?);
            Some(Mode { name, verdict, lock, options: words.collect() })
        };
        let modes: Vec<Mode> = ended.stdout.lines().filter_map(mode).collect();
        ensure!(!modes.is_empty(), "known_causes lists no modes");
        Ok(modes)
    }

    /// Records the program once.
    fn judge(&self, mode: &Mode, recorder: Recorder, is_fixed: bool) -> Result<Judged> {
        let trace = self.folder.path().join(format!("{}.parquet", recorder.as_str().replace(' ', "-")));
        let mut command = Command::new(FIRST[0]);
        command.args(&FIRST[1..]).current_dir(self.folder.path());
        if let Some(home) = self.home.as_ref().filter(|_| recorder == Recorder::User) {
            command.args(home::AS_NOBODY);
            command.env("HOME", home.path()).env_remove("XDG_CACHE_HOME").env_remove("XDG_RUNTIME_DIR");
        }
        command.arg(&self.klock).args(["record", "--quiet", "-f", "-o"]).arg(&trace);
        command.args(recorder.options(&mode.options));
        command.arg("--").arg(&self.program).arg(&mode.name).args(is_fixed.then_some("fixed"));
        let ended = Running::start(&mut command)?.succeed_within(LIMIT)?;
        let wall = ended.stdout.lines().find_map(|line| line.strip_prefix("wall "));
        let wall_ns = wall.map(str::parse).transpose().context("known_causes printed no time")?;

        let mut why = Command::new(&self.analyzer);
        why.args(["why", "-n", "1", "--format", "json"]).arg(&trace);
        let ended = Running::start(&mut why)?.end_within(LIMIT)?;
        let (lock, verdicts) = match ended.status.code() {
            Some(0) => said(&serde_json::from_str(&ended.stdout).context("klock why wrote no JSON")?),
            // Nobody waited.
            Some(1) => (String::new(), Vec::new()),
            _ => bail!("klock why failed: {}", ended.stderr.trim()),
        };
        Ok(Judged { wall_ns, lock, verdicts })
    }
}

/// Returns the first lock and the verdicts that are said of it.
fn said(why: &Value) -> (String, Vec<String>) {
    let lock = &why["locks"][0];
    let findings = lock["findings"].as_array().map_or(&[][..], Vec::as_slice);
    let said = findings.iter().filter(|finding| finding["said"] == true);
    let verdicts = said.filter_map(|finding| Some(finding["verdict"].as_str()?.to_owned()));
    (lock["name"].as_str().unwrap_or_default().to_owned(), verdicts.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(verdict: &str) -> Mode {
        let [name, lock] = ["mode", "hot"].map(str::to_owned);
        Mode { name, verdict: verdict.to_owned(), lock, options: Vec::new() }
    }

    fn judged(lock: &str, verdicts: &[&str]) -> Judged {
        let verdicts = verdicts.iter().map(|&verdict| verdict.to_owned()).collect();
        Judged { wall_ns: None, lock: lock.to_owned(), verdicts }
    }

    #[test]
    fn a_verdict_comes_first_nine_times_out_of_ten_on_its_lock_and_is_gone_when_fixed() {
        let nested = mode("nested");
        let found = |wrong: Vec<Judged>| {
            let right = (wrong.len()..10).map(|_| judged("#0 hot (pthread_mutex)", &["nested", "hog"]));
            right.chain(wrong).collect::<Vec<_>>()
        };
        let fixed = [judged("#0 hot (pthread_mutex)", &["hog"])];
        let other = || judged("#1 hotter (pthread_mutex)", &["nested"]);
        assert!(is_right(&nested, &found(vec![other()]), &fixed));
        assert!(!is_right(&nested, &found(vec![other(), other()]), &fixed));
        assert!(!is_right(&nested, &found(vec![]), &found(vec![])));
        assert_eq!(firsts(&found(vec![other()]), "hot"), "nested 9, nested of #1 hotter (pthread_mutex) 1");
    }

    #[test]
    fn a_quiet_mode_has_no_other_verdict() {
        let quiet = mode("quiet");
        let [none, good, bad] = [&[][..], &["quiet"], &["handoff"]].map(|said| [judged("", said)]);
        assert!(is_right(&quiet, &good, &none));
        assert!(!is_right(&quiet, &good, &bad) && !is_right(&quiet, &bad, &good));
    }
}
