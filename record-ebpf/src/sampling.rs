//! Sampling of kernel lock acquisitions: each is recorded with the same probability, drawn by the kernel's
//! own random numbers. Counting to n, as `skipcount` of FreeBSD's LOCK_PROFILING does, records one lock
//! always and another one never where code takes its locks in a fixed order. The release of a sampled
//! acquisition is recorded as well, so sampled holds are kept in a map.

use aya_ebpf::{bindings::BPF_ANY, btf_maps::HashMap, helpers::bpf_get_prandom_u32, macros::btf_map};

use crate::{config, filter::Task};

/// Sampled holds, with their depth.
#[btf_map]
static HELD: HashMap<Held, u32, 65536> = HashMap::new();

/// A sampled hold.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Held {
    lock: u64,
    tid: u64,
}

impl Held {
    /// The hold of this task on this lock. The idle tasks of all CPUs share a key, since they never acquire
    /// sleeping locks.
    #[inline(always)]
    pub(crate) fn by(task: Task, lock: u64) -> Self {
        Self { lock, tid: u64::from(task.tid) }
    }

    /// Adds the hold. Returns false if the map is full.
    #[inline(always)]
    pub(crate) fn add(&self) -> bool {
        if let Some(depth) = HELD.get_ptr_mut(self) {
            // SAFETY: the value stays in the map's memory, and only this task counts its own holds.
            unsafe { *depth += 1 };
            return true;
        }
        HELD.insert(self, 1, BPF_ANY as u64).is_ok()
    }

    /// Removes the hold. Returns whether it was sampled.
    #[inline(always)]
    pub(crate) fn remove(&self) -> bool {
        let Some(depth) = HELD.get_ptr_mut(self) else { return false };
        // SAFETY: as above.
        let left = unsafe {
            *depth -= 1;
            *depth
        };
        if left == 0 {
            let _ = HELD.remove(self);
        }
        true
    }
}

/// Whether sampling is enabled.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    config::sample_below() != 0
}

/// Draws whether an acquisition is sampled. Call it once per acquisition.
#[inline(always)]
pub(crate) fn samples() -> bool {
    // SAFETY: the helper takes no arguments. Its generator is per CPU and seeded by the kernel (since 4.1).
    !is_on() || unsafe { bpf_get_prandom_u32() } < config::sample_below()
}
