//! Facts about this machine that decide what can be recorded.
//!
//! Reads `/proc` and `/sys`; [`plan`](crate::setup::plan) draws the conclusions. `None` means "unknown", which is not "no".

use std::{
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
    setup::{
        btf::{KERNEL_BTF, KernelTypes, TypeInfo},
        kernel_files::{KernelFiles, read_symbols},
        preemption,
    },
    sources::{FUTEX_CALLS, probed_functions},
    system::procfs,
};

/// The usual mount points of tracefs.
pub const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The kernel's event source for kprobes (4.17).
const KPROBES: &str = "/sys/bus/event_source/devices/kprobe";

/// The features that this machine supports and permits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// Machine architecture, as `uname -m` prints it.
    pub arch: String,
    /// Number of online CPUs.
    pub cpus_online: Option<u32>,
    /// Number of possible CPUs.
    pub cpus_possible: Option<u32>,
    /// Effective capabilities.
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
    /// The [functions that klock may probe](probed_functions) that kallsyms lists.
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
pub const CAPABILITIES: [(&str, CapabilitySet); 5] = [
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

    /// Collects the facts that decide a recording, and the files that they were found in: like [`gather`](Self::gather), but without
    /// those of the kernel's types and symbols if klock certainly may not load BPF programs.
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
            preemptible: preemption::of_this_kernel(),
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

    /// Adds the facts of the kernel's types and symbols, and returns both. Reads the types on a thread of its own.
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

    /// Returns whether klock has a capability. As in the kernel, CAP_SYS_ADMIN includes CAP_BPF and CAP_PERFMON, but not
    /// CAP_SYSLOG, without which /proc/kallsyms has no addresses.
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

/// Without tracefs, a tracepoint is recognised by the function that the kernel generates for it (5.10): every kernel lists
/// its functions, but not every kernel lists its data.
fn contention_by_symbol(symbols: &str) -> Option<bool> {
    (!symbols.is_empty()).then(|| symbols.contains("__traceiter_contention_begin"))
}

/// Returns the functions that kallsyms lists as `address t name`.
fn functions(symbols: &str) -> BTreeSet<&'static str> {
    let wanted: BTreeSet<&'static str> = probed_functions().map(|(name, _)| name).collect();
    symbols.lines().filter_map(|line| wanted.get(line.split(' ').nth(2)?).copied()).collect()
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
