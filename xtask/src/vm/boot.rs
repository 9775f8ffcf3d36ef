//! Boots a kernel in QEMU under software emulation, which runs its scripts, and unpacks the files that it
//! sends. A guest that hangs is ended by its own kernel or when its time is up; the error has the end of its
//! console. If its kernel hung outside of BPF programs, it is booted once more: an emulated processor may
//! stop answering interrupts. So is a guest whose emulator crashed, whatever ran in it.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::packages::unpacked;
use crate::process::{Run, say};

/// The kernel's command line. A kernel that hangs prints the stack of each CPU and ends. Emulated processors
/// that share two real ones with other work are some hundred times slower than those for which the kernel's
/// limits were chosen: a processor hangs if it does not answer for two minutes (twice `watchdog_thresh`), not
/// 20 s, and so does one that RCU waits for. `lpj` replaces the calibration of delays: an emulator that is
/// preempted during it would make delays many times too long. `no_timer_check` leaves out the check that the
/// timer interrupts in time, which such an emulator fails. `tsc=reliable` keeps the time-stamp counter, which
/// the emulator passes on, although a processor that is late to read it makes it look unstable: another clock
/// is several times as slow to read, and the change to it patches code that all processors run at every tick
/// (7.2 stopped at a breakpoint there).
const COMMAND_LINE: &str = "console=ttyS0 loglevel=6 panic=-1 oops=panic softlockup_panic=1 \
                            softlockup_all_cpu_backtrace=1 watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=120 \
                            nopvspin lpj=2500000 no_timer_check tsc=reliable";

/// Number of lines of a console in an error: the stacks of four processors.
const CONSOLE_LINES: usize = 160;

/// Number of boots of a guest whose kernel hangs outside of BPF programs, or whose emulator crashes.
const BOOTS: u32 = 2;

/// Size of the disk to which a guest writes its files. The file behind it is sparse.
const DISK_BYTES: u64 = 1 << 30;

#[derive(Debug)]
pub(super) struct Emulator {
    /// The program and the options for its firmware.
    words: Vec<String>,
}

impl Emulator {
    /// Returns the machine's emulator or, if that is too old, one unpacked from Debian's backports.
    ///
    /// QEMU before 8.1 may translate an instruction while another processor patches it, and keep the old one
    /// (accel/tcg: "Always lock pages before translation"). A kernel patches a function whenever a program is
    /// attached to it; with such a QEMU its processors hang in breakpoints that no longer exist, or it
    /// crashes in one (6.1 and 6.12 with 7.2).
    pub(super) fn find() -> Result<Self> {
        const PROGRAM: &str = "qemu-system-x86_64";
        let said = Run::new(PROGRAM, &["--version"]).read()?;
        if version(&said).is_some_and(|version| version >= (8, 1)) {
            return Ok(Self { words: vec![PROGRAM.to_owned()] });
        }
        let path = |package: &str, path: &str| -> Result<String> {
            Ok(unpacked("bookworm-backports", package)?.join(path).display().to_string())
        };
        let program = path("qemu-system-x86", "usr/bin/qemu-system-x86_64")?;
        let (data, bios) =
            (path("qemu-system-data", "usr/share/qemu")?, path("seabios", "usr/share/seabios")?);
        Ok(Self { words: vec![program, "-L".to_owned(), data, "-L".to_owned(), bios] })
    }
}

/// `QEMU emulator version 7.2.22 (Debian ...)`
fn version(said: &str) -> Option<(u32, u32)> {
    let mut numbers = said.split_whitespace().nth(3)?.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The emulator crashed, or reset its guest. With the end of the guest's console.
#[derive(Debug, thiserror::Error)]
#[error("the emulator crashed or reset the guest: {0}")]
struct Crashed(String);

#[derive(Debug)]
pub(super) struct Guest<'a> {
    pub(super) emulator: &'a Emulator,
    pub(super) image: &'a Path,
    pub(super) initramfs: &'a Path,
    pub(super) minutes: u32,
}

