//! Restrictions that a program puts on itself: seccomp filters, the strict mode of seccomp, and a time-stamp
//! counter that faults.
//!
//! After a filter is installed, this library makes no system calls of its own: the filter might end the
//! program for them. What later threads need is reserved before. When the clock can no longer be read, the
//! recording of the process ends, and its calls are only counted. Installations by bare instructions, without
//! the C library, are not seen.

use core::{
    ffi::c_int,
    mem::MaybeUninit,
    sync::atomic::{AtomicU32, Ordering},
};

use trace_format::preload::{SECCOMP_VARIABLE, clock};

use crate::{process, real, sys, table};

/// Number of filters that are installed or being installed.
static FILTERS: AtomicU32 = AtomicU32::new(0);
/// Number of restrictions under which the clock cannot be read, likewise.
static CLOCKLESS: AtomicU32 = AtomicU32::new(0);
/// Number of threads that are making system calls of this library.
static CALLING: AtomicU32 = AtomicU32::new(0);

/// Number of times that a thread yields to threads that make system calls, before it restricts them.
const MAX_YIELDS: u32 = 10_000;

/// `PR_SET_TSC` and its argument for a counter that faults.
const SET_TSC: c_int = 26;
const GET_TSC: c_int = 25;
const TSC_FAULTS: usize = 2;
/// Modes of `PR_SET_SECCOMP`.
const MODE_STRICT: usize = 1;
const MODE_FILTER: usize = 2;
/// Operations of `seccomp`.
const SET_MODE_STRICT: usize = 0;
const SET_MODE_FILTER: usize = 1;

/// The permission to make system calls, as long as it exists.
pub(crate) struct Permit;

impl Drop for Permit {
    fn drop(&mut self) {
        CALLING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Returns the permission to make system calls; `None` once a filter may forbid them.
pub(crate) fn permit() -> Option<Permit> {
    CALLING.fetch_add(1, Ordering::SeqCst);
    let permit = Permit;
    (FILTERS.load(Ordering::SeqCst) == 0).then_some(permit)
}

/// Whether the recording of this process has ended because the clock cannot be read.
#[cold]
pub(crate) fn has_ended() -> bool {
    CLOCKLESS.load(Ordering::SeqCst) != 0
}

/// The kind of a restriction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Filter,
    Strict,
    NoCounter,
}

/// Calls `install`, which returns -1 if it fails, and obeys the restriction from before the call.
unsafe fn restrict<R: Copy + PartialEq + From<i8>>(kind: Kind, install: impl FnOnce() -> R) -> R {
    let filters = u32::from(kind != Kind::NoCounter);
    // The other clock may be a system call.
    let clockless = u32::from(kind != Kind::Filter || process::clock() != Some(clock::TSC));
    if filters > 0 && permit().is_some() {
        table::reserve();
    }
    FILTERS.fetch_add(filters, Ordering::SeqCst);
    CLOCKLESS.fetch_add(clockless, Ordering::SeqCst);
    if clockless > 0 {
        process::set_clockless(true);
    }
    for _ in 0..MAX_YIELDS {
        if CALLING.load(Ordering::SeqCst) == 0 {
            break;
        }
        if FILTERS.load(Ordering::SeqCst) == filters {
            // SAFETY: changes nothing. A filter that forbids it is not installed yet, unless there is another
            // one.
            unsafe { sys::call3(libc::SYS_sched_yield, 0, 0, 0) };
        }
    }
    let result = install();
    if result == R::from(-1) {
        FILTERS.fetch_sub(filters, Ordering::SeqCst);
        if CLOCKLESS.fetch_sub(clockless, Ordering::SeqCst) == clockless && clockless > 0 {
            process::set_clockless(false);
        }
    }
    result
}

/// Forwards `prctl`.
pub(crate) unsafe fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    // SAFETY: forwarded unchanged.
    let forward = || unsafe { real::PRCTL.get()(option, a, b, c, d) };
    match kind_of_prctl(option, a) {
        // SAFETY: as above.
        Some(kind) => unsafe { restrict(kind, forward) },
        None => forward(),
    }
}

fn kind_of_prctl(option: c_int, a: usize) -> Option<Kind> {
    match (option, a) {
        (libc::PR_SET_SECCOMP, MODE_STRICT) => Some(Kind::Strict),
        (libc::PR_SET_SECCOMP, MODE_FILTER) => Some(Kind::Filter),
        (SET_TSC, TSC_FAULTS) => Some(Kind::NoCounter),
        _ => None,
    }
}

/// Forwards `syscall`.
pub(crate) unsafe extern "C" fn syscall(
    number: i64,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> i64 {
    // SAFETY: forwarded unchanged.
    let forward = || unsafe { real::syscall()(number, a, b, c, d, e, f) };
    let kind = match (number, a) {
        (libc::SYS_prctl, _) => kind_of_prctl(a as c_int, b),
        (libc::SYS_seccomp, SET_MODE_STRICT) => Some(Kind::Strict),
        (libc::SYS_seccomp, SET_MODE_FILTER) => Some(Kind::Filter),
        _ => None,
    };
    match kind {
        // SAFETY: as above.
        Some(kind) => unsafe { restrict(kind, forward) },
        None => forward(),
    }
}

/// Finds the restrictions under which the program starts. The loader has just made the same system calls for
/// the libraries.
pub(crate) fn find_inherited() {
    let known = real::variable(SECCOMP_VARIABLE.as_bytes()).and_then(number);
    if let Some((known, inherited)) = known.zip(inherited_filters())
        && inherited > known
    {
        FILTERS.store(inherited - known, Ordering::SeqCst);
        return;
    }
    let mut mode = 0_i32;
    // SAFETY: the kernel writes one integer.
    let result = unsafe { sys::call3(libc::SYS_prctl, GET_TSC as usize, &raw mut mode as usize, 0) };
    if result == 0 && mode as usize == TSC_FAULTS {
        CLOCKLESS.store(1, Ordering::SeqCst);
    }
}

/// Parses the decimal number at the start of a text.
fn number(text: &[u8]) -> Option<u32> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(None, |number: Option<u32>, digit| {
        Some(number.unwrap_or(0).saturating_mul(10).saturating_add(u32::from(digit - b'0')))
    })
}

/// Returns the number of seccomp filters of this process (Linux 5.9).
fn inherited_filters() -> Option<u32> {
    const FIELD: &[u8] = b"\nSeccomp_filters:\t";
    let mut text = [0_u8; 4096];
    let count = sys::read_file(c"/proc/self/status", &mut text)?;
    let text = text.get(..count)?;
    let at = text.windows(FIELD.len()).position(|window| window == FIELD)?;
    number(text.get(at + FIELD.len()..)?)
}

/// Returns the thread id without a system call: the C library writes it into a mutex that it locks.
pub(crate) fn own_tid() -> u32 {
    const OWNER: usize = 8;
    const KIND: usize = 16;
    let mut mutex = MaybeUninit::<libc::pthread_mutex_t>::zeroed();
    let at = mutex.as_mut_ptr().cast::<u8>();
    // SAFETY: a mutex of this thread alone; its fields are those of glibc (see `mutex`). The type keeps glibc
    // from using hardware transactions, which write no owner.
    unsafe {
        at.add(KIND).cast::<c_int>().write(libc::PTHREAD_MUTEX_ERRORCHECK);
        real::OWN_MUTEX_TRYLOCK.get()(at.cast());
        let owner = at.add(OWNER).cast::<u32>().read_volatile();
        real::OWN_MUTEX_UNLOCK.get()(at.cast());
        owner
    }
}
