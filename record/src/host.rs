//! Facts about this machine that decide what can be recorded. Only facts: what follows from them is
//! [`plan`](crate::plan)'s business. `None` is "could not tell", which is not "no".

use std::{collections::BTreeSet, fs, path::Path};

use aya::{
    programs::{ProgramError, ProgramType},
    sys::is_program_supported,
};
use trace_format::kernel_functions::FUNCTIONS;

use crate::{
    btf::{KERNEL_BTF, KernelTypes},
    plan::FutexCall,
    preemption,
};

/// Where tracefs is mounted, if it is.
pub const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The kernel's own event source for kprobes (4.17).
const KPROBES: &str = "/sys/bus/event_source/devices/kprobe";

/// What this machine is and permits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// Machine architecture, as `uname -m` prints it.
    pub arch: String,
    /// CPUs that are online.
    pub cpus_online: Option<u32>,
    /// CPUs that could ever be.
    pub cpus_possible: Option<u32>,
    /// Effective capabilities, as a bit set.
    pub capabilities: Option<u64>,
    /// What the kernel's BTF says; `None` if there is none or it can't be read.
    pub types: Option<KernelTypes>,
    /// Whether the kernel takes programs onto the entry and return of its functions (fentry and fexit, 5.5).
    pub fentry: Option<bool>,
    /// Whether it takes kprobes.
    pub kprobes: bool,
    /// Whether it is a PREEMPT_RT kernel, in which spinlocks sleep.
    pub realtime: bool,
    /// Whether a task can lose its CPU to another one inside the kernel.
    pub preemptible: Option<bool>,
    /// Which of the [functions](probed_functions) that programs may be put onto it has, by its list of symbols.
    pub functions: BTreeSet<&'static str>,
    /// Where tracefs is mounted.
    pub tracefs: Option<&'static str>,
    /// Whether the kernel has `lock:contention_begin` (5.19).
    pub contention: Option<bool>,
    /// The futex calls that can be traced: `futex`, `futex_wait`, ...
    pub futex_calls: Vec<&'static str>,
    /// `kernel.kptr_restrict`: above 0, kernel symbols may have no addresses.
    pub kptr_restrict: Option<i64>,
    /// `kernel.unprivileged_bpf_disabled`
    pub unprivileged_bpf_disabled: Option<i64>,
    /// `kernel.perf_event_paranoid`
    pub perf_event_paranoid: Option<i64>,
    /// The kernel's lockdown mode: `none`, `integrity`, `confidentiality`.
    pub lockdown: Option<String>,
}

/// The capabilities that matter, with their bits (`include/uapi/linux/capability.h`).
pub const CAPABILITIES: [(&str, u32); 5] =
    [("CAP_SYS_PTRACE", 19), ("CAP_SYS_ADMIN", 21), ("CAP_SYSLOG", 34), ("CAP_PERFMON", 38), ("CAP_BPF", 39)];

/// Every futex call that may exist.
pub const FUTEX_CALLS: [FutexCall; 5] = [
    FutexCall::new("futex", "__x64_sys_futex", "enter_futex"),
    FutexCall::new("futex_wait", "__x64_sys_futex_wait", "enter_futex_wait"),
    FutexCall::new("futex_waitv", "__x64_sys_futex_waitv", "enter_futex_waitv"),
    FutexCall::new("futex_wake", "__x64_sys_futex_wake", "enter_futex_wake"),
    FutexCall::new("futex_requeue", "__x64_sys_futex_requeue", "enter_futex_requeue"),
];

/// Every kernel function that programs may be put onto, those of locks and those of futex calls; and which of its arguments
/// they read.
pub fn probed_functions() -> impl Iterator<Item = (&'static str, usize)> {
    let locks = FUNCTIONS.iter().map(|function| (function.name, function.lock));
    locks.chain(FUTEX_CALLS.iter().map(|call| (call.function, 0)))
}

