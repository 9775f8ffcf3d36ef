//! The machine's clocks, and what the kernel counts for a process, in nanoseconds, whatever time namespace
//! klock or a recorded process is in.
//!
//! A time namespace adds an offset to CLOCK_MONOTONIC and CLOCK_BOOTTIME of its processes
//! (time_namespaces(7)). The kernel's own records, and so the trace, have the times of the machine, without
//! an offset.

use std::{fs, sync::LazyLock, time::Duration};

use rustix::time::{ClockId, clock_gettime};
use trace_format::run_info::Clocks;

use super::control_groups::{ControlGroup, Throttling};

/// Returns CLOCK_MONOTONIC, the clock of every time in a trace.
pub(crate) fn monotonic_ns() -> i64 {
    read(ClockId::Monotonic) - OWN.monotonic_ns
}

/// Returns all clocks that a trace records.
pub fn clocks_now() -> Clocks {
    Clocks {
        monotonic_ns: monotonic_ns(),
        realtime_ns: read(ClockId::Realtime),
        boottime_ns: read(ClockId::Boottime) - OWN.boottime_ns,
    }
}

/// Returns the processor time of the calling thread.
pub(crate) fn thread_time() -> Duration {
    Duration::from_nanos(read(ClockId::ThreadCPUTime).unsigned_abs())
}

/// The times of a process, as the kernel has counted them until now.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessTimes {
    /// The processor time of all its threads.
    pub(crate) cpu_ns: Option<i64>,
    pub(crate) throttling: Option<Throttling>,
}

impl ProcessTimes {
    pub(crate) fn of(pid: u32) -> Self {
        Self { cpu_ns: process_time_ns(pid), throttling: ControlGroup::of(pid).throttling }
    }
}

/// Returns the processor time of a process in ns: the sum of all its threads, also of the ended ones; `None`
/// if there is no such process.
fn process_time_ns(pid: u32) -> Option<i64> {
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: the C library and the kernel write into these variables.
    let is_read = unsafe {
        libc::clock_getcpuclockid(pid.cast_signed(), &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0
    };
    is_read.then_some(time.tv_sec * NS_PER_SECOND + time.tv_nsec)
}

fn read(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * NS_PER_SECOND + time.tv_nsec
}

const NS_PER_SECOND: i64 = 1_000_000_000;
/// The initial time namespace, which has no offsets (`PROC_TIME_INIT_INO` of include/linux/proc_ns.h).
const INITIAL: &str = "time:[4026531834]";

/// The offsets of the time namespace of klock. A process does not leave its time namespace.
static OWN: LazyLock<TimeOffsets> = LazyLock::new(|| TimeOffsets::of("self").unwrap_or_default());

/// The times that a time namespace adds to the machine's clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimeOffsets {
    pub(crate) monotonic_ns: i64,
    pub(crate) boottime_ns: i64,
}

impl TimeOffsets {
    /// Returns the offsets of klock's own clocks.
    pub(crate) fn own() -> Self {
        *OWN
    }

    /// Returns the offsets of a process in `/proc`; `None` if they cannot be known.
    pub(crate) fn of(process: &str) -> Option<Self> {
        let namespace = |name: &str| fs::read_link(format!("/proc/{process}/ns/{name}")).ok();
        let (own, of_children) = (namespace("time"), namespace("time_for_children"));
        if own.as_ref().is_some_and(|own| own.as_os_str() == INITIAL) {
            return Some(Self::default());
        }
        // The file has the offsets of the process's children: without a fork or an exec, it is not in their
        // namespace itself.
        if own != of_children {
            return None;
        }
        match fs::read_to_string(format!("/proc/{process}/timens_offsets")) {
            Ok(text) => Self::parse(&text),
            // The kernel has no time namespaces.
            Err(_) => Some(Self::default()),
        }
    }

    /// Parses `timens_offsets`: a line for each clock, with its name, seconds and nanoseconds.
    fn parse(text: &str) -> Option<Self> {
        let of = |clock: &str| {
            let mut words = text.lines().find_map(|line| line.strip_prefix(clock))?.split_ascii_whitespace();
            let mut number = || words.next()?.parse::<i64>().ok();
            number()?.checked_mul(NS_PER_SECOND)?.checked_add(number()?)
        };
        Some(Self { monotonic_ns: of("monotonic")?, boottime_ns: of("boottime")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_has_seconds_of_both_signs_and_nanoseconds_forwards() {
        let text = "monotonic        -2 500000000\nboottime      86400         7\n";
        let offsets = TimeOffsets { monotonic_ns: -1_500_000_000, boottime_ns: 86_400_000_000_007 };
        assert_eq!(TimeOffsets::parse(text), Some(offsets));
        for bad in [
            "",
            "monotonic 1 2",
            "monotonic 1\nboottime 1 2",
            "monotonic 9223372036854775807 0\nboottime 0 0",
        ] {
            assert_eq!(TimeOffsets::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_process_has_the_time_of_its_threads_and_one_that_is_gone_has_none() {
        let before_ns = thread_time().as_nanos() as i64;
        assert!(process_time_ns(std::process::id()).is_some_and(|ns| ns >= before_ns));
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        assert_eq!(process_time_ns(ended.id()), None);
    }

    #[test]
    fn a_process_without_a_time_namespace_of_its_own_has_the_offsets_of_klock() {
        assert_eq!(TimeOffsets::of(&std::process::id().to_string()), Some(TimeOffsets::own()));
    }
}
