//! System calls without the C library. They do not change errno, are not cancellation points, and cannot be
//! interposed.

use core::{
    ffi::{CStr, c_int},
    mem,
};

/// Makes a system call. A negative result is an error.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn call(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: by the kernel's convention only rcx and r11 are clobbered. The effect of the call is the
    // caller's obligation.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
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
    result
}

/// Makes a system call. A negative result is an error.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) unsafe fn call(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: by the kernel's convention only x0 is clobbered. The effect of the call is the caller's
    // obligation.
    unsafe {
        core::arch::asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") arguments[0] as isize => result,
            in("x1") arguments[1],
            in("x2") arguments[2],
            in("x3") arguments[3],
            in("x4") arguments[4],
            in("x5") arguments[5],
            options(nostack),
        );
    }
    result
}

/// Makes a system call with up to three arguments.
#[inline]
pub(crate) unsafe fn call3(number: libc::c_long, a: usize, b: usize, c: usize) -> isize {
    // SAFETY: the caller's obligation.
    unsafe { call(number, [a, b, c, 0, 0, 0]) }
}

/// Blocks all signals of this thread. Returns those that were blocked before, a bit each.
pub(crate) fn block_signals() -> u64 {
    let (all, mut before) = (u64::MAX, 0_u64);
    let sets = [&raw const all as usize, &raw mut before as usize];
    // SAFETY: the kernel reads and writes 8 bytes.
    unsafe { call(libc::SYS_rt_sigprocmask, [libc::SIG_BLOCK as usize, sets[0], sets[1], 8, 0, 0]) };
    before
}

pub(crate) fn set_blocked_signals(blocked: u64) {
    let set = &raw const blocked as usize;
    // SAFETY: the kernel reads 8 bytes.
    unsafe { call(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as usize, set, 0, 8, 0, 0]) };
}

/// Returns the process id in its own PID namespace.
pub(crate) fn pid() -> u32 {
    // SAFETY: reads nothing, changes nothing.
    unsafe { call3(libc::SYS_getpid, 0, 0, 0) as u32 }
}

/// Returns the thread id in its own PID namespace.
pub(crate) fn tid() -> u32 {
    // SAFETY: reads nothing, changes nothing.
    unsafe { call3(libc::SYS_gettid, 0, 0, 0) as u32 }
}

/// Returns the thread's name, padded with zeros.
pub(crate) fn thread_name() -> [u8; 16] {
    let mut name = [0_u8; 16];
    // SAFETY: the kernel writes 16 bytes at most.
    unsafe { call3(libc::SYS_prctl, libc::PR_GET_NAME as usize, name.as_mut_ptr() as usize, 0) };
    name
}

/// Returns CLOCK_MONOTONIC in ns.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec.
    unsafe {
        call3(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC as usize, &raw mut now as usize, 0);
    }
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sleeps until the time is over or a signal arrives.
pub(crate) fn sleep_ns(ns: u32) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: ns.into() };
    // SAFETY: the kernel reads one timespec.
    unsafe { call3(libc::SYS_nanosleep, &raw const time as usize, 0, 0) };
}

/// Allocates zeroed private memory in whole pages.
pub(crate) fn allocate(bytes: usize) -> Option<*mut u8> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    map([0, bytes, protection, flags, usize::MAX, 0])
}

/// Maps memory, which is in no core file of the program.
fn map(arguments: [usize; 6]) -> Option<*mut u8> {
    // SAFETY: a new mapping at a place that the kernel chooses.
    let at = unsafe { call(libc::SYS_mmap, arguments) };
    let at = (at > 0).then_some(at as usize)?;
    // SAFETY: changes no content.
    unsafe { call3(libc::SYS_madvise, at, arguments[1], libc::MADV_DONTDUMP as usize) };
    Some(at as *mut u8)
}

pub(crate) fn map_shared(descriptor: c_int, bytes: usize) -> Option<*mut u8> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = libc::MAP_SHARED as usize;
    map([0, bytes, protection, flags, descriptor as usize, 0])
}

/// Unmaps memory.
///
/// # Safety
/// The memory is not used any more.
pub(crate) unsafe fn unmap(at: *mut u8, bytes: usize) {
    // SAFETY: the caller's obligation.
    unsafe { call3(libc::SYS_munmap, at as usize, bytes, 0) };
}

/// Finds the facts of the file at the address of a path; returns whether there is one.
///
/// # Safety
/// The path ends with a zero, and `facts` can be written.
pub(crate) unsafe fn stat(path: usize, facts: *mut libc::stat) -> bool {
    // SAFETY: the caller's obligation.
    unsafe { call(libc::SYS_newfstatat, [libc::AT_FDCWD as usize, path, facts as usize, 0, 0, 0]) == 0 }
}