impl HostFacts {
    /// Asks the machine. Reads files below /proc and /sys, changes nothing.
    pub fn gather() -> Self {
        let tracefs = TRACEFS.into_iter().find(|path| Path::new(path).join("events").is_dir());
        let symbols = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let has_event = |name: &str| tracefs.map(|path| Path::new(path).join("events").join(name).is_dir());
        Self {
            kernel: line("/proc/sys/kernel/osrelease").unwrap_or_default(),
            arch: std::env::consts::ARCH.to_owned(),
            cpus_online: line("/sys/devices/system/cpu/online").and_then(|list| count_cpus(&list)),
            cpus_possible: line("/sys/devices/system/cpu/possible").and_then(|list| count_cpus(&list)),
            capabilities: capabilities(),
            types: KernelTypes::read(Path::new(KERNEL_BTF)).ok(),
            fentry: fentry(),
            kprobes: Path::new(KPROBES).is_dir(),
            realtime: line("/sys/kernel/realtime").as_deref() == Some("1"),
            preemptible: preemption::of_this_kernel(),
            functions: functions(&symbols),
            tracefs,
            contention: has_event("lock/contention_begin").or_else(|| contention_by_symbol(&symbols)),
            futex_calls: FUTEX_CALLS
                .iter()
                .map(|call| call.call)
                .filter(|call| has_event(&format!("syscalls/sys_enter_{call}")) == Some(true))
                .collect(),
            kptr_restrict: number("/proc/sys/kernel/kptr_restrict"),
            unprivileged_bpf_disabled: number("/proc/sys/kernel/unprivileged_bpf_disabled"),
            perf_event_paranoid: number("/proc/sys/kernel/perf_event_paranoid"),
            lockdown: line("/sys/kernel/security/lockdown").map(|text| chosen(&text)),
        }
    }

    /// Major and minor version of the kernel.
    pub fn version(&self) -> Option<(u32, u32)> {
        let mut parts = self.kernel.split(['.', '-', '+']);
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }

    /// Whether a capability is effective; SYS_ADMIN stands for BPF and PERFMON, as it does for the kernel, but not for
    /// SYSLOG, without which /proc/kallsyms has no addresses.
    pub fn has_capability(&self, name: &str) -> Option<bool> {
        let set = self.capabilities?;
        let bit = |wanted: &str| CAPABILITIES.iter().any(|(n, bit)| *n == wanted && set >> bit & 1 == 1);
        let by_admin = matches!(name, "CAP_BPF" | "CAP_PERFMON") && bit("CAP_SYS_ADMIN");
        Some(bit(name) || by_admin)
    }

