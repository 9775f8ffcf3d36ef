//! System calls without the C library: they leave errno alone, can't be cancelled and are interposed by nobody. Only what the
//! other files need, and nothing of what the calls mean to them.

use core::ffi::c_int;

/// One system call; a negative answer is an error.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn call(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let answer: isize;
    // SAFETY: the kernel's convention: rcx and r11 are overwritten, nothing else; what the call does is the caller's matter.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

/// One system call; a negative answer is an error.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) unsafe fn call(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let answer: isize;
    // SAFETY: the kernel's convention: only x0 is overwritten; what the call does is the caller's matter.
    unsafe {
        core::arch::asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") arguments[0] as isize => answer,
            in("x1") arguments[1],
            in("x2") arguments[2],
            in("x3") arguments[3],
            in("x4") arguments[4],
            in("x5") arguments[5],
            options(nostack),
        );
    }
    answer
}

/// A system call of up to three arguments.
#[inline]
pub(crate) unsafe fn call3(number: libc::c_long, a: usize, b: usize, c: usize) -> isize {
    // SAFETY: as the caller promises.
    unsafe { call(number, [a, b, c, 0, 0, 0]) }
}

/// The process, as it sees itself.
pub(crate) fn pid() -> u32 {
    // SAFETY: reads nothing, changes nothing.
    unsafe { call3(libc::SYS_getpid, 0, 0, 0) as u32 }
}

/// The thread, as its process sees it.
pub(crate) fn tid() -> u32 {
    // SAFETY: reads nothing, changes nothing.
    unsafe { call3(libc::SYS_gettid, 0, 0, 0) as u32 }
}

/// The thread's name, padded with zeros.
pub(crate) fn thread_name() -> [u8; 16] {
    let mut name = [0_u8; 16];
    // SAFETY: the kernel writes 16 bytes at most.
    unsafe { call3(libc::SYS_prctl, libc::PR_GET_NAME as usize, name.as_mut_ptr() as usize, 0) };
    name
}

/// CLOCK_MONOTONIC, in ns.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec.
    unsafe {
        call3(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC as usize, &raw mut now as usize, 0);
    }
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sleeps, or is woken by a signal earlier.
pub(crate) fn sleep_ns(ns: u32) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: ns.into() };
    // SAFETY: the kernel reads one timespec.
    unsafe { call3(libc::SYS_nanosleep, &raw const time as usize, 0, 0) };
}

/// New private memory of zeros, in whole pages; `None` if there is none.
pub(crate) fn allocate(bytes: usize) -> Option<*mut u8> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    // SAFETY: a new mapping at a place that the kernel chooses.
    let at = unsafe { call(libc::SYS_mmap, [0, bytes, protection, flags, usize::MAX, 0]) };
    (at > 0).then_some(at as *mut u8)
}

/// Shared memory behind a descriptor.
pub(crate) fn map_shared(descriptor: c_int, bytes: usize) -> Option<*mut u8> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = libc::MAP_SHARED as usize;
    // SAFETY: a new mapping at a place that the kernel chooses.
    let at = unsafe { call(libc::SYS_mmap, [0, bytes, protection, flags, descriptor as usize, 0]) };
    (at > 0).then_some(at as *mut u8)
}

/// Gives memory back.
///
/// # Safety
/// Nobody uses it any more.
pub(crate) unsafe fn unmap(at: *mut u8, bytes: usize) {
    // SAFETY: as the caller promises.
    unsafe { call3(libc::SYS_munmap, at as usize, bytes, 0) };
}

/// Closes a descriptor.
pub(crate) fn close(descriptor: c_int) {
    // SAFETY: only descriptors that this library opened come here.
    unsafe { call3(libc::SYS_close, descriptor as usize, 0, 0) };
}

/// The thread's errno.
#[inline]
pub(crate) fn errno() -> c_int {
    // SAFETY: the C library's pointer to this thread's errno.
    unsafe { *libc::__errno_location() }
}

/// Sets the thread's errno.
#[inline]
pub(crate) fn set_errno(value: c_int) {
    // SAFETY: the C library's pointer to this thread's errno.
    unsafe { *libc::__errno_location() = value };
}

/// Ends the process at once.
#[cfg(all(panic = "abort", not(test)))]
pub(crate) fn abort() -> ! {
    loop {
        // SAFETY: SIGABRT for this thread; if it is blocked or handled, the exit below ends the process.
        unsafe {
            call3(libc::SYS_tgkill, pid() as usize, tid() as usize, libc::SIGABRT as usize);
            call3(libc::SYS_exit_group, 134, 0, 0);
        }
    }
}
