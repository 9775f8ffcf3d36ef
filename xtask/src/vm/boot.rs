//! Boots a kernel in QEMU under software emulation, which runs its scripts, and unpacks the files that it sends. A guest
//! that hangs is ended by its own kernel or when its time is up; the error has the end of its console.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use super::packages::unpacked;
use crate::process::Run;

/// The kernel's command line. A kernel that hangs prints the stack of each CPU and ends. `lpj` replaces the calibration of
/// delays: an emulator that is preempted meanwhile would make them many times too long. `no_timer_check` leaves out the check that
/// the timer interrupts in time, which such an emulator fails.
const COMMAND_LINE: &str = "console=ttyS0 loglevel=6 panic=-1 oops=panic softlockup_panic=1 \
                            softlockup_all_cpu_backtrace=1 nopvspin lpj=2500000 no_timer_check";

/// Number of lines of a console in an error.
const CONSOLE_LINES: usize = 60;

/// The emulator.
#[derive(Debug)]
pub(super) struct Emulator {
    /// The program and the options for its firmware.
    words: Vec<String>,
}

impl Emulator {
    /// Returns the machine's emulator or, if that is too old, one unpacked from Debian's backports.
    ///
    /// QEMU before 8.1 may translate an instruction while another processor patches it, and keep the old one (accel/tcg:
    /// "Always lock pages before translation"). A kernel patches a function whenever a program is attached to it; with
    /// such a QEMU its processors hang in breakpoints that no longer exist, or it crashes in one (6.1 and 6.12 with 7.2).
    pub(super) fn find() -> Result<Self> {
        const PROGRAM: &str = "qemu-system-x86_64";
        let said = Run::new(PROGRAM, &["--version"]).read()?;
        if version(&said).is_some_and(|version| version >= (8, 1)) {
            return Ok(Self { words: vec![PROGRAM.to_owned()] });
        }
        let path = |package: &str, path: &str| -> Result<String> {
            Ok(unpacked("bookworm-backports", package)?.join(path).display().to_string())
        };
        Ok(Self {
            words: vec![
                path("qemu-system-x86", "usr/bin/qemu-system-x86_64")?,
                "-L".to_owned(),
                path("qemu-system-data", "usr/share/qemu")?,
                "-L".to_owned(),
                path("seabios", "usr/share/seabios")?,
            ],
        })
    }
}

/// `QEMU emulator version 7.2.22 (Debian ...)`
fn version(said: &str) -> Option<(u32, u32)> {
    let mut numbers = said.split_whitespace().nth(3)?.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// A guest to boot.
#[derive(Debug)]
pub(super) struct Guest<'a> {
    /// The emulator.
    pub(super) emulator: &'a Emulator,
    /// The kernel's image.
    pub(super) image: &'a Path,
    /// Its initial file system.
    pub(super) initramfs: &'a Path,
    /// Time limit.
    pub(super) minutes: u32,
}

impl Guest<'_> {
    /// Boots it. Returns the directory below `directory` that has a directory of files for each script.
    pub(super) fn run(&self, directory: &Path) -> Result<PathBuf> {
        let (console, sent) = (directory.join("console"), directory.join("sent.tar.gz"));
        let serial = |path: &Path| format!("file:{}", path.display());
        let words: Vec<&str> = self.emulator.words[1..].iter().map(String::as_str).collect();
        let run = Run::new(&self.emulator.words[0], &words);
        // A kernel that sees a hypervisor without paravirtual spinlocks uses spinlocks that cannot be traced.
        let run = ["-accel", "tcg,thread=multi", "-cpu", "max,hypervisor=off", "-smp", "4", "-m", "1536"]
            .into_iter()
            .chain(["-nodefaults", "-display", "none", "-no-reboot"])
            .fold(run, Run::arg);
        let outcome = run
            .arg("-kernel")
            .arg(self.image)
            .arg("-initrd")
            .arg(self.initramfs)
            .arg("-append")
            .arg(COMMAND_LINE)
            .arg("-serial")
            .arg(serial(&console))
            .arg("-serial")
            .arg(serial(&sent))
            .minutes(self.minutes)
            .stream()?;
        fs::remove_file(self.initramfs).ok();
        let text = String::from_utf8_lossy(&fs::read(&console).unwrap_or_default()).into_owned();
        if outcome.timed_out {
            bail!(
                "the guest did not end within {} minutes; its console: {}",
                self.minutes,
                console_end(&text)
            );
        }
        if !text.contains("klock-vm: done") {
            bail!("the guest ended early; its console: {}", console_end(&text));
        }
        let out = directory.join("out");
        fs::create_dir_all(&out)?;
        Run::new("tar", &["--extract", "--gzip", "--file"])
            .arg(&sent)
            .arg("--directory")
            .arg(&out)
            .must()
            .context("cannot unpack the files of the guest")?;
        fs::remove_file(&sent).ok();
        Ok(out)
    }
}

/// Returns the lines of a console from the first error on, or the last lines.
fn console_end(console: &str) -> String {
    let lines: Vec<&str> = console.lines().collect();
    let wrong = |line: &&str| ["BUG: ", "Oops: ", "Kernel panic"].iter().any(|word| line.contains(word));
    let from = lines.iter().position(wrong).unwrap_or(lines.len().saturating_sub(12));
    lines[from..].iter().take(CONSOLE_LINES).map(|line| format!("\n   {line}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_the_emulator_is_read() {
        assert_eq!(version("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg)\nCopyright"), Some((7, 2)));
        assert!(version("QEMU emulator version 10.0.2 (Debian)") >= Some((8, 1)));
    }

    #[test]
    fn a_console_is_shown_from_its_first_error() {
        let text = console_end("a\n[1.0] BUG: soft lockup\nb\n");
        assert_eq!(text, "\n   [1.0] BUG: soft lockup\n   b");
    }
}
