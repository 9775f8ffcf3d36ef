//! Boots a kernel in QEMU under software emulation, lets it run its scripts, and unpacks what it sends back. A guest that
//! hangs ends itself, or is ended when its time is up, and its console says how far it came.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use super::packages::unpacked;
use crate::process::Run;

/// What a guest gets on its command line besides what the scenario asks for. A kernel that hangs shows where each of its
/// CPUs is, and ends. It does not measure how long its delays take: an emulator that loses its processor meanwhile makes them
/// many times too long, and the guest as slow.
const COMMAND_LINE: &str = "console=ttyS0 loglevel=6 panic=-1 oops=panic softlockup_panic=1 \
                            softlockup_all_cpu_backtrace=1 nopvspin lpj=2500000";

/// How many lines of a console tell why a guest ended.
const CONSOLE_LINES: usize = 60;

/// The emulator.
#[derive(Debug)]
pub(super) struct Emulator {
    /// The program and where its firmware is.
    words: Vec<String>,
}

impl Emulator {
    /// That of the machine, unless it is too old; then a newer one, unpacked from Debian's backports.
    ///
    /// Before 8.1 QEMU may translate an instruction while another processor patches it, and keep the old one for ever
    /// (accel/tcg: "Always lock pages before translation"). A kernel patches its functions whenever a program is attached to
    /// one, and with such a QEMU its processors then hang in breakpoints that are no more, or it dies of one (6.1 and 6.12
    /// did, with 7.2).
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

/// A guest to be.
#[derive(Debug)]
pub(super) struct Guest<'a> {
    /// Where it runs.
    pub(super) emulator: &'a Emulator,
    /// The kernel's image.
    pub(super) image: &'a Path,
    /// The archive it boots into.
    pub(super) initramfs: &'a Path,
    /// More words for the kernel's command line.
    pub(super) words: &'a str,
    /// When it is ended.
    pub(super) minutes: u32,
}

impl Guest<'_> {
    /// Boots it. What it sent is below `directory`, one directory for each script.
    pub(super) fn run(&self, directory: &Path) -> Result<PathBuf> {
        let (console, sent) = (directory.join("console"), directory.join("sent.tar.gz"));
        let serial = |path: &Path| format!("file:{}", path.display());
        let words: Vec<&str> = self.emulator.words[1..].iter().map(String::as_str).collect();
        let run = Run::new(&self.emulator.words[0], &words);
        // A kernel that sees a hypervisor without help for spinlocks takes ones that nobody can watch.
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
            .arg(format!("{COMMAND_LINE} {}", self.words))
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
                last_words(&text)
            );
        }
        if !text.contains("klock-vm: done") {
            bail!("the guest ended early; its console: {}", last_words(&text));
        }
        let out = directory.join("out");
        fs::create_dir_all(&out)?;
        Run::new("tar", &["--extract", "--gzip", "--file"])
            .arg(&sent)
            .arg("--directory")
            .arg(&out)
            .must()
            .context("what the guest sent")?;
        fs::remove_file(&sent).ok();
        Ok(out)
    }
}

/// The lines of a console from where something went wrong, or the last ones.
fn last_words(console: &str) -> String {
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
    fn a_console_is_shown_from_where_it_went_wrong() {
        let text = last_words("a\n[1.0] BUG: soft lockup\nb\n");
        assert_eq!(text, "\n   [1.0] BUG: soft lockup\n   b");
    }
}
