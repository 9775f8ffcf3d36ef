//! Facts about this machine that decide what can be recorded.
//!
//! Reads `/proc` and `/sys`; [`plan`](crate::setup::plan) draws the conclusions. `None` means "unknown",
//! which is not "no".

use std::{
    borrow::Cow,
    collections::BTreeSet,
    fs,
    panic::resume_unwind,
    path::Path,
    thread::{self, ScopedJoinHandle},
};

use aya::{
    programs::{ProgramError, ProgramType},
    sys::is_program_supported,
};
use rustix::thread::{CapabilitySet, capabilities};
use trace_format::kernel_functions::FUNCTIONS;

use crate::{
    setup::btf::{KERNEL_BTF, KernelTypes, TypeInfo},
    sources::{FUTEX_CALLS, probed_functions},
    system::procfs,
};

/// The usual mount points of tracefs.
pub(crate) const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The kernel's event source for kprobes (4.17).
const KPROBES: &str = "/sys/bus/event_source/devices/kprobe";

/// The features that this machine supports and permits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// Machine architecture, as `uname -m` prints it.
    pub arch: String,
    pub cpus_online: Option<u32>,
    pub cpus_possible: Option<u32>,
    pub capabilities: Option<CapabilitySet>,
    /// Facts from the kernel's BTF; `None` if it is missing or unreadable.
    pub types: Option<KernelTypes>,
    /// Whether the kernel supports fentry and fexit programs (5.5).
    pub fentry: Option<bool>,
    /// Whether the kernel supports kprobes.
    pub kprobes: bool,
    /// Whether this is a PREEMPT_RT kernel, in which spinlocks sleep.
    pub realtime: bool,
    /// Whether a task can be preempted inside the kernel.
    pub preemptible: Option<bool>,
    /// The functions that klock may probe (`probed_functions`) that kallsyms lists.
    pub functions: BTreeSet<&'static str>,
    /// The mount point of tracefs.
    pub tracefs: Option<&'static str>,
    /// Whether the kernel has `lock:contention_begin` (5.19).
    pub contention: Option<bool>,
    /// The futex calls that have tracepoints: `futex`, `futex_wait`, ...
    pub futex_calls: Vec<&'static str>,
    /// `kernel.kptr_restrict`: above 0, kernel symbols may lack addresses.
    pub kptr_restrict: Option<i64>,
    /// `kernel.unprivileged_bpf_disabled`
    pub unprivileged_bpf_disabled: Option<i64>,
    /// `kernel.yama.ptrace_scope`; `None` without Yama, which is the same as 0.
    pub ptrace_scope: Option<i64>,
    /// `kernel.perf_event_paranoid`
    pub perf_event_paranoid: Option<i64>,
    /// The kernel's lockdown mode: `none`, `integrity`, `confidentiality`.
    pub lockdown: Option<String>,
}

/// The capabilities that recording may need.
pub(crate) const CAPABILITIES: [(&str, CapabilitySet); 5] = [
    ("CAP_SYS_PTRACE", CapabilitySet::SYS_PTRACE),
    ("CAP_SYS_ADMIN", CapabilitySet::SYS_ADMIN),
    ("CAP_SYSLOG", CapabilitySet::SYSLOG),
    ("CAP_PERFMON", CapabilitySet::PERFMON),
    ("CAP_BPF", CapabilitySet::BPF),
];

impl HostFacts {
    /// Collects all facts. Changes nothing. Takes some 100 ms, most of it for the kernel's types and symbols.
    pub fn gather() -> Self {
        let mut facts = Self::gather_cheap();
        facts.gather_kernel();
        facts
    }

    /// Collects the facts that decide a recording, and the files that they were found in: like
    /// [`gather`](Self::gather), but without the kernel's types and symbols if klock certainly may not load
    /// BPF programs.
    pub(crate) fn gather_for_recording() -> (Self, KernelFiles) {
        let mut facts = Self::gather_cheap();
        let files = match facts.has_capability(CapabilitySet::BPF) {
            Some(false) => KernelFiles::default(),
            _ => facts.gather_kernel(),
        };
        (facts, files)
    }

