//! `cargo xtask vm`: boots the kernels of the matrix in an emulator, records in each with klock, and checks the
//! recordings. The machine's own kernel is one more row. Ends with a table of one row per kernel.
//!
//! [`packages`] downloads, [`initramfs`] makes the files of a guest, [`boot`] runs QEMU, [`scenarios`] lists the tests and
//! [`matrix`] makes the table. A guest boots once and runs all scenarios, the lockdown of its kernel last.

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
    matrix::Row,
    packages::{KERNELS, Kernel},
    scenario::{Files, Finding, Place, Scenario, Setting},
    scenarios::SCENARIOS,
};
use crate::{
    fixture, host,
    process::{Run, root, say, scratch, target},
    table,
};

mod boot;
mod initramfs;
mod matrix;
mod packages;
mod scenario;
mod scenarios;

/// Run the matrix of kernels.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Kernels to boot: 5.10, 6.1, 6.12, 7.2, native.
    kernels: Vec<String>,
    /// Only the scenarios whose names contain one of these words. Costs need a quiet machine and are measured only by
    /// `--only cost --at-once 1`. Alone, `cost`, `soak` and `off-cpu` have parts of their own in the document.
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
    /// Write the tables into docs/kernels.md.
    #[arg(long)]
    write: bool,
    /// Use this klock instead of building one.
    #[arg(long, value_name = "FILE")]
    klock: Option<PathBuf>,
}

/// The scenario that runs only if it is asked for.
const COST: &str = "cost";

/// The name of the machine's own kernel.
const NATIVE: &str = "native";

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
    let setting = |kernel: Option<Kernel>| Setting {
        kernel,
        soak_minutes: if options.short { 0.5 } else { options.minutes },
        short: options.short,
        klock: klock.clone(),
    };
    let selects = |name: &str| options.kernels.is_empty() || options.kernels.iter().any(|word| word == name);
    let chosen = |scenario: &&Scenario| {
        let asked_for = options.only.iter().any(|word| scenario.name.contains(word.as_str()));
        asked_for || options.only.is_empty() && scenario.name != COST
    };

    let kernels: Vec<Kernel> = KERNELS.iter().copied().filter(|kernel| selects(kernel.name)).collect();
    let mut rows =
        if kernels.is_empty() { Vec::new() } else { in_guests(options, &kernels, &setting, &chosen)? };
    if selects(NATIVE) && host::is_root() {
        rows.push((NATIVE, on_this_machine(&setting(None), &chosen)?));
    }
    let rows: Vec<Row> =
        rows.into_iter().map(|(kernel, finding)| Row { kernel: kernel.to_owned(), finding }).collect();
    conclude(options, &rows)
}

