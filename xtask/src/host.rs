//! Facts about this machine that decide which parts of a chore can run. Reads /proc, changes nothing.

use std::fs;

/// Returns whether this process runs as root.
#[must_use]
pub fn is_root() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        uid.and_then(|ids| ids.split_whitespace().nth(1)) == Some("0")
    })
}

/// Whether a skipped part is a failure here.
pub(crate) fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// Kernel release, CPUs and memory, for the head of a measurement.
pub(crate) fn describe() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease").trim().to_owned();
    let cpuinfo = read("/proc/cpuinfo");
    let field = |name: &str| cpuinfo.lines().find(|l| l.starts_with(name)).and_then(|l| l.split_once(':'));
    let model = field("model name").map_or("unknown CPU", |(_, model)| model.trim()).to_owned();
    let cpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let memory = read("/proc/meminfo");
    let kib =
        memory.lines().next().and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0);
    let virtual_machine = if cpuinfo.contains(" hypervisor") { ", virtual machine" } else { "" };
    format!("Linux {kernel}, {cpus} CPUs ({model}{virtual_machine}), {} GiB", (kib + (1 << 19)) >> 20)
}