    /// Collects the facts that a few small files contain.
    fn gather_cheap() -> Self {
        let tracefs = TRACEFS.into_iter().find(|path| Path::new(path).join("events").is_dir());
        let has_event = |name: &str| tracefs.map(|path| Path::new(path).join("events").join(name).is_dir());
        Self {
            kernel: line("/proc/sys/kernel/osrelease").unwrap_or_default(),
            arch: std::env::consts::ARCH.to_owned(),
            cpus_online: procfs::cpu_list("/sys/devices/system/cpu/online").map(|cpus| cpus.len() as u32),
            cpus_possible: procfs::cpu_list("/sys/devices/system/cpu/possible").map(|cpus| cpus.len() as u32),
            capabilities: capabilities(None).ok().map(|sets| sets.effective),
            kprobes: Path::new(KPROBES).is_dir(),
            realtime: line("/sys/kernel/realtime").as_deref() == Some("1"),
            preemptible: of_this_kernel(),
            tracefs,
            contention: has_event("lock/contention_begin"),
            futex_calls: FUTEX_CALLS
                .iter()
                .map(|call| call.call)
                .filter(|call| has_event(&format!("syscalls/sys_enter_{call}")) == Some(true))
                .collect(),
            kptr_restrict: number("/proc/sys/kernel/kptr_restrict"),
            unprivileged_bpf_disabled: number("/proc/sys/kernel/unprivileged_bpf_disabled"),
            ptrace_scope: number("/proc/sys/kernel/yama/ptrace_scope"),
            perf_event_paranoid: number("/proc/sys/kernel/perf_event_paranoid"),
            lockdown: line("/sys/kernel/security/lockdown").map(|text| bracketed(&text)),
            ..Self::default()
        }
    }

    /// Adds the facts of the kernel's types and symbols, and returns both. Reads the types on a thread of its
    /// own.
    fn gather_kernel(&mut self) -> KernelFiles {
        let read_types = || TypeInfo::read(Path::new(KERNEL_BTF)).ok();
        let mut symbols = String::new();
        let types = thread::scope(|scope| {
            let reader =
                thread::Builder::new().name("klock-types".to_owned()).spawn_scoped(scope, read_types);
            symbols = read_symbols();
            self.fentry = fentry();
            self.functions = functions(&symbols);
            self.contention = self.contention.or_else(|| contention_by_symbol(&symbols));
            let read = reader.map(ScopedJoinHandle::join);
            read.map_or_else(|_| read_types(), |types| types.unwrap_or_else(|panic| resume_unwind(panic)))
        });
        self.types = types.as_ref().and_then(|types| KernelTypes::of(types).ok());
        KernelFiles { symbols, types }
    }

    /// Returns the kernel's major and minor version.
    pub fn version(&self) -> Option<(u32, u32)> {
        let mut parts = self.kernel.split(['.', '-', '+']);
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }

    /// Returns whether klock has a capability. As in the kernel, CAP_SYS_ADMIN includes CAP_BPF and
    /// CAP_PERFMON, but not CAP_SYSLOG, without which /proc/kallsyms has no addresses.
    pub fn has_capability(&self, wanted: CapabilitySet) -> Option<bool> {
        let effective = self.capabilities?;
        let by_admin = (CapabilitySet::BPF | CapabilitySet::PERFMON).contains(wanted)
            && effective.contains(CapabilitySet::SYS_ADMIN);
        Some(effective.contains(wanted) || by_admin)
    }

    /// Returns the facts as rows of label and value.
    pub fn rows(&self) -> Vec<(String, String)> {
        let number = |value: Option<i64>| value.map_or_else(unknown, |v| v.to_string());
        let count = |value: Option<u32>| value.map_or_else(unknown, |v| v.to_string());
        let yes_no = |value: Option<bool>| match value {
            Some(true) => "yes".to_owned(),
            Some(false) => "no".to_owned(),
            None => unknown(),
        };
        let mut rows = Vec::new();
        let mut row = |label: &str, value: String| rows.push((label.to_owned(), value));
        row("kernel", format!("{} ({})", self.kernel, self.arch));
        row("CPUs online, possible", format!("{}, {}", count(self.cpus_online), count(self.cpus_possible)));
        for (name, capability) in CAPABILITIES {
            row(name, yes_no(self.has_capability(capability)));
        }
        let btf = if self.types.is_some() { "yes" } else { "no, or not readable" };
        row("BTF of the kernel", btf.to_owned());
        row("tracefs", self.tracefs.unwrap_or("not mounted, or not readable").to_owned());
        row("lock:contention_begin", yes_no(self.contention));
        row("fentry and fexit", yes_no(self.fentry));
        if self.realtime {
            row("PREEMPT_RT", "yes".to_owned());
        }
        row("preemptible kernel", yes_no(self.preemptible));
        row("kprobes", yes_no(Some(self.kprobes)));
        let present = FUNCTIONS.iter().filter(|function| self.functions.contains(function.name)).count();
        row("lock functions", format!("{present} of {}", FUNCTIONS.len()));
        let calls = if self.futex_calls.is_empty() { unknown() } else { self.futex_calls.join(", ") };
        row("futex calls to trace", calls);
        row("kptr_restrict", number(self.kptr_restrict));
        row("unprivileged_bpf_disabled", number(self.unprivileged_bpf_disabled));
        let yama = self.ptrace_scope.map_or_else(|| "no Yama".to_owned(), |scope| scope.to_string());
        row("yama.ptrace_scope", yama);
        row("perf_event_paranoid", number(self.perf_event_paranoid));
        row("lockdown", self.lockdown.clone().unwrap_or_else(unknown));
        rows
    }
}