impl Guest<'_> {
    /// Boots it, and boots it once more if its kernel hung outside of BPF programs or its emulator crashed.
    /// Returns the directory with a directory of files for each script, and the number of boots.
    pub(super) fn run(&self, directory: &Path) -> Result<(PathBuf, u32)> {
        let mut boots = 1;
        loop {
            let console = directory.join(format!("console.{boots}"));
            match self.boot(directory, &console) {
                Err(error)
                    if boots < BOOTS && (error.is::<Crashed>() || hangs_outside_bpf(&text_of(&console))) =>
                {
                    say(&format!("booting again: {error:#}"));
                    boots += 1;
                }
                ended => {
                    fs::remove_file(self.initramfs).ok();
                    return Ok((ended?, boots));
                }
            }
        }
    }

    fn boot(&self, directory: &Path, console: &Path) -> Result<PathBuf> {
        let sent = directory.join("sent.tar");
        let disk = fs::File::create(&sent).with_context(|| sent.display().to_string())?;
        disk.set_len(DISK_BYTES).with_context(|| sent.display().to_string())?;
        let (program, options) = self.emulator.words.split_first().context("the emulator has a name")?;
        // A kernel that sees a hypervisor without paravirtual spinlocks uses spinlocks that cannot be traced.
        let machine = "-accel tcg,thread=multi -cpu max,hypervisor=off -m 1536 -smp 4 -nodefaults -display none \
                       -no-reboot -device nvme,drive=sent,serial=sent";
        let outcome = Run::new(program, &[])
            .args(options)
            .args(machine.split_whitespace())
            .arg("-kernel")
            .arg(self.image)
            .arg("-initrd")
            .arg(self.initramfs)
            .arg("-append")
            .arg(command_line())
            .arg("-serial")
            .arg(format!("file:{}", console.display()))
            .arg("-drive")
            .arg(format!("if=none,id=sent,format=raw,file={}", sent.display()))
            .minutes(self.minutes)
            .stream()?;
        let text = text_of(console);
        if outcome.timed_out {
            bail!("the guest did not end within {} minutes: {}", self.minutes, console_end(&text));
        }
        let is_done = text.contains("klock-vm: done");
        // The emulator ends with success however its guest ends. A guest that ends without an error on its
        // console was reset, by an instruction that was translated wrongly: no BPF program can do that.
        if !is_done && (!outcome.ok || !has_error(&text)) {
            return Err(Crashed(console_end(&text)).into());
        }
        if !is_done {
            bail!("the guest ended early: {}", console_end(&text));
        }
        let out = directory.join("out");
        fs::create_dir_all(&out)?;
        Run::new("tar", &["--extract", "--file"])
            .arg(&sent)
            .arg("--directory")
            .arg(&out)
            .must()
            .context("cannot unpack the files of the guest")?;
        fs::remove_file(&sent).ok();
        Ok(out)
    }
}

/// Returns the kernel's command line, with the frequency of the time-stamp counter where the emulator passes
/// on this machine's counter. Beside other work kernels before 6.12 cannot measure it, and take another
/// clock. They correct it once they run.
fn command_line() -> String {
    tsc_khz().map_or_else(|| COMMAND_LINE.to_owned(), |khz| format!("{COMMAND_LINE} tsc_early_khz={khz}"))
}

/// Measures the frequency of this machine's time-stamp counter.
#[cfg(target_arch = "x86_64")]
fn tsc_khz() -> Option<u128> {
    /// Cycles between two readings of the counter with one of the clock between them, if nothing interrupts
    /// them.
    const MAX_CYCLES: u64 = 20_000;
    // SAFETY: every x86-64 processor has the instruction.
    let counter = || unsafe { std::arch::x86_64::_rdtsc() };
    let both = || {
        (0..1000).find_map(|_| {
            let (before, now, after) = (counter(), Instant::now(), counter());
            (after.wrapping_sub(before) < MAX_CYCLES).then_some((now, after))
        })
    };
    let (begin, first) = both()?;
    thread::sleep(Duration::from_millis(100));
    let (end, last) = both()?;
    Some(u128::from(last.wrapping_sub(first)) * 1_000_000 / (end - begin).as_nanos())
}

/// The counter of an emulated processor is not this machine's.
#[cfg(not(target_arch = "x86_64"))]
fn tsc_khz() -> Option<u128> {
    None
}

fn text_of(console: &Path) -> String {
    String::from_utf8_lossy(&fs::read(console).unwrap_or_default()).into_owned()
}