    /// The facts with their labels, for people.
    pub fn rows(&self) -> Vec<(String, String)> {
        let number = |value: Option<i64>| value.map_or_else(unknown, |v| v.to_string());
        let count = |value: Option<u32>| value.map_or_else(unknown, |v| v.to_string());
        let yes_no = |value: Option<bool>| match value {
            Some(true) => "yes".to_owned(),
            Some(false) => "no".to_owned(),
            None => unknown(),
        };
        let mut rows = vec![
            ("kernel".to_owned(), format!("{} ({})", self.kernel, self.arch)),
            (
                "CPUs online, possible".to_owned(),
                format!("{}, {}", count(self.cpus_online), count(self.cpus_possible)),
            ),
        ];
        for (name, _) in CAPABILITIES {
            rows.push((name.to_owned(), yes_no(self.has_capability(name))));
        }
        let btf = if self.types.is_some() { "yes" } else { "no, or not readable" };
        rows.push(("BTF of the kernel".to_owned(), btf.to_owned()));
        rows.push(("tracefs".to_owned(), self.tracefs.unwrap_or("not mounted, or not readable").to_owned()));
        rows.push(("lock:contention_begin".to_owned(), yes_no(self.contention)));
        rows.push(("fentry and fexit".to_owned(), yes_no(self.fentry)));
        if self.realtime {
            rows.push(("PREEMPT_RT".to_owned(), "yes".to_owned()));
        }
        rows.push(("preemptible kernel".to_owned(), yes_no(self.preemptible)));
        rows.push(("kprobes".to_owned(), yes_no(Some(self.kprobes))));
        let there = FUNCTIONS.iter().filter(|function| self.functions.contains(function.name)).count();
        let functions = format!("{there} of {}", FUNCTIONS.len());
        rows.push(("lock functions".to_owned(), functions));
        let calls = if self.futex_calls.is_empty() { unknown() } else { self.futex_calls.join(", ") };
        rows.push(("futex calls to trace".to_owned(), calls));
        rows.push(("kptr_restrict".to_owned(), number(self.kptr_restrict)));
        rows.push(("unprivileged_bpf_disabled".to_owned(), number(self.unprivileged_bpf_disabled)));
        rows.push(("perf_event_paranoid".to_owned(), number(self.perf_event_paranoid)));
        rows.push(("lockdown".to_owned(), self.lockdown.clone().unwrap_or_else(unknown)));
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

/// `[none] integrity confidentiality` chooses the word in brackets.
fn chosen(text: &str) -> String {
    let word = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    word.unwrap_or(text).to_owned()
}

/// `0-3,5` are five.
fn count_cpus(list: &str) -> Option<u32> {
    list.split(',').try_fold(0_u32, |sum, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

fn capabilities() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(set.trim(), 16).ok()
}

/// Asks the kernel by loading and attaching a program that does nothing.
fn fentry() -> Option<bool> {
    match is_program_supported(ProgramType::Tracing) {
        Ok(supported) => Some(supported),
        Err(ProgramError::SyscallError(error)) if error.io_error.raw_os_error() == Some(libc::EPERM) => {
            Some(false)
        }
        Err(_) => None,
    }
}

/// Without tracefs, a tracepoint shows by the function that the kernel makes for it (5.10). Kernels list their functions, not
/// all list their data.
fn contention_by_symbol(symbols: &str) -> Option<bool> {
    (!symbols.is_empty()).then(|| symbols.contains("__traceiter_contention_begin"))
}

/// The functions that are listed, by a line `address t name`.
fn functions(symbols: &str) -> BTreeSet<&'static str> {
    let listed: BTreeSet<&str> = symbols.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    probed_functions().map(|(name, _)| name).filter(|name| listed.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_counted() {
        assert_eq!(count_cpus("0"), Some(1));
        assert_eq!(count_cpus("0-3,5,8-9"), Some(7));
        assert_eq!(count_cpus("3-0"), None);
        assert_eq!(count_cpus(""), None);
    }

    #[test]
    fn a_function_is_there_if_it_is_listed_by_exactly_its_name() {
        let symbols =
            "ffffffff81000000 T mutex_lock\nffffffff81000040 t up_read.isra.0\n0000 T ext4_lock\t[ext4]\n";
        assert_eq!(functions(symbols), BTreeSet::from(["mutex_lock"]));
        assert_eq!(contention_by_symbol(symbols), Some(false));
        assert_eq!(contention_by_symbol(""), None);
    }

    #[test]
    fn the_lockdown_mode_is_the_word_in_brackets() {
        assert_eq!(chosen("none [integrity] confidentiality"), "integrity");
    }

    #[test]
    fn sys_admin_stands_for_bpf_and_perfmon_but_not_for_ptrace() {
        let facts = HostFacts { capabilities: Some(1 << 21), ..HostFacts::default() };
        assert_eq!(facts.has_capability("CAP_BPF"), Some(true));
        assert_eq!(facts.has_capability("CAP_SYS_PTRACE"), Some(false));
        assert_eq!(facts.has_capability("CAP_SYSLOG"), Some(false));
        assert_eq!(HostFacts::default().has_capability("CAP_BPF"), None);
    }
}
