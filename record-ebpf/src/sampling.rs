//! Which acquisitions of kernel locks are recorded where not all are: every N-th of a CPU, as `skipcount` of FreeBSD's
//! LOCK_PROFILING chooses them. Its release is recorded with it, so holds under way are remembered.

use aya_ebpf::bindings::BPF_ANY;

use crate::{atomic, config, filter::Task, guard::Run, maps::HELD};

/// A hold that is recorded.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Held {
    lock: u64,
    tid: u64,
}

impl Held {
    /// That of this task on this lock. The idle tasks of all CPUs count as one: they take no lock that sleeps.
    #[inline(always)]
    pub(crate) fn by(task: Task, lock: u64) -> Self {
        Self { lock, tid: u64::from(task.tid) }
    }

    /// Remembers that it is recorded; false if there is no place.
    #[inline(always)]
    pub(crate) fn remember(&self) -> bool {
        if let Some(depth) = HELD.get_ptr_mut(self) {
            // SAFETY: the value stays in the map's memory; only this task counts its own holds.
            unsafe { *depth += 1 };
            return true;
        }
        HELD.insert(self, 1, BPF_ANY as u64).is_ok()
    }

    /// Whether it is recorded; it is over now.
    #[inline(always)]
    pub(crate) fn forget(&self) -> bool {
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

/// Whether only some acquisitions are recorded.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    config::sample() > 1
}

/// Whether the acquisition that begins now is recorded. To be asked once for each.
#[inline(always)]
pub(crate) fn chooses(run: &Run) -> bool {
    if !is_on() {
        return true;
    }
    // SAFETY: the pointer came from the map's lookup and was checked; the field is only ever changed atomically.
    let before = unsafe { atomic::add(&raw mut (*run.cpu).acquisitions, 1) };
    // The compiler wants to see that it does not divide by 0.
    (before as u32).wrapping_add(1) % config::sample().max(1) == 0
}
