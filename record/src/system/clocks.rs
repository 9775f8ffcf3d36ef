//! The machine's clocks, in nanoseconds.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use trace_format::run_info::Clocks;

/// Returns CLOCK_MONOTONIC, the clock of every time in a trace.
pub(crate) fn monotonic_ns() -> i64 {
    read(ClockId::Monotonic)
}

/// Returns all clocks that a trace records.
pub fn clocks_now() -> Clocks {
    Clocks {
        monotonic_ns: monotonic_ns(),
        realtime_ns: read(ClockId::Realtime),
        boottime_ns: read(ClockId::Boottime),
    }
}

/// Returns the processor time of the calling thread.
pub(crate) fn thread_time() -> Duration {
    Duration::from_nanos(read(ClockId::ThreadCPUTime).unsigned_abs())
}

fn read(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