/// Returns the size of an open file.
pub(crate) fn file_bytes(descriptor: c_int) -> Option<u64> {
    facts(descriptor).map(|facts| facts.st_size as u64)
}

fn facts(descriptor: c_int) -> Option<libc::stat> {
    let mut facts = mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel writes the facts, for which zeros are valid.
    unsafe {
        let result = call3(libc::SYS_fstat, descriptor as usize, facts.as_mut_ptr() as usize, 0);
        (result == 0).then(|| facts.assume_init())
    }
}

/// Whether an open file is memory that is sealed against becoming smaller.
pub(crate) fn cannot_shrink(descriptor: c_int) -> bool {
    // SAFETY: returns a number.
    let seals = unsafe { call3(libc::SYS_fcntl, descriptor as usize, libc::F_GET_SEALS as usize, 0) };
    seals > 0 && seals & libc::F_SEAL_SHRINK as isize != 0
}

/// Numbers of descriptors from here on belong to this library, if the program may have so many. Programs get
/// the lowest free numbers.
const HIGH: u64 = 768;

/// A descriptor of this library. Another thread of the program may close all that are open, and get its
/// number for a file of its own: it is closed only if it still is the same file.
pub(crate) struct Descriptor {
    number: c_int,
    file: Option<(u64, u64)>,
}

impl Descriptor {
    /// Takes the result of a system call that opens a descriptor, and gives it a high number.
    pub(crate) fn new(opened: isize) -> Option<Self> {
        let opened = c_int::try_from(opened).ok().filter(|opened| *opened >= 0)?;
        let low = Self { number: opened, file: identity(opened) };
        let from = HIGH.min(resource_limit(libc::RLIMIT_NOFILE) / 4 * 3) as usize;
        // SAFETY: makes a descriptor.
        let high = unsafe { call3(libc::SYS_fcntl, opened as usize, libc::F_DUPFD_CLOEXEC as usize, from) };
        match c_int::try_from(high) {
            Ok(number) if number >= 0 => Some(Self { number, file: low.file }),
            _ => Some(low),
        }
    }

    pub(crate) fn number(&self) -> c_int {
        self.number
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if self.file.is_some() && identity(self.number) == self.file {
            // SAFETY: a descriptor of this library.
            unsafe { call3(libc::SYS_close, self.number as usize, 0, 0) };
        }
    }
}

/// Returns the device and the inode of an open file.
fn identity(descriptor: c_int) -> Option<(u64, u64)> {
    facts(descriptor).map(|facts| (facts.st_dev, facts.st_ino))
}

/// Opens a file for reading.
pub(crate) fn open(path: &CStr) -> Option<Descriptor> {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    // SAFETY: the kernel reads the path.
    let descriptor =
        unsafe { call(libc::SYS_openat, [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags, 0, 0, 0]) };
    Descriptor::new(descriptor)
}

/// Reads the start of a file and returns the number of bytes.
pub(crate) fn read_file(path: &CStr, bytes: &mut [u8]) -> Option<usize> {
    let descriptor = open(path)?;
    let number = descriptor.number() as usize;
    // SAFETY: the kernel writes at most `bytes.len()` bytes.
    let count = unsafe { call3(libc::SYS_read, number, bytes.as_mut_ptr() as usize, bytes.len()) };
    usize::try_from(count).ok()
}

/// Whether a word of this process can be read.
pub(crate) fn can_read(address: usize) -> bool {
    const INVALID_CHANGE: usize = usize::MAX;
    // SAFETY: the kernel reads the word as a set of signals, and then refuses the change.
    let result =
        unsafe { call(libc::SYS_rt_sigprocmask, [INVALID_CHANGE, address, 0, size_of::<usize>(), 0, 0]) };
    result == -(libc::EINVAL as isize)
}

/// Reads a word of this process that may not be mapped any more.
pub(crate) fn read_word(address: usize) -> Option<usize> {
    let mut word = 0_usize;
    let bytes = size_of::<usize>();
    let to = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: bytes };
    let from = libc::iovec { iov_base: address as *mut _, iov_len: bytes };
    let (to, from) = (&raw const to as usize, &raw const from as usize);
    // SAFETY: the kernel checks the address, and writes the word.
    let count = unsafe { call(libc::SYS_process_vm_readv, [pid() as usize, to, 1, from, 1, 0]) };
    (count == bytes as isize).then_some(word)
}

/// Returns a resource limit, `u64::MAX` if there is none.
pub(crate) fn resource_limit(resource: libc::__rlimit_resource_t) -> u64 {
    let mut limits = [u64::MAX; 2];
    // SAFETY: the kernel writes two words.
    unsafe { call(libc::SYS_prlimit64, [0, resource as usize, 0, &raw mut limits as usize, 0, 0]) };
    limits[0]
}

/// Returns the thread's errno.
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
