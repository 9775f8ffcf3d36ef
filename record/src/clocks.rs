//! The clocks of the machine, read together. Nothing else.

use trace_format::run_info::Clocks;

/// CLOCK_MONOTONIC in nanoseconds: the clock of every time in a trace.
pub fn monotonic_ns() -> i64 {
    read(libc::CLOCK_MONOTONIC)
}

/// All clocks that a trace records.
pub fn clocks_now() -> Clocks {
    Clocks {
        monotonic_ns: monotonic_ns(),
        realtime_ns: read(libc::CLOCK_REALTIME),
        boottime_ns: read(libc::CLOCK_BOOTTIME),
    }
}

fn read(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours and lives through the call, which can't fail for these clocks.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
