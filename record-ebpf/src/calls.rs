//! Open calls of acquiring functions. A kretprobe cannot read arguments, so the kprobe at the entry stores
//! the lock's address for it. Calls of a task nest, because an interrupt may try a lock during a call.

use aya_ebpf::{bindings::BPF_ANY, btf_maps::HashMap, macros::btf_map};

use crate::{emit::cpu, filter::Task};

/// Open calls, by task.
#[btf_map]
static CALLS: HashMap<u64, CallState, 32768> = HashMap::new();

/// Maximum number of open calls of a task.
const DEPTH: usize = 4;

/// The open calls of a task, innermost last.
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

/// Returns the key of a task. The idle tasks share the thread id 0, so their key is the CPU.
#[inline(always)]
fn key(task: Task) -> u64 {
    if task.tid == 0 { 1 << 32 | u64::from(cpu()) } else { u64::from(task.tid) }
}

/// Stores the lock of a call that the task entered. Returns false if the map is full or calls are nested too
/// deeply.
#[inline(always)]
pub(crate) fn enter(task: Task, function: u32, lock: u64) -> bool {
    let key = key(task);
    if CALLS.get_ptr(key).is_none() && CALLS.insert(key, CallState::EMPTY, BPF_ANY as u64).is_err() {
        return false;
    }
    let Some(state) = CALLS.get_ptr_mut(key) else { return false };
    // SAFETY: the value stays in the map's memory, and only its own task uses it.
    let state = unsafe { &mut *state };
    let index = state.depth as usize;
    if index >= DEPTH {
        // Returns were missed, so the stored calls are stale.
        state.depth = 0;
        return false;
    }
    state.locks[index & (DEPTH - 1)] = lock;
    state.functions[index & (DEPTH - 1)] = function;
    state.depth = index as u64 + 1;
    true
}

/// Returns the lock of the call that the task leaves now, and removes the call. Also removes calls inside it:
/// their returns were missed, because the kernel tracks a limited number of returns at a time.
#[inline(always)]
pub(crate) fn leave(task: Task, function: u32) -> Option<u64> {
    let key = key(task);
    let state = CALLS.get_ptr_mut(key)?;
    // SAFETY: as above.
    let state = unsafe { &mut *state };
    let depth = state.depth as usize;
    for back in 1..=DEPTH {
        let index = depth.wrapping_sub(back) & (DEPTH - 1);
        if back <= depth && state.functions[index] == function {
            let lock = state.locks[index];
            // The map entry stays until the task exits, because the task will call again.
            state.depth = (depth - back) as u64;
            return Some(lock);
        }
    }
    None
}

/// Removes the state of a task that exits.
#[inline(always)]
pub(crate) fn forget(task: Task) {
    let _ = CALLS.remove(key(task));
}
