//! Clocks: the time of records, by the clock that klock chose, and checks of the timeouts of timed calls.
//! Records keep the low 48 bits of the time, which klock converts.

use trace_format::preload::clock;

use crate::{real, sys};

/// Reads the clock, one of [`clock`].
#[inline(always)]
pub(crate) fn now(clock: u16) -> u64 {
    if u32::from(clock) == clock::TSC { counter() } else { monotonic_ns() }
}

/// Reads the clock after all preceding instructions, so that the time is after the unlock that let this
/// thread in.
#[inline]
pub(crate) fn now_ordered(clock: u16) -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is part of the architecture.
    unsafe {
        core::arch::x86_64::_mm_lfence();
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier without other effects.
    unsafe {
        core::arch::asm!("isb", options(nostack, preserves_flags));
    }
    now(clock)
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn counter() -> u64 {
    // SAFETY: reads the time-stamp counter. klock chooses this clock only if the counter is invariant.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn counter() -> u64 {
    let ticks: u64;
    // SAFETY: reads the generic timer's counter, which user code may read.
    unsafe {
        core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nostack, nomem, preserves_flags));
    }
    ticks
}

/// Reads CLOCK_MONOTONIC through the C library, which uses the vDSO.
#[cold]
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a function of the C library, with valid memory for its result.
    let result = unsafe { real::CLOCK_GETTIME.get()(libc::CLOCK_MONOTONIC, &raw mut now) };
    if result == 0 { now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64 } else { sys::monotonic_ns() }
}

/// A time in the past for all clocks. A timed call with it does not wait.
pub(crate) const LONG_PAST: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 0 };

/// Whether the C library accepts the timeout.
pub(crate) unsafe fn is_valid(until: *const libc::timespec) -> bool {
    // SAFETY: the C library reads it at this point as well.
    let nanoseconds = unsafe { (*until).tv_nsec };
    (0..1_000_000_000).contains(&nanoseconds)
}

/// Whether the C library accepts the clock of a timed call.
pub(crate) fn is_valid_clock(clock: libc::clockid_t) -> bool {
    clock == libc::CLOCK_REALTIME || clock == libc::CLOCK_MONOTONIC
}