fn unknown() -> String {
    "could not tell".to_owned()
}

fn line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn number(path: &str) -> Option<i64> {
    line(path)?.parse().ok()
}

/// Returns the word in brackets: `integrity` for `none [integrity] confidentiality`.
fn bracketed(text: &str) -> String {
    let word = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    word.unwrap_or(text).to_owned()
}

/// Tests for fentry by loading and attaching an empty program.
fn fentry() -> Option<bool> {
    match is_program_supported(ProgramType::Tracing) {
        Ok(supported) => Some(supported),
        Err(ProgramError::SyscallError(error)) if error.io_error.raw_os_error() == Some(libc::EPERM) => {
            Some(false)
        }
        Err(_) => None,
    }
}

/// Without tracefs, a tracepoint is recognised by the function that the kernel generates for it (5.10): every
/// kernel lists its functions, but not every kernel lists its data.
fn contention_by_symbol(symbols: &str) -> Option<bool> {
    (!symbols.is_empty()).then(|| symbols.contains("__traceiter_contention_begin"))
}

/// Returns the functions that kallsyms lists as `address t name`.
fn functions(symbols: &str) -> BTreeSet<&'static str> {
    let wanted: BTreeSet<&'static str> = probed_functions().map(|(name, _)| name).collect();
    symbols.lines().filter_map(|line| wanted.get(line.split(' ').nth(2)?).copied()).collect()
}

// Large files about the kernel, which several parts of a recording use: they are read once, when the facts
// are collected.

/// Addresses, types and names of the kernel's symbols.
const SYMBOLS: &str = "/proc/kallsyms";

/// The contents of the files. Empty if klock may not load BPF programs, which need them most.
#[derive(Debug, Default)]
pub(crate) struct KernelFiles {
    /// Lines of `address type name`; empty if they were not read.
    pub(crate) symbols: String,
    /// The kernel's types; `None` if they were not or cannot be read.
    pub(crate) types: Option<TypeInfo>,
}

impl KernelFiles {
    /// Returns the symbols, which are read now if they were not.
    pub(crate) fn symbols(&self) -> Cow<'_, str> {
        if self.symbols.is_empty() { read_symbols().into() } else { (&self.symbols).into() }
    }
}

/// Reads the symbols; empty if that fails.
pub(crate) fn read_symbols() -> String {
    fs::read_to_string(SYMBOLS).unwrap_or_default()
}

// Determines whether the kernel preempts tasks inside the kernel, from files below /proc, /sys and /boot.
//
// It matters for fentry and fexit: if a task is preempted inside such a program, the kernel skips the program
// for every other task on that CPU until the task continues (`__bpf_prog_enter_recur`,
// `kernel/bpf/trampoline.c`, 5.12 to 7.2).

/// Returns the answer for this machine; `None` if it is unknown.
pub(crate) fn of_this_kernel() -> Option<bool> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let release = read("/proc/sys/kernel/osrelease")?;
    let release = release.trim();
    Evidence {
        current_mode: read("/sys/kernel/debug/sched/preempt"),
        command_line: read("/proc/cmdline"),
        version: read("/proc/sys/kernel/version"),
        config: read(&format!("/boot/config-{release}")),
        release: release.to_owned(),
    }
    .preempts()
}

