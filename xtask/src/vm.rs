//! `cargo xtask vm`: boots the kernels of the matrix in an emulator, records in each with klock, and checks
//! the recordings. The machine's own kernel is one more row. Ends with a table for each subject, with a row
//! for each kernel.
//!
//! [`packages`] downloads, [`initramfs`] makes the files of a guest, [`boot`] runs QEMU, and [`scenarios`]
//! has the tests. A guest boots once and runs all scenarios, the lockdown of its kernel last.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use self::{
    boot::{Emulator, Guest},
    packages::{KERNELS, Kernel},
    scenario::{Files, Finding, Place, Scenario, Setting},
    scenarios::{contended, counts, facts, klockstat, off_cpu, refusals, soak},
};
use crate::{
    fixture, host,
    process::{Run, say, scratch, target},
    table,
};

mod boot;
mod initramfs;
mod packages;
mod scenario;
/// The scenarios, one file for each subject.
mod scenarios {
    pub(super) mod contended;
    pub(super) mod counts;
    pub(super) mod facts;
    pub(super) mod klockstat;
    pub(super) mod off_cpu;
    pub(super) mod refusals;
    pub(super) mod soak;
}

/// All scenarios, in order. Lockdown is last, because a kernel keeps it until it is shut down.
const SCENARIOS: [Scenario; 9] = [
    facts::SCENARIO,
    contended::SCENARIO,
    counts::FENTRY,
    counts::KPROBE,
    klockstat::SCENARIO,
    off_cpu::SCENARIO,
    refusals::SCENARIO,
    soak::SCENARIO,
    refusals::LOCKED_DOWN,
];

/// Run the matrix of kernels.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Kernels to boot: 5.10, 6.1, 6.12, 7.2, native.
    kernels: Vec<String>,
    /// Only the scenarios whose names contain one of these words.
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    only: Vec<String>,
    /// Minutes of contention in the soak.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// The shortest useful time for each scenario; half a minute of soak.
    #[arg(long)]
    short: bool,
    /// Number of guests at a time, of four processors each.
    #[arg(long, default_value_t = 2)]
    at_once: usize,
    /// Use this klock instead of a release build.
    #[arg(long, value_name = "FILE")]
    klock: Option<PathBuf>,
}

impl Options {
    /// Returns the selected scenarios.
    fn scenarios(&self) -> impl Iterator<Item = &'static Scenario> {
        let selects = |name: &str| self.only.is_empty() || self.only.iter().any(|word| name.contains(word));
        SCENARIOS.iter().filter(move |scenario| selects(scenario.name))
    }

    /// Returns the setting of a kernel; `None` is the machine's own.
    fn setting(&self, kernel: Option<Kernel>, klock: &Path) -> Setting {
        let soak_minutes = if self.short { 0.5 } else { self.minutes };
        Setting { kernel, soak_minutes, short: self.short, klock: klock.to_owned() }
    }
}

/// The name of the machine's own kernel.
const NATIVE: &str = "native";

/// The name of a kernel, and what was found in it.
type Row = (&'static str, Finding);

/// Boots, records and checks. Returns whether nothing was wrong.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if let Some(program) = initramfs::missing_program() {
        say(&format!("skipped: needs {program}"));
        return Ok(true);
    }
    let known = |name: &String| name == NATIVE || KERNELS.iter().any(|kernel| kernel.name == *name);
    if let Some(unknown) = options.kernels.iter().find(|name| !known(name)) {
        bail!("invalid kernel '{unknown}': use 5.10, 6.1, 6.12, 7.2 or native");
    }
    let klock = match &options.klock {
        Some(path) => fs::canonicalize(path).with_context(|| path.display().to_string())?,
        None => {
            Run::cargo(&["build", "--release", "-p", "klock"]).must()?;
            target().join("release/klock")
        }
    };
    let selects = |name: &str| options.kernels.is_empty() || options.kernels.iter().any(|word| word == name);
    let kernels: Vec<Kernel> = KERNELS.iter().copied().filter(|kernel| selects(kernel.name)).collect();
    let mut rows = if kernels.is_empty() { Vec::new() } else { in_guests(options, &kernels, &klock)? };
    if selects(NATIVE) && host::is_root() {
        rows.push((NATIVE, on_this_machine(options, &klock)?));
    }
    println!("{}", markdown(&rows));
    let faults: Vec<String> = rows
        .iter()
        .flat_map(|(kernel, finding)| finding.faults.iter().map(move |fault| format!("{kernel}: {fault}")))
        .collect();
    faults.iter().for_each(|fault| println!("fault: {fault}"));
    println!("{} kernels, {} faults", rows.len(), faults.len());
    Ok(faults.is_empty())
}

/// Boots the kernels, some at a time, and returns what was found in each, in the order of the matrix.
fn in_guests(options: &Options, kernels: &[Kernel], klock: &Path) -> Result<Vec<Row>> {
    let emulator = Emulator::find()?;
    let initramfs = initramfs::build(klock)?;
    let rows = Mutex::new(Vec::new());
    let next = Mutex::new(kernels.iter());
    thread::scope(|scope| {
        for _ in 0..options.at_once.max(1) {
            scope.spawn(|| {
                loop {
                    let Some(kernel) = next.lock().unwrap_or_else(PoisonError::into_inner).next() else {
                        return;
                    };
                    let setting = options.setting(Some(*kernel), klock);
                    let mut finding = Finding::default();
                    if let Err(error) =
                        in_guest(options, &setting, *kernel, (&emulator, &initramfs), &mut finding)
                    {
                        finding.faults.push(format!("{error:#}"));
                    }
                    rows.lock().unwrap_or_else(PoisonError::into_inner).push((kernel.name, finding));
                }
            });
        }
    });
    let mut rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    rows.sort_by_key(|(name, _)| KERNELS.iter().position(|kernel| kernel.name == *name));
    Ok(rows)
}

