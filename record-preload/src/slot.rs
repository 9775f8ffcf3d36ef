//! Slots of the region: claiming one, and starting and ending sessions. Threads claim slots without a lock.
//! At the end klock reads the rest of the records and frees the slot.

use core::sync::atomic::Ordering;

use trace_format::preload::{Region, SLOTS, SLOTS_OFFSET, Slot, pool::Pool, queue::limit, state};

use crate::sys;

/// Claims a slot that was freed, or one that was never used. Returns `None` if there is none.
pub(crate) unsafe fn claim(region: *mut Region) -> Option<*mut Slot> {
    // SAFETY: the region is mapped.
    unsafe {
        // Without its chunks.
        let pool = Pool::new(region, 0);
        loop {
            let index = pool.free_slots.pop().or_else(|| next_unused(region))? as usize % SLOTS;
            let slot = region.cast::<u8>().add(SLOTS_OFFSET).cast::<Slot>().add(index);
            let (free, claimed) = (state::FREE, state::CLAIMED);
            let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
            if (*slot).state.compare_exchange(free, claimed, success, failure).is_ok() {
                return Some(slot);
            }
        }
    }
}

/// Adds a slot to those that klock reads.
unsafe fn next_unused(region: *mut Region) -> Option<u32> {
    // SAFETY: the region is mapped.
    let used = unsafe { &(*region).used_slots };
    let more = |count: u32| (count < SLOTS as u32).then_some(count + 1);
    used.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).ok()
}

/// The facts of a thread that are known from system calls.
pub(crate) struct Facts {
    pub(crate) tid: u32,
    pub(crate) comm: [u8; 16],
    pub(crate) now_ns: u64,
}

impl Facts {
    /// Asks the kernel.
    pub(crate) fn query() -> Self {
        Self { tid: sys::tid(), comm: sys::thread_name(), now_ns: sys::monotonic_ns() }
    }
}

/// Returns the name of the process's first thread with a slot.
///
/// # Safety
/// The region is mapped.
pub(crate) unsafe fn first_name(region: *mut Region) -> [u8; 16] {
    // SAFETY: the first slot is in the region, and any bytes are a name.
    unsafe { (&raw const (*region.cast::<u8>().add(SLOTS_OFFSET).cast::<Slot>()).comm).read_volatile() }
}

/// Starts a session of this thread in a claimed slot.
///
/// # Safety
/// The region is mapped.
pub(crate) unsafe fn start_session(slot: *mut Slot, facts: &Facts) {
    // SAFETY: the slot is mapped, and no other thread uses it until it is live.
    unsafe {
        (*slot).tid = facts.tid;
        (*slot).start_ns = facts.now_ns;
        (*slot).exit_ns = 0;
        (*slot).comm = facts.comm;
        (*slot).session += 1;
        (*slot).head.store(0, Ordering::Relaxed);
        (*slot).lost.store(0, Ordering::Relaxed);
        (*slot).nested.store(0, Ordering::Relaxed);
        (*slot).limit.store(limit::NO_CHUNK, Ordering::Relaxed);
        (*slot).first.clear();
        (*slot).busy.store(0, Ordering::Relaxed);
        (*slot).state.store(state::LIVE, Ordering::Release);
    }
}

/// Ends the session. From now on the thread writes nothing.
///
/// # Safety
/// The region is mapped, and the slot belongs to this thread.
pub(crate) unsafe fn end_session(slot: *mut Slot, comm: [u8; 16], now_ns: u64) {
    // SAFETY: the caller's obligation.
    unsafe {
        (*slot).comm = comm;
        (*slot).exit_ns = now_ns;
        (*slot).state.store(state::EXITED, Ordering::Release);
    }
}