/// The contents of the files that may give the answer.
#[derive(Debug, Default)]
struct Evidence {
    /// `none (voluntary) full lazy`, where debugfs is mounted.
    current_mode: Option<String>,
    command_line: Option<String>,
    /// As `uname -v` prints it.
    version: Option<String>,
    /// The configuration that the kernel was built with.
    config: Option<String>,
    release: String,
}

impl Evidence {
    fn preempts(&self) -> Option<bool> {
        let bracketed = |text: &String| mode_preempts(text.split_once('(')?.1.split_once(')')?.0);
        if let Some(answer) = self.current_mode.as_ref().and_then(bracketed) {
            return Some(answer);
        }
        // Kernels that are built without preemption do not mention it.
        if !self.version.as_ref()?.contains("PREEMPT") {
            return Some(false);
        }
        // If the option is given twice, the kernel uses the last one.
        let mut words = self.command_line.iter().flat_map(|line| line.split_whitespace()).rev();
        if let Some(answer) = words.find_map(|word| mode_preempts(word.strip_prefix("preempt=")?)) {
            return Some(answer);
        }
        if let Some(config) = &self.config {
            let has = |option: &str| config.lines().any(|line| line == format!("CONFIG_PREEMPT{option}=y"));
            return Some(!has("_NONE") && !has("_VOLUNTARY"));
        }
        // 7.0 removed the other modes on architectures that support lazy preemption.
        let major: u32 = self.release.split('.').next()?.parse().ok()?;
        (major >= 7).then_some(true)
    }
}

fn mode_preempts(mode: &str) -> Option<bool> {
    match mode {
        "none" | "voluntary" => Some(false),
        "full" | "lazy" => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_must_be_listed_by_its_exact_name() {
        let symbols =
            "ffffffff81000000 T mutex_lock\nffffffff81000040 t up_read.isra.0\n0000 T ext4_lock\t[ext4]\n";
        assert_eq!(functions(symbols), BTreeSet::from(["mutex_lock"]));
        assert_eq!(contention_by_symbol(symbols), Some(false));
        assert_eq!(contention_by_symbol(""), None);
    }

    #[test]
    fn the_lockdown_mode_is_the_word_in_brackets() {
        assert_eq!(bracketed("none [integrity] confidentiality"), "integrity");
    }

    #[test]
    fn sys_admin_includes_bpf_and_perfmon_but_not_ptrace() {
        let facts = HostFacts { capabilities: Some(CapabilitySet::SYS_ADMIN), ..HostFacts::default() };
        assert_eq!(facts.has_capability(CapabilitySet::BPF), Some(true));
        assert_eq!(facts.has_capability(CapabilitySet::SYS_PTRACE), Some(false));
        assert_eq!(facts.has_capability(CapabilitySet::SYSLOG), Some(false));
        assert_eq!(HostFacts::default().has_capability(CapabilitySet::BPF), None);
    }
}

#[cfg(test)]
mod preemption_tests {
    use super::*;

    fn dynamic(release: &str) -> Evidence {
        let version = Some("#1 SMP PREEMPT_DYNAMIC Debian 6.1.176-1 (2026-06-01)\n".to_owned());
        Evidence { version, release: release.to_owned(), ..Evidence::default() }
    }

    #[test]
    fn the_current_mode_overrides_the_command_line_which_overrides_the_configuration() {
        let mut evidence = dynamic("6.12.0");
        assert_eq!(evidence.preempts(), None);
        evidence.config = Some("CONFIG_PREEMPT_BUILD=y\nCONFIG_PREEMPT_VOLUNTARY=y\n".to_owned());
        assert_eq!(evidence.preempts(), Some(false));
        evidence.command_line = Some("quiet preempt=full\n".to_owned());
        assert_eq!(evidence.preempts(), Some(true));
        evidence.current_mode = Some("none (voluntary) full\n".to_owned());
        assert_eq!(evidence.preempts(), Some(false));
    }

    #[test]
    fn a_kernel_that_does_not_mention_preemption_has_none_and_a_new_kernel_always_has_it() {
        let plain = Evidence { version: Some("#1 SMP Debian".to_owned()), ..dynamic("5.10.0") };
        assert_eq!(plain.preempts(), Some(false));
        assert_eq!(dynamic("7.2.13+deb14").preempts(), Some(true));
    }
}
