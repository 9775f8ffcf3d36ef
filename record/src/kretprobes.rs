//! Programs on the returns of kernel functions, with room for as many tasks inside a function as the kernel permits.
//!
//! A return probe keeps a note for every task that is inside its function, asleep ones too. A probe that a loader makes by
//! `perf_event_open` has room for ten notes or twice the CPUs, and drops the other returns without a word
//! (`kernel/kprobes.c`, `register_kretprobe`): in a function that waits for locks, those of the most contended moments.
//! Probes that are made through tracefs say how many they want. So that is how they are made here: a line into
//! `kprobe_events`, and a perf event on the tracepoint that appears. What a recorder that was killed left behind, the
//! next one removes.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
    path::PathBuf,
};

use crate::host::TRACEFS;

/// The most that the kernel permits (`KRETPROBE_MAXACTIVE_MAX`, `kernel/trace/trace_kprobe.c`, 5.10 to 7.2).
const MOST_INSIDE: u32 = 4096;

/// What the names of the groups of our probes begin with; the PID of the recorder follows.
const GROUP: &str = "klock_";

/// The probes of a recorder.
#[derive(Debug, Default)]
pub struct Kretprobes {
    /// The kernel's count of misses can be believed.
    counted: bool,
    events: Vec<OwnedFd>,
    names: Vec<String>,
}

impl Kretprobes {
    /// Runs a program of the kind `kprobe` at each return of a function.
    pub fn attach(&mut self, function: &str, program: BorrowedFd<'_>) -> io::Result<()> {
        let tracefs = tracefs().ok_or_else(|| io::Error::other("tracefs is not mounted"))?;
        if self.names.is_empty() {
            remove_left_behind(&tracefs);
        }
        let pid = std::process::id();
        // The kernel's list of misses leaves the group out: the name has to be ours alone.
        let name = format!("{GROUP}{pid}/{function}_{pid}");
        command(&tracefs, &format!("r{MOST_INSIDE}:{name} {function}"))?;
        self.names.push(name.clone());
        let id = fs::read_to_string(tracefs.join("events").join(&name).join("id"))?;
        let id: u64 = id.trim().parse().map_err(io::Error::other)?;
        self.events.push(run_on_tracepoint(id, program)?);
        Ok(())
    }

    /// None yet. `counted` says whether the kernel's count of misses can be believed.
    pub fn new(counted: bool) -> Self {
        Self { counted, events: Vec::new(), names: Vec::new() }
    }

    /// How many returns of each function the kernel had no room to note, where it had none and can be believed.
    pub fn misses(&self) -> Vec<(String, u64)> {
        if !self.counted {
            return Vec::new();
        }
        let lines = tracefs().and_then(|tracefs| fs::read_to_string(tracefs.join("kprobe_profile")).ok());
        misses_in(&lines.unwrap_or_default(), &self.names)
    }

    /// Takes the probes out.
    pub fn remove(&mut self) {
        self.events.clear();
        if let Some(tracefs) = tracefs() {
            for name in self.names.drain(..) {
                // What can't be removed now is removed by the next recorder.
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

fn command(tracefs: &std::path::Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(tracefs.join("kprobe_events"))?;
    file.write_all(format!("{line}\n").as_bytes())
}

/// Removes the probes of recorders that are no more.
fn remove_left_behind(tracefs: &std::path::Path) {
    let lines = fs::read_to_string(tracefs.join("kprobe_events")).unwrap_or_default();
    for name in left_behind(&lines, |pid| PathBuf::from(format!("/proc/{pid}")).exists()) {
        let _removed = command(tracefs, &format!("-:{name}"));
    }
}

/// The probes in the kernel's list, `r4096:klock_12/mutex_lock mutex_lock`, of which the recorder does not live.
fn left_behind(lines: &str, lives: impl Fn(u32) -> bool) -> Vec<&str> {
    lines
        .lines()
        .filter_map(|line| {
            let name = line.split_once(':')?.1.split_whitespace().next()?;
            let pid = name.split_once('/')?.0.strip_prefix(GROUP)?.parse().ok()?;
            (!lives(pid)).then_some(name)
        })
        .collect()
}

/// The third column of the lines `event hits misses`, for those of these probes, `group/event`, where it is not 0.
fn misses_in(lines: &str, names: &[String]) -> Vec<(String, u64)> {
    let is_ours = |event: &str| names.iter().any(|name| name.rsplit('/').next() == Some(event));
    let of = |line: &str| {
        let mut words = line.split_whitespace();
        let (event, misses) = (words.next()?, words.nth(1)?.parse().ok()?);
        (is_ours(event) && misses > 0).then(|| (event.to_owned(), misses))
    };
    lines.lines().filter_map(of).collect()
}

/// A perf event on a tracepoint, with a program. It runs for all tasks on all CPUs, whichever CPU is named
/// (`perf_trace_run_bpf_submit` and `kretprobe_perf_func`, `kernel/trace`).
fn run_on_tracepoint(id: u64, program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    const PERF_TYPE_TRACEPOINT: u32 = 2;
    const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
    /// `_IOW('$', 8, __u32)` and `_IO('$', 0)` (`include/uapi/linux/perf_event.h`).
    const PERF_EVENT_IOC_SET_BPF: libc::c_ulong = 0x4004_2408;
    const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
    /// `struct perf_event_attr` as far as its first version goes: 64 bytes.
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        kind: u32,
        size: u32,
        config: u64,
        sample_period: u64,
        rest: [u64; 5],
    }
    const _: () = assert!(size_of::<Attributes>() == 64);
    let attributes =
        Attributes { kind: PERF_TYPE_TRACEPOINT, size: 64, config: id, sample_period: 1, rest: [0; 5] };
    // SAFETY: the attributes are initialised, have the size that they say, and live through the call.
    let answer = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attributes, -1, 0, -1, PERF_FLAG_FD_CLOEXEC)
    };
    let fd = i32::try_from(answer).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel just gave it, and nobody else has it.
    let event = unsafe { OwnedFd::from_raw_fd(fd) };
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
    fn only_probes_of_recorders_that_are_gone_are_removed() {
        let lines = "r4096:klock_12/mutex_lock_12 mutex_lock\nr4096:klock_13/down down\np:mine/down down\nr:klock_x/down down\n";
        assert_eq!(left_behind(lines, |pid| pid == 13), ["klock_12/mutex_lock_12"]);
    }

    #[test]
    fn misses_are_those_of_our_own_probes() {
        let lines = "  down_12      100     3\n  down_13      100     4\n  up_12   5   0\n";
        let names = ["klock_12/down_12".to_owned(), "klock_12/up_12".to_owned()];
        assert_eq!(misses_in(lines, &names), [("down_12".to_owned(), 3)]);
    }
}
