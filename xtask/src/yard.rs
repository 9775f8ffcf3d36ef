//! The folder in which loads of `fixtures/loads` run: alone or recorded, as an ordinary user if this process is root. A load's
//! name goes in; its figure, processor time and trace come out.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    home,
    process::{Run, root},
};

/// The exit status of a load whose program is missing.
const MISSING: &str = "77";

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
    pub(crate) cpu_s: f64,
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
        let home = home::of_nobody()?.filter(|_| !as_root);
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
        self.bash(script, home::of_nobody()?.as_ref()).read()
    }

    /// Returns a run of bash, as the user of a home directory or as this one.
    fn bash(&self, script: &str, home: Option<&TempDir>) -> Run {
        let run = match home {
            Some(home) => {
                let [program, user @ ..] = home::AS_NOBODY;
                ["bash", "-c", script]
                    .iter()
                    .fold(Run::new(program, &user), Run::arg)
                    .env("HOME", home.path())
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

    /// Returns the report of a trace as JSON.
    pub(crate) fn report(&self, trace: &Path, options: &[&str]) -> Result<Value> {
        let run = Run::new(&self.analyzer, &["analyze", "report", "--format", "json"]);
        let text = options.iter().fold(run, Run::arg).arg(trace).read()?;
        Ok(serde_json::from_str(&text)?)
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.folder).ok();
    }
}

/// Formats the figure of a run with its unit.
pub(crate) fn figure(number: f64, unit: &str) -> String {
    if unit == "s" { format!("{number:.3} s") } else { format!("{number:.0} {unit}") }
}
