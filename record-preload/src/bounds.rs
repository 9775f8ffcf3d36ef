//! The bounds of a thread's stack: exact bounds of mapped memory, which a stack walk must not leave. Queried
//! from the kernel once per thread, without allocating. If they cannot be found, stacks consist of the call
//! site only.

use crate::{maps::Maps, sys};

/// The readable range of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The lowest address.
    pub(crate) low: usize,
    /// The end.
    pub(crate) high: usize,
}

const PAGE: usize = 4096;
/// Maximum size of a stack below its top, regardless of the resource limit.
const MAX_BYTES: usize = 64 << 20;
/// Assumed size of a stack without resource limit.
const DEFAULT_BYTES: usize = 8 << 20;

/// Finds the stack of this thread; `main` if it is the process's first thread. `stack_pointer` is an address
/// in the stack that the thread is on.
pub(crate) fn of_this_thread(main: bool, stack_pointer: usize) -> Option<Bounds> {
    // The C library keeps the thread's descriptor at the end of its stack as long as the thread exists. The
    // end of the mapping is not usable: the kernel merges adjacent mappings, which may be unmapped at any
    // time.
    let pointer = thread_pointer();
    let thread = mapping(pointer).map(|(start, _)| Bounds { low: limited(start, pointer), high: pointer });
    let is_on = |bounds: &Bounds| (bounds.low..bounds.high).contains(&stack_pointer);
    if !main || thread.as_ref().is_some_and(is_on) {
        return thread;
    }
    // The kernel provides the first thread's stack, which grows: addresses below its current start belong to
    // it later.
    mapping(first_stack()?).map(|(_, end)| Bounds { low: limited(0, end), high: end })
}

/// Returns the part of this thread's stack that certainly exists, without a system call. For threads other
/// than the first.
pub(crate) fn known_part(stack_pointer: usize) -> Option<Bounds> {
    let high = thread_pointer();
    let is_below = stack_pointer < high && high - stack_pointer < MAX_BYTES;
    is_below.then_some(Bounds { low: stack_pointer & !(PAGE - 1), high })
}

fn limited(start: usize, end: usize) -> usize {
    start.max(end.saturating_sub(limit()))
}

/// Returns an address in the first thread's stack, from a variable of the loader.
fn first_stack() -> Option<usize> {
    // SAFETY: the string is null-terminated.
    let variable = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_stack_end".as_ptr()) }.cast::<usize>();
    // SAFETY: the loader's variable.
    (!variable.is_null()).then(|| unsafe { *variable })
}

#[cfg(target_arch = "x86_64")]
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: by the ABI, the first word at the thread pointer is the thread pointer.
    unsafe {
        core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags));
    }
    pointer
}

#[cfg(target_arch = "aarch64")]
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem, preserves_flags));
    }
    pointer
}

/// Returns the resource limit of stacks.
fn limit() -> usize {
    match sys::resource_limit(libc::RLIMIT_STACK) {
        u64::MAX => DEFAULT_BYTES,
        limit => (limit as usize).min(MAX_BYTES),
    }
}

/// Returns the start and the end of the mapping that contains an address.
fn mapping(address: usize) -> Option<(usize, usize)> {
    let mut maps = Maps::open()?;
    maps.query(address).or_else(|| maps.find(|(start, end)| (*start..*end).contains(&address)))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Returns an address in the current stack.
    fn here() -> usize {
        let local = 0_u8;
        core::hint::black_box(&raw const local) as usize
    }

    #[test]
    fn a_thread_is_inside_its_own_stack_only() {
        let bounds = thread::spawn(|| {
            let bounds = of_this_thread(false, here()).expect("a stack");
            assert!((bounds.low..bounds.high).contains(&here()));
            bounds
        });
        let bounds = bounds.join().expect("it ends");
        assert!(!(bounds.low..bounds.high).contains(&here()));
    }
}
