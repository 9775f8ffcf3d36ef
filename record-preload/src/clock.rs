//! The time of records: the cheapest exact clock, which klock chose. Out goes a number whose low 48 bits a record keeps; what
//! it means is klock's business.

use trace_format::preload::clock;

use crate::{real, sys};

/// The time now, by the clock with this number.
#[inline(always)]
pub(crate) fn now(which: u32) -> u64 {
    if which == clock::TSC { counter() } else { monotonic_ns() }
}

/// The time now, read when everything before it is done: another thread's unlock is before it if it let this thread in.
#[inline]
pub(crate) fn now_ordered(which: u32) -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is part of the architecture.
    unsafe {
        core::arch::x86_64::_mm_lfence();
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: waits, and changes nothing.
    unsafe {
        core::arch::asm!("isb", options(nostack, preserves_flags));
    }
    now(which)
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn counter() -> u64 {
    // SAFETY: reads the time-stamp counter; klock chose this clock knowing that it is there and even.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn counter() -> u64 {
    let ticks: u64;
    // SAFETY: reads the generic timer's counter, which user code may.
    unsafe {
        core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nostack, nomem, preserves_flags));
    }
    ticks
}

/// By the C library, which asks the kernel's page of code and not the kernel.
#[cold]
fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the C library's function, with room for its answer.
    let answer = unsafe { real::CLOCK_GETTIME.get()(libc::CLOCK_MONOTONIC, &raw mut now) };
    if answer == 0 { now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64 } else { sys::monotonic_ns() }
}

/// A time at which every wait is over.
pub(crate) const LONG_PAST: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 0 };

/// Whether the C library waits until this time, or refuses it.
pub(crate) unsafe fn is_valid(until: *const libc::timespec) -> bool {
    // SAFETY: the C library would read it now, too.
    let nanoseconds = unsafe { (*until).tv_nsec };
    (0..1_000_000_000).contains(&nanoseconds)
}

/// Whether the C library waits by this clock.
pub(crate) fn is_waited_by(clock: libc::clockid_t) -> bool {
    clock == libc::CLOCK_REALTIME || clock == libc::CLOCK_MONOTONIC
}
