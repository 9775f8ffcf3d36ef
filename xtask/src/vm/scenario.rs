//! A scenario of the matrix: a script that runs in an empty directory of the guest, and a check, on the host,
//! of the files that it leaves there; and helpers that scenarios share.

use std::{
    fmt::Display,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::packages::Kernel;

/// The circumstances of a scenario.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// The kernel of the matrix; `None` is the machine's own.
    pub(super) kernel: Option<Kernel>,
    pub(super) soak_minutes: f64,
    /// Whether everything takes the shortest useful time.
    pub(super) short: bool,
    /// klock on the host.
    pub(super) klock: PathBuf,
}

impl Setting {
    /// Returns whether the kernel has the contention tracepoints.
    pub(super) fn contention(&self) -> bool {
        self.kernel.is_none_or(|kernel| kernel.contention)
    }
}

/// The machines on which a scenario runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The guests, and the machine itself.
    Everywhere,
    /// The guests: it would disturb the machine.
    Guests,
}

pub(super) struct Scenario {
    /// Its name, which its directory has, too.
    pub(super) name: &'static str,
    pub(super) place: Place,
    pub(super) seconds: fn(&Setting) -> u32,
    pub(super) script: fn(&Setting) -> String,
    pub(super) check: fn(&Files, &Setting, &mut Finding) -> Result<()>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Finding {
    /// Figures for the tables: the table, the column and the text.
    pub(super) figures: Vec<(&'static str, &'static str, String)>,
    pub(super) faults: Vec<String>,
}

impl Finding {
    pub(super) fn figure(&mut self, part: &'static str, column: &'static str, value: impl Into<String>) {
        self.figures.push((part, column, value.into()));
    }

    /// Adds a fault unless the condition holds.
    pub(super) fn must(&mut self, holds: bool, fault: impl FnOnce() -> String) {
        if !holds {
            self.faults.push(fault());
        }
    }
}

/// The files that a script left.
#[derive(Debug)]
pub(super) struct Files {
    directory: PathBuf,
}

impl Files {
    pub(super) fn of(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Returns the files of a folder.
    pub(super) fn folder(&self, name: &str) -> Self {
        Self::of(&self.path(name))
    }

    /// Returns the text of a file; empty if it is missing.
    pub(super) fn text(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.path(name)).unwrap_or_default()).into_owned()
    }

    /// Returns the exit status that a script wrote into a file.
    pub(super) fn status(&self, name: &str) -> Result<i32> {
        let text = self.text(name);
        text.trim()
            .parse()
            .with_context(|| format!("no exit status in {}: '{}'", self.path(name).display(), text.trim()))
    }

    /// Checks that klock ended with 0, as the file `NAME.status` says. A fault has the last line of the file
    /// `NAME`.
    pub(super) fn succeeded(&self, name: &str, finding: &mut Finding) -> Result<bool> {
        let status = self.status(&format!("{name}.status"))?;
        finding.must(status == 0, || format!("{name} ended with {status}: {}", last_line(&self.text(name))));
        Ok(status == 0)
    }

    /// Returns the last lines of the script's log.
    pub(super) fn log_end(&self) -> String {
        let log = self.text("log");
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(4)..].join(" | ")
    }
}

/// The last line that is not empty.
pub(super) fn last_line(text: &str) -> &str {
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("(nothing)")
}

/// Returns a script for busybox' `sh`: functions, then these variables, then the body.
pub(super) fn script(variables: &[(&str, &dyn Display)], body: &str) -> String {
    let variables = variables.iter().map(|(name, value)| format!("{name}='{value}'\n"));
    format!("{}\n{}{body}", include_str!("guest/functions.sh"), variables.collect::<String>())
}

/// Formats a number with separators of thousands.
pub(super) fn thousands(number: u64) -> String {
    let rest = number % 1000;
    if number < 1000 { rest.to_string() } else { format!("{},{rest:03}", thousands(number / 1000)) }
}

/// Formats nanoseconds in a suitable unit.
pub(super) fn time(ns: f64) -> String {
    match ns.abs() {
        n if n < 1e3 => format!("{ns:.0} ns"),
        n if n < 1e6 => format!("{:.2} µs", ns / 1e3),
        n if n < 1e9 => format!("{:.2} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_for_readers() {
        assert_eq!([thousands(999), thousands(1000), thousands(1_234_567)], ["999", "1,000", "1,234,567"]);
        assert_eq!([time(999.0), time(1500.0), time(2.5e9)], ["999 ns", "1.50 µs", "2.50 s"]);
    }
}