/// Boots the kernels, some at a time, and returns what was found in each, in the order of the matrix.
fn in_guests(
    options: &Options,
    kernels: &[Kernel],
    setting: &(impl Fn(Option<Kernel>) -> Setting + Sync),
    chosen: &(impl Fn(&&Scenario) -> bool + Sync),
) -> Result<Vec<(&'static str, Finding)>> {
    let emulator = Emulator::find()?;
    let initramfs = initramfs::build(&setting(None).klock)?;
    let rows = Mutex::new(Vec::new());
    let next = Mutex::new(kernels.iter());
    thread::scope(|scope| {
        for _ in 0..options.at_once.max(1) {
            scope.spawn(|| {
                loop {
                    let Some(kernel) = next.lock().unwrap_or_else(PoisonError::into_inner).next() else {
                        return;
                    };
                    let mut finding = Finding::default();
                    if let Err(error) = in_guest(
                        &setting(Some(*kernel)),
                        *kernel,
                        (&emulator, &initramfs),
                        chosen,
                        &mut finding,
                    ) {
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

/// Prints the table and the faults, and writes the table into the document with `--write`.
fn conclude(options: &Options, rows: &[Row]) -> Result<bool> {
    let alone = ["cost", "soak", "off-cpu"].into_iter().find(|name| options.only == [*name]);
    let how = match (options.short, alone) {
        (true, _) => "--short".to_owned(),
        (false, Some(COST)) => format!("--only {COST} --at-once {}", options.at_once),
        (false, Some("soak")) => format!("--only soak --minutes {}", options.minutes),
        (false, Some(name)) => format!("--only {name}"),
        (false, None) => format!("--minutes {}", options.minutes),
    };
    let text = format!(
        "`cargo xtask vm {how}`: QEMU without hardware virtualisation, 4 emulated processors on {}.\n{}",
        host::describe(),
        matrix::markdown(rows)
    );
    let part = alone.map_or_else(|| "vm".to_owned(), |name| format!("vm-{name}"));
    println!("\n{text}");
    if options.write {
        table::write_part(&root().join("docs/kernels.md"), &part, &text)?;
    }
    let mut faults = 0;
    for (row, fault) in rows.iter().flat_map(|row| row.finding.faults.iter().map(move |fault| (row, fault))) {
        println!("fault: {}: {fault}", row.kernel);
        faults += 1;
    }
    println!("{} kernels, {faults} faults", rows.len());
    Ok(faults == 0)
}

/// Boots a kernel and runs the scenarios.
fn in_guest(
    setting: &Setting,
    kernel: Kernel,
    (emulator, initramfs): (&Emulator, &Path),
    chosen: &impl Fn(&&Scenario) -> bool,
    finding: &mut Finding,
) -> Result<()> {
    let image = kernel.image()?;
    let scenarios: Vec<&Scenario> = SCENARIOS.iter().filter(chosen).collect();
    let directory = scratch(&format!("vm-{}", kernel.name))?;
    let scripts: Vec<_> = scenarios
        .iter()
        .map(|scenario| {
            // Beside other work a guest is several times slower than alone.
            (scenario.name.to_owned(), 2 * (scenario.seconds)(setting), (scenario.script)(setting))
        })
        .collect();
    let seconds: u32 = scripts.iter().map(|(_, seconds, _)| seconds).sum();
    let initramfs = initramfs::with_job(initramfs, &scripts, &directory)?;
    let guest = Guest { emulator, image: &image, initramfs: &initramfs, minutes: seconds / 60 + 5 };
    let (out, boots) = guest.run(&directory)?;
    let mut complaints = 0;
    for scenario in scenarios {
        let files = Files::of(&out.join(scenario.name));
        check(scenario, &files, setting, finding);
        let dmesg = files.text("dmesg");
        let found = matrix::complaints(&dmesg);
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

/// Checks the files of a scenario. A check that fails to run is a fault; the other scenarios are checked nevertheless.
fn check(scenario: &Scenario, files: &Files, setting: &Setting, finding: &mut Finding) {
    let mut own = Finding::default();
    if let Err(error) = (scenario.check)(files, setting, &mut own) {
        own.faults.push(format!("{error:#}; its script ended with {}", files.log_end()));
    }
    finding.figures.extend(own.figures);
    finding.faults.extend(own.faults.iter().map(|fault| format!("{}: {fault}", scenario.name)));
}

/// Runs the scenarios that do not disturb the machine on the machine itself.
fn on_this_machine(setting: &Setting, chosen: &impl Fn(&&Scenario) -> bool) -> Result<Finding> {
    let mut finding = Finding::default();
    let programs = scratch("vm-native-bin")?;
    for program in initramfs::PROGRAMS {
        fixture::build(program, &programs, &["-static"])?;
    }
    std::os::unix::fs::symlink(initramfs::tool_of_libbpf("offcputime")?, programs.join("offcputime"))?;
    std::os::unix::fs::symlink(&setting.klock, programs.join("klock"))?;
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    for scenario in SCENARIOS.iter().filter(chosen).filter(|scenario| scenario.place == Place::Everywhere) {
        let directory = scratch(&format!("vm-native-{}", scenario.name))?;
        let script = directory.join("script");
        fs::write(&script, (scenario.script)(setting)).with_context(|| script.display().to_string())?;
        let words = "cd \"$1\" && exec timeout \"$2\" sh -x ./script > log 2>&1";
        let outcome = Run::new("sh", &["-c", words, "sh"])
            .arg(&directory)
            .arg((scenario.seconds)(setting).to_string())
            .env("PATH", &path)
            .env("WORK", "/dev/shm")
            .stream()?;
        if outcome.timed_out {
            finding.faults.push(format!("{}: did not end in time", scenario.name));
        }
        check(scenario, &Files::of(&directory), setting, &mut finding);
    }
    Ok(finding)
}