/// Boots a kernel and runs the scenarios.
fn in_guest(
    options: &Options,
    setting: &Setting,
    kernel: Kernel,
    (emulator, initramfs): (&Emulator, &Path),
    finding: &mut Finding,
) -> Result<()> {
    let image = kernel.image()?;
    let directory = scratch(&format!("vm-{}", kernel.name))?;
    // Beside other work a guest is several times slower than alone.
    let script = |of: &Scenario| (of.name, 2 * (of.seconds)(setting), (of.script)(setting));
    let scripts: Vec<_> = options.scenarios().map(script).collect();
    let seconds: u32 = scripts.iter().map(|(_, seconds, _)| seconds).sum();
    let initramfs = initramfs::with_job(initramfs, &scripts, &directory)?;
    let guest = Guest { emulator, image: &image, initramfs: &initramfs, minutes: seconds / 60 + 5 };
    let (out, boots) = guest.run(&directory)?;
    let mut complaints = 0;
    for scenario in options.scenarios() {
        let files = Files::of(&out.join(scenario.name));
        check(scenario, &files, setting, finding);
        let dmesg = files.text("dmesg");
        let found = boot::complaints(&dmesg);
        // The log grows from scenario to scenario.
        for line in found.iter().skip(complaints) {
            finding.faults.push(format!("{}: the kernel reports: {line}", scenario.name));
        }
        complaints = found.len().max(complaints);
    }
    finding.figure("facts", "complaints of the kernel", complaints.to_string());
    finding.figure("facts", "boots", boots.to_string());
    Ok(())
}

/// Checks the files of a scenario. A check that fails to run is a fault; the other scenarios are checked
/// nevertheless.
fn check(scenario: &Scenario, files: &Files, setting: &Setting, finding: &mut Finding) {
    let mut own = Finding::default();
    if let Err(error) = (scenario.check)(files, setting, &mut own) {
        own.faults.push(format!("{error:#}; its script ended with {}", files.log_end()));
    }
    finding.figures.extend(own.figures);
    finding.faults.extend(own.faults.iter().map(|fault| format!("{}: {fault}", scenario.name)));
}

/// Runs the scenarios that do not disturb the machine on the machine itself.
fn on_this_machine(options: &Options, klock: &Path) -> Result<Finding> {
    let setting = options.setting(None, klock);
    let mut finding = Finding::default();
    let programs = scratch("vm-native-bin")?;
    for program in initramfs::PROGRAMS {
        fixture::build(program, &programs, &["-static"])?;
    }
    std::os::unix::fs::symlink(initramfs::tool_of_libbpf("offcputime")?, programs.join("offcputime"))?;
    std::os::unix::fs::symlink(klock, programs.join("klock"))?;
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    for scenario in options.scenarios().filter(|scenario| scenario.place == Place::Everywhere) {
        let directory = scratch(&format!("vm-native-{}", scenario.name))?;
        let script = directory.join("script");
        fs::write(&script, (scenario.script)(&setting)).with_context(|| script.display().to_string())?;
        let words = "cd \"$1\" && exec timeout \"$2\" sh -x ./script > log 2>&1";
        let outcome = Run::new("sh", &["-c", words, "sh"])
            .arg(&directory)
            .arg((scenario.seconds)(&setting).to_string())
            .env("PATH", &path)
            .env("WORK", "/dev/shm")
            .stream()?;
        if outcome.timed_out {
            finding.faults.push(format!("{}: did not end in time", scenario.name));
        }
        check(scenario, &Files::of(&directory), &setting, &mut finding);
    }
    Ok(finding)
}

/// Returns a table for each subject, with a row for each kernel and a column for each figure, in the order of
/// discovery.
fn markdown(rows: &[Row]) -> String {
    let figures = || rows.iter().flat_map(|(_, finding)| &finding.figures);
    let unique = |names: &mut dyn Iterator<Item = &'static str>| {
        names.fold(Vec::new(), |mut all: Vec<&str>, name| {
            if !all.contains(&name) {
                all.push(name);
            }
            all
        })
    };
    let mut text = String::new();
    for part in unique(&mut figures().map(|(part, ..)| *part)) {
        let columns = unique(&mut figures().filter(|(of, ..)| *of == part).map(|(_, column, _)| *column));
        let cells = |(kernel, finding): &Row| {
            let value = |column: &&str| {
                let found = finding.figures.iter().find(|(of, name, _)| *of == part && name == column);
                found.map_or_else(String::new, |(.., value)| value.replace('|', "\\|").replace('\n', " "))
            };
            let values: Vec<String> = columns.iter().map(value).collect();
            let is_there = values.iter().any(|value| !value.is_empty());
            is_there.then(|| [vec![(*kernel).to_owned()], values].concat())
        };
        let rows: Vec<Vec<String>> = rows.iter().filter_map(cells).collect();
        let head = [&["kernel"], columns.as_slice()].concat();
        text += &format!("\n### {part}\n\n{}", table::markdown(&head, &rows));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_subject_is_a_table_of_its_own() {
        let mut new = Finding::default();
        new.figure("facts", "release", "6.1");
        new.figure("soak", "events", "7");
        let mut old = Finding::default();
        old.figure("facts", "release", "5.10");
        let text = markdown(&[("old", old), ("new", new)]);
        assert!(text.contains("### facts\n\n| kernel | release |"), "{text}");
        assert!(text.contains("| new    |      7 |"), "{text}");
        assert_eq!(text.matches("| old").count(), 1, "{text}");
    }
}
