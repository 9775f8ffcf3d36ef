//! What is tried in each kernel, and what must come out of it: one file for each subject. A scenario is a script that runs in
//! an empty directory of the guest, and a check on the host of the files that it left there.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::packages::Kernel;

mod contended;
mod cost;
mod counts;
mod facts;
mod klockstat;
mod off_cpu;
mod refusals;
mod soak;

/// Where a scenario is tried, and how long.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// The kernel of the matrix, unless it is the machine's own.
    pub(super) kernel: Option<Kernel>,
    /// Minutes of the soak.
    pub(super) soak_minutes: f64,
    /// Everything as short as it is still worth something.
    pub(super) short: bool,
    /// klock for the host.
    pub(super) klock: PathBuf,
}

impl Setting {
    /// Whether the kernel has the contention tracepoints.
    pub(super) fn contention(&self) -> bool {
        self.kernel.is_none_or(|kernel| kernel.contention)
    }
}

/// In which boots a scenario runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The guests, and the machine itself.
    Everywhere,
    /// The guests: it would disturb others on the machine.
    Guests,
    /// A guest whose kernel was told to lock down confidentiality.
    LockedDown,
}

/// A scenario.
pub(super) struct Scenario {
    /// Its name, and that of its directory.
    pub(super) name: &'static str,
    /// Where it runs.
    pub(super) place: Place,
    /// When its script is ended.
    pub(super) seconds: fn(&Setting) -> u32,
    /// What runs in the guest, `sh` of busybox. `$WORK` is a tmpfs.
    pub(super) script: fn(&Setting) -> String,
    /// What must come out of it.
    pub(super) check: fn(&Files, &Setting, &mut Finding) -> Result<()>,
}

/// In this order.
pub(super) const SCENARIOS: &[Scenario] = &[
    facts::SCENARIO,
    contended::SCENARIO,
    counts::FENTRY,
    counts::KPROBE,
    klockstat::SCENARIO,
    off_cpu::SCENARIO,
    cost::SCENARIO,
    refusals::SCENARIO,
    soak::SCENARIO,
    refusals::LOCKED_DOWN,
];

/// What a check found.
#[derive(Clone, Debug, Default)]
pub(super) struct Finding {
    /// For the table: which of its parts, which column, and what stands there.
    pub(super) figures: Vec<(&'static str, &'static str, String)>,
    /// What is not as it must be.
    pub(super) faults: Vec<String>,
}

impl Finding {
    /// Puts a figure into a column of one part of the table.
    pub(super) fn figure(&mut self, part: &'static str, column: &'static str, value: impl Into<String>) {
        self.figures.push((part, column, value.into()));
    }

    /// Adds a fault unless it holds.
    pub(super) fn must(&mut self, holds: bool, fault: impl FnOnce() -> String) {
        if !holds {
            self.faults.push(fault());
        }
    }
}

/// What a script left.
#[derive(Debug)]
pub(super) struct Files {
    directory: PathBuf,
}

impl Files {
    /// Those in a directory.
    pub(super) fn of(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// Where a file is.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A text file; empty if it is not there.
    pub(super) fn text(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.path(name)).unwrap_or_default()).into_owned()
    }

    /// The exit status that a script wrote into a file.
    pub(super) fn status(&self, name: &str) -> Result<i32> {
        let text = self.text(name);
        text.trim()
            .parse()
            .with_context(|| format!("no exit status in {}: '{}'", self.path(name).display(), text.trim()))
    }

    /// The last lines of what the script did.
    pub(super) fn log_end(&self) -> String {
        let log = self.text("log");
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(4)..].join(" | ")
    }
}

/// The middle one of some numbers.
pub(super) fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied()
}

/// A number with its thousands apart.
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Nanoseconds for people.
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
    fn numbers_are_written_for_people() {
        assert_eq!([thousands(999), thousands(1000), thousands(1_234_567)], ["999", "1,000", "1,234,567"]);
        assert_eq!([time(999.0), time(1500.0), time(2.5e9)], ["999 ns", "1.50 µs", "2.50 s"]);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
    }
}
