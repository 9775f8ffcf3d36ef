//! Calls of functions that take locks, from their entry to their return: a kretprobe can't read arguments, so that a
//! kprobe keeps the lock's address for it. Calls of one task nest: an interrupt may try for a lock in the middle of one.

use aya_ebpf::bindings::BPF_ANY;

use crate::{emit::cpu, filter::Task, maps::CALLS};

/// Calls of one task that can be under way at once.
const DEPTH: usize = 4;

/// The calls of a task that have not returned yet, innermost last.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CallState {
    locks: [u64; DEPTH],
    functions: [u32; DEPTH],
    depth: u64,
}

impl CallState {
    const EMPTY: Self = Self { locks: [0; DEPTH], functions: [0; DEPTH], depth: 0 };
}

/// The idle task of each CPU has its own calls.
#[inline(always)]
fn key(task: Task) -> u64 {
    if task.tid == 0 { 1 << 32 | u64::from(cpu()) } else { u64::from(task.tid) }
}

/// Notes that the task entered a function with this lock; false if there is no place.
#[inline(always)]
pub(crate) fn enter(task: Task, function: u32, lock: u64) -> bool {
    let key = key(task);
    if CALLS.get_ptr(key).is_none() && CALLS.insert(key, CallState::EMPTY, BPF_ANY as u64).is_err() {
        return false;
    }
    let Some(state) = CALLS.get_ptr_mut(key) else { return false };
    // SAFETY: the value stays in the map's memory, and is its own task's.
    let state = unsafe { &mut *state };
    let at = state.depth as usize;
    if at >= DEPTH {
        // Returns were missed: what is kept is stale.
        state.depth = 0;
        return false;
    }
    state.locks[at & (DEPTH - 1)] = lock;
    state.functions[at & (DEPTH - 1)] = function;
    state.depth = at as u64 + 1;
    true
}

/// The lock with which the task entered the function that it leaves now. Calls inside it whose return was missed go
/// with it: the kernel has room for few returns at a time, and says of none that it missed it.
#[inline(always)]
pub(crate) fn leave(task: Task, function: u32) -> Option<u64> {
    let key = key(task);
    let state = CALLS.get_ptr_mut(key)?;
    // SAFETY: as above.
    let state = unsafe { &mut *state };
    let depth = state.depth as usize;
    for back in 1..=DEPTH {
        let at = depth.wrapping_sub(back) & (DEPTH - 1);
        if back <= depth && state.functions[at] == function {
            let lock = state.locks[at];
            // The entry stays until the task ends: it will call again.
            state.depth = (depth - back) as u64;
            return Some(lock);
        }
    }
    None
}

/// The task is gone.
#[inline(always)]
pub(crate) fn forget(task: Task) {
    let _ = CALLS.remove(key(task));
}
