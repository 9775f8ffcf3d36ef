//! Probes on the returns of kernel functions, with room for as many concurrent calls as the kernel permits.
//!
//! A kretprobe keeps a record for every task that is inside the function, including sleeping tasks. One that
//! is created by `perf_event_open` has room for ten records or twice the number of CPUs, and drops other
//! returns silently (`kernel/kprobes.c`, `register_kretprobe`): in a function that waits for locks, exactly
//! when contention is highest. tracefs allows a larger number. So the probes are created by a line in
//! `kprobe_events` and a perf event on the resulting tracepoint. Probes that a killed klock left behind are
//! removed by the next one.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::fd::{AsRawFd as _, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use super::bpf::{perf_attributes, perf_event_open};
use crate::setup::host::TRACEFS;

/// The maximum number of concurrent calls that the kernel permits (`KRETPROBE_MAXACTIVE_MAX`,
/// `kernel/trace/trace_kprobe.c`, 5.10 to 7.2).
const MAX_ACTIVE: u32 = 4096;

/// The prefix of the group names of klock's probes, followed by klock's PID.
const GROUP: &str = "klock_";

/// The return probes of a recording. Dropping it removes them.
#[derive(Debug, Default)]
pub(crate) struct Kretprobes {
    misses_counted: bool,
    events: Vec<OwnedFd>,
    names: Vec<String>,
}

impl Kretprobes {
    /// Creates an object without probes. `misses_counted`: whether the kernel's count of misses is correct.
    pub(crate) fn new(misses_counted: bool) -> Self {
        Self { misses_counted, events: Vec::new(), names: Vec::new() }
    }

    /// Runs a program of type `kprobe` at each return of a function.
    pub(crate) fn attach(&mut self, function: &str, program: BorrowedFd<'_>) -> io::Result<()> {
        let tracefs = tracefs().ok_or_else(|| io::Error::other("tracefs is not mounted"))?;
        if self.names.is_empty() {
            remove_stale(&tracefs);
        }
        let pid = std::process::id();
        // The kernel's list of misses omits the group, so the event name must be unique by itself.
        let name = format!("{GROUP}{pid}/{function}_{pid}");
        command(&tracefs, &format!("r{MAX_ACTIVE}:{name} {function}"))?;
        self.names.push(name.clone());
        let id = fs::read_to_string(tracefs.join("events").join(&name).join("id"))?;
        let id: u64 = id.trim().parse().map_err(io::Error::other)?;
        self.events.push(run_on_tracepoint(id, program)?);
        Ok(())
    }

    /// Returns the number of missed returns by function, for functions with any. Empty if the kernel's count
    /// is not correct.
    pub(crate) fn misses(&self) -> Vec<(String, u64)> {
        if !self.misses_counted {
            return Vec::new();
        }
        let lines = tracefs().and_then(|tracefs| fs::read_to_string(tracefs.join("kprobe_profile")).ok());
        misses_in(&lines.unwrap_or_default(), &self.names)
    }

    pub(crate) fn remove(&mut self) {
        self.events.clear();
        if let Some(tracefs) = tracefs() {
            for name in self.names.drain(..) {
                // If this fails, the next recording removes it.
                let _removed = command(&tracefs, &format!("-:{name}"));
            }
        }
    }
}

impl Drop for Kretprobes {
    fn drop(&mut self) {
        self.remove();
    }
}

fn tracefs() -> Option<PathBuf> {
    TRACEFS.into_iter().map(PathBuf::from).find(|path| path.join("kprobe_events").exists())
}

fn command(tracefs: &Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(tracefs.join("kprobe_events"))?;
    file.write_all(format!("{line}\n").as_bytes())
}

/// Removes the probes of klock processes that do not exist any more.
fn remove_stale(tracefs: &Path) {
    let lines = fs::read_to_string(tracefs.join("kprobe_events")).unwrap_or_default();
    for name in stale(&lines, |pid| PathBuf::from(format!("/proc/{pid}")).exists()) {
        let _removed = command(tracefs, &format!("-:{name}"));
    }
}

/// Returns the names of klock's probes whose process does not exist, from lines `r4096:klock_12/mutex_lock_12
/// mutex_lock`.
fn stale(lines: &str, exists: impl Fn(u32) -> bool) -> Vec<&str> {
    lines
        .lines()
        .filter_map(|line| {
            let name = line.split_once(':')?.1.split_whitespace().next()?;
            let pid = name.split_once('/')?.0.strip_prefix(GROUP)?.parse().ok()?;
            (!exists(pid)).then_some(name)
        })
        .collect()
}

/// Returns the misses of these probes (`group/event`) that have any, from lines `event hits misses`.
fn misses_in(lines: &str, names: &[String]) -> Vec<(String, u64)> {
    let is_ours = |event: &str| names.iter().any(|name| name.rsplit('/').next() == Some(event));
    let misses = |line: &str| {
        let mut words = line.split_whitespace();
        let (event, misses) = (words.next()?, words.nth(1)?.parse().ok()?);
        (is_ours(event) && misses > 0).then(|| (event.to_owned(), misses))
    };
    lines.lines().filter_map(misses).collect()
}

/// Opens a perf event on a tracepoint and attaches a program. The program runs for all tasks on all CPUs,
/// whichever CPU is given (`perf_trace_run_bpf_submit` and `kretprobe_perf_func`, `kernel/trace`).
fn run_on_tracepoint(id: u64, program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    const PERF_TYPE_TRACEPOINT: u32 = 2;
    /// `_IOW('$', 8, __u32)` and `_IO('$', 0)` (`include/uapi/linux/perf_event.h`).
    const PERF_EVENT_IOC_SET_BPF: libc::c_ulong = 0x4004_2408;
    const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
    let mut attributes = perf_attributes();
    (attributes.type_, attributes.config) = (PERF_TYPE_TRACEPOINT, id);
    attributes.__bindgen_anon_1.sample_period = 1;
    let event = perf_event_open(&attributes, -1, 0)?;
    let requests = [(PERF_EVENT_IOC_SET_BPF, program.as_raw_fd()), (PERF_EVENT_IOC_ENABLE, 0)];
    for (request, argument) in requests {
        // SAFETY: both requests take an integer.
        if unsafe { libc::ioctl(event.as_raw_fd(), request, argument) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_probes_of_missing_processes_are_removed() {
        let lines = "r4096:klock_12/mutex_lock_12 mutex_lock\nr4096:klock_13/down down\np:mine/down down\nr:klock_x/down down\n";
        assert_eq!(stale(lines, |pid| pid == 13), ["klock_12/mutex_lock_12"]);
    }

    #[test]
    fn misses_of_other_probes_are_ignored() {
        let lines = "  down_12      100     3\n  down_13      100     4\n  up_12   5   0\n";
        let names = ["klock_12/down_12".to_owned(), "klock_12/up_12".to_owned()];
        assert_eq!(misses_in(lines, &names), [("down_12".to_owned(), 3)]);
    }
}
