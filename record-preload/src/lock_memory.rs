//! `mlockall`. Memory that this library shares with klock is not locked: it would count against the program's
//! limit, and take as much memory as it has addresses.

use core::{
    ffi::c_int,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::{maps::Maps, process, real, restrictions, sys};

/// `CAP_IPC_LOCK`.
const CAP_IPC_LOCK: u32 = 14;
const PAGE: u64 = 4096;

/// The program has asked to lock what it maps in the future.
static LOCKS_FUTURE: AtomicBool = AtomicBool::new(false);

/// `mlockall`.
pub(crate) unsafe extern "C" fn all(flags: c_int) -> c_int {
    let known = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    let future = flags & libc::MCL_FUTURE != 0;
    let handled = flags & !known == 0 && flags & libc::MCL_CURRENT != 0;
    let region = process::mapped();
    let permit = restrictions::permit();
    let (Some(own), Some(_permit), true) = (region, permit, handled && is_within_limit(region)) else {
        // SAFETY: forwarded unchanged.
        let result = unsafe { real::MLOCKALL.get()(flags) };
        LOCKS_FUTURE.store(future && result == 0, Ordering::Relaxed);
        return result;
    };
    let errno = sys::errno();
    // Without MCL_FUTURE, the call ends an earlier one's effect on future mappings.
    if !future && LOCKS_FUTURE.load(Ordering::Relaxed) {
        // SAFETY: involves no memory of this library that must be locked.
        unsafe { real::MUNLOCKALL.get()() };
    }
    if let Err(error) = lock_others(own, flags & libc::MCL_ONFAULT != 0) {
        sys::set_errno(error);
        return -1;
    }
    LOCKS_FUTURE.store(future, Ordering::Relaxed);
    sys::set_errno(errno);
    if !future {
        return 0;
    }
    // SAFETY: locks nothing now.
    unsafe { real::MLOCKALL.get()(flags & !libc::MCL_CURRENT) }
}

/// `munlockall`.
pub(crate) unsafe extern "C" fn none() -> c_int {
    LOCKS_FUTURE.store(false, Ordering::Relaxed);
    // SAFETY: forwarded unchanged.
    unsafe { real::MUNLOCKALL.get()() }
}

/// Whether the kernel would lock the program's memory without this library's. If not, its own error is the
/// right one.
fn is_within_limit(own: Option<(usize, usize)>) -> bool {
    let own = own.map_or(0, |(start, end)| (end - start) as u64);
    let limit = sys::resource_limit(libc::RLIMIT_MEMLOCK);
    let total = total_pages().unwrap_or(u64::MAX / PAGE) * PAGE;
    limit != 0 && (total.saturating_sub(own) <= limit || may_exceed_limits())
}

/// Returns the size of the process in pages, the first number in /proc/self/statm.
fn total_pages() -> Option<u64> {
    let mut text = [0_u8; 64];
    let count = sys::read_file(c"/proc/self/statm", &mut text)?;
    let digits = text.get(..count)?.iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

fn may_exceed_limits() -> bool {
    /// `_LINUX_CAPABILITY_VERSION_3`.
    const VERSION: u32 = 0x2008_0522;
    let header = [VERSION, 0];
    let mut sets = [0_u32; 6];
    // SAFETY: the kernel reads two words and writes six.
    let result =
        unsafe { sys::call3(libc::SYS_capget, header.as_ptr() as usize, sets.as_mut_ptr() as usize, 0) };
    result == 0 && sets[0] & 1 << CAP_IPC_LOCK != 0
}

/// Locks all mappings outside of `own`.
fn lock_others(own: (usize, usize), on_fault: bool) -> Result<(), c_int> {
    const MLOCK_ONFAULT: usize = 1;
    let Some(maps) = Maps::open() else { return Err(libc::ENOMEM) };
    for (start, end) in maps {
        if start < own.1 && own.0 < end {
            continue;
        }
        // SAFETY: changes no content.
        let result = unsafe {
            sys::call3(libc::SYS_mlock2, start, end - start, usize::from(on_fault) * MLOCK_ONFAULT)
        };
        // As in the kernel's own loop, what cannot be read or is gone does not matter.
        if result == -(libc::EPERM as isize) {
            return Err(libc::EPERM);
        }
    }
    Ok(())
}