/// Returns whether a kernel waited in vain for a processor (a soft lockup), and no processor was in a BPF
/// program, in the code that calls one, or in BPF's memory functions. Then klock's own programs cannot be the
/// cause. The kernel panics after it has printed the stacks of all processors that answer an interrupt that
/// cannot be masked; no program stops one of those.
fn hangs_outside_bpf(console: &str) -> bool {
    const OF_BPF: [&str; 4] = [" bpf_prog_", "ringbuf_", "htab_", "pcpu_freelist_"];
    let Some(at) = console.find("BUG: soft lockup") else { return false };
    let stacks = &console[at..];
    // The code that calls a program has a name with a number, unlike functions of the kernel.
    let mut calls = stacks.split("bpf_trampoline_").skip(1);
    let is_bpf = calls.any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        || OF_BPF.iter().any(|name| stacks.contains(name));
    !is_bpf && stacks.contains("Kernel panic - not syncing: softlockup")
}

/// Returns whether a console has an error of the kernel.
fn has_error(console: &str) -> bool {
    ["BUG: ", "Oops: ", "Kernel panic"].iter().any(|word| console.contains(word))
}

/// Returns the lines of a kernel's log that report an error of the kernel, whatever caused it.
pub(super) fn complaints(dmesg: &str) -> Vec<&str> {
    const WORDS: [&str; 12] = [
        "WARNING:",
        "BUG:",
        "Oops",
        "INFO: task ",
        "blocked for more than",
        "rcu: INFO",
        "self-detected stall",
        "detected stalls",
        "possible recursive locking",
        "circular locking",
        "general protection fault",
        "Kernel panic",
    ];
    dmesg.lines().filter(|line| WORDS.iter().any(|word| line.contains(word))).collect()
}

/// Returns the first error of a console, for summaries of one line, and the lines from there on, without
/// registers; or the last lines.
fn console_end(console: &str) -> String {
    const REGISTERS: [&str; 10] =
        ["RSP: ", "RAX: ", "RDX: ", "RBP: ", "R10: ", "R13: ", "FS:  ", "CS:  ", "CR2: ", "PKRU: "];
    let is_register =
        |line: &&str| REGISTERS.iter().any(|name| line.contains(name)) || line.contains("Code: ");
    let lines: Vec<&str> = console.lines().filter(|line| !is_register(line)).collect();
    let error = lines.iter().position(|line| has_error(line));
    let from = error.unwrap_or(lines.len().saturating_sub(12));
    let first = error.map_or("no error on its console", |at| lines[at]);
    let rest: String = lines[from..].iter().take(CONSOLE_LINES).map(|line| format!("\n   {line}")).collect();
    format!("{first}; its console:{rest}")
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
    fn a_console_is_shown_from_its_first_error_without_registers() {
        let text = console_end("a\n[1.0] BUG: soft lockup\n[1.0] RAX: 0000000000000011 RBX: 0\nb\n");
        assert_eq!(text, "[1.0] BUG: soft lockup; its console:\n   [1.0] BUG: soft lockup\n   b");
        assert_eq!(console_end("a"), "no error on its console; its console:\n   a");
    }

    /// A console of a kernel that waits for its second processor, which is in the last of these functions.
    fn hung_in(function: &str) -> String {
        let waiting = "smp_call_function_many_cond+0x28d/0x2e0\n bpf_trampoline_unlink_prog+0x96/0x140\n";
        format!(
            "BUG: soft lockup - CPU#0 stuck for 22s! [klock:1576]\n {waiting}\
             NMI backtrace for cpu 2\n {waiting}NMI backtrace for cpu 3\n default_idle+0x10/0x20\n\
             NMI backtrace for cpu 1\n {function}+0x10/0x20\nKernel panic - not syncing: softlockup: hung tasks\n"
        )
    }

    #[test]
    fn a_guest_boots_again_only_if_no_processor_was_in_a_bpf_program() {
        assert!(hangs_outside_bpf(&hung_in("default_idle")));
        for function in
            ["bpf_prog_6deef7357e7b4530_fexit_mutex_lock", "bpf_trampoline_24331", "__bpf_ringbuf_reserve"]
        {
            assert!(!hangs_outside_bpf(&hung_in(function)), "{function}");
        }
    }

    #[test]
    fn a_guest_that_ended_before_it_printed_all_stacks_does_not_boot_again() {
        let console = hung_in("default_idle");
        assert!(!hangs_outside_bpf(console.rsplit_once("Kernel panic").unwrap().0));
        assert!(!hangs_outside_bpf("Kernel panic - not syncing: Oops"));
    }

    #[test]
    fn a_warning_of_the_kernel_is_a_complaint() {
        let log = "[ 1.0] Linux version\n[ 9.1] WARNING: CPU: 1 PID: 9 at kernel/x.c:1\n";
        assert_eq!(complaints(log).len(), 1);
    }
}
