//! Finds deadlocks that began before a recording, from the futexes on which threads sleep, and the owners
//! that glibc's mutexes name.
//!
//! ```text
//! thread 11 sleeps in futex(0x4080), and the mutex at 0x4080 names 12
//! thread 12 sleeps in futex(0x40c0), and the mutex at 0x40c0 names 11
//! ```
//!
//! Each thread is looked at before and after all mutexes. If the kernel has not switched it in between, it
//! slept all the while, and could not release what it owns.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    os::unix::fs::FileExt as _,
};

use trace_format::Syscall;

use super::procfs;

/// A thread that is stuck, in the order in which each one waits for the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StuckThread {
    /// The thread.
    pub(crate) tid: u32,
    /// The address of the mutex for which it waits. The next thread owns it.
    pub(crate) wants: u64,
}

/// Returns the threads of a process that wait for each other's mutexes, a list for each deadlock.
pub(crate) fn deadlocks(pid: u32) -> Vec<Vec<StuckThread>> {
    let sleep = |tid| {
        let switches = procfs::switches(tid)?;
        Some((tid, (switches, futex_of(&procfs::syscall_text(pid, tid).ok()?)?)))
    };
    let asleep: BTreeMap<u32, (u32, u64)> = procfs::threads(pid).into_iter().filter_map(sleep).collect();
    let Ok(memory) = File::open(format!("/proc/{pid}/mem")) else { return Vec::new() };
    let owner = |address: u64| {
        let mut mutex = [0; MUTEX_BYTES];
        memory.read_exact_at(&mut mutex, address).ok()?;
        owner_in(&mutex)
    };
    let mut waits: BTreeMap<u32, (u64, u32)> =
        asleep.iter().filter_map(|(tid, (_, address))| Some((*tid, (*address, owner(*address)?)))).collect();
    waits.retain(|tid, _| procfs::switches(*tid) == Some(asleep[tid].0));
    cycles(&waits)
}

/// Returns the address of the futex for which a thread waits, by the text of its `syscall` in `/proc`: the
/// number of the call, and its arguments.
fn futex_of(text: &str) -> Option<u64> {
    /// `FUTEX_WAIT`, `FUTEX_LOCK_PI`, `FUTEX_WAIT_BITSET` and `FUTEX_LOCK_PI2`
    /// (`include/uapi/linux/futex.h`).
    const WAITS: [u64; 4] = [0, 6, 9, 13];
    /// Without the flags for private futexes and the clock.
    const COMMAND: u64 = !(128 | 256);
    let (number, arguments) = text.split_once(' ')?;
    let call = number.parse().ok().and_then(Syscall::of_number)?;
    let mut arguments =
        arguments.split(' ').map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    let (address, command) = (arguments.next()??, arguments.next()??);
    (call.name() == "futex" && WAITS.contains(&(command & COMMAND))).then_some(address)
}

/// Of glibc's `struct __pthread_mutex_s`: lock, count, owner, users and kind
/// (`sysdeps/nptl/bits/struct_mutex.h`).
const MUTEX_BYTES: usize = 20;

/// Returns the thread that owns a mutex. `None` if the memory does not look like a mutex that is taken.
fn owner_in(mutex: &[u8; MUTEX_BYTES]) -> Option<u32> {
    /// Of all kinds: recursive, robust, with priorities, shared.
    const KINDS: u32 = 0x3ff;
    let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| mutex[4 * at + byte]));
    let (lock, owner, users, kind) = (word(0), word(2), word(3), word(4));
    (lock != 0 && owner != 0 && users != 0 && kind & !KINDS == 0).then_some(owner)
}

/// Returns the cycles of waits: by thread, the mutex that it wants and who owns that.
fn cycles(waits: &BTreeMap<u32, (u64, u32)>) -> Vec<Vec<StuckThread>> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for first in waits.keys() {
        let mut path: Vec<StuckThread> = Vec::new();
        let mut tid = *first;
        while let Some((wants, owner)) = waits.get(&tid).filter(|_| seen.insert(tid)) {
            path.push(StuckThread { tid, wants: *wants });
            tid = *owner;
        }
        if let Some(start) = path.iter().position(|thread| thread.tid == tid) {
            found.push(path.split_off(start));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_for_a_futex_is_read_from_the_text_of_the_kernel() {
        let number = if cfg!(target_arch = "aarch64") { 98 } else { 202 };
        let text =
            |command: &str| format!("{number} 0x55d0c0404080 {command} 0x2 0x0 0x0 0x0 0x7ffc0 0x7f001\n");
        assert_eq!(futex_of(&text("0x80")), Some(0x55d0_c040_4080));
        assert_eq!(
            futex_of(&text("0x189")),
            Some(0x55d0_c040_4080),
            "FUTEX_WAIT_BITSET of the real-time clock"
        );
        assert_eq!(futex_of(&text("0x81")), None, "FUTEX_WAKE");
        for other in ["running\n", "-1 0x7ffc0 0x7f001\n", "35 0x1 0x0 0x0 0x0 0x0 0x0 0x1 0x2\n", ""] {
            assert_eq!(futex_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_taken_mutex_names_its_owner() {
        let mutex = |words: [u32; 5]| std::array::from_fn(|at| words[at / 4].to_ne_bytes()[at % 4]);
        assert_eq!(owner_in(&mutex([2, 0, 17, 1, 0])), Some(17));
        assert_eq!(
            owner_in(&mutex([0x8000_0011, 1, 17, 1, 0x21])),
            Some(17),
            "recursive, with priority inheritance"
        );
        assert_eq!(owner_in(&mutex([0, 0, 0, 1, 0])), None, "free");
        assert_eq!(owner_in(&mutex([2, 0, 17, 1, 0x0040_4080])), None, "no mutex");
    }

    #[test]
    fn each_cycle_of_owners_is_found_once_without_those_behind_it() {
        let waits = BTreeMap::from([
            (1, (0xa, 2)),
            (2, (0xb, 3)),
            (3, (0xc, 2)),
            (4, (0xd, 4)),
            (5, (0xe, 9)),
            (6, (0xf, 1)),
        ]);
        let thread = |tid, wants| StuckThread { tid, wants };
        assert_eq!(cycles(&waits), [vec![thread(2, 0xb), thread(3, 0xc)], vec![thread(4, 0xd)]]);
    }
}
