//! A thread's place in the region: a slot that is nobody's, and a ring for it. Taken without a lock among the threads of the
//! process, given back to klock, which empties the ring and sets the slot free.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use trace_format::preload::{RINGS_AT, Region, SLOTS, SLOTS_AT, Slot, state};

use crate::sys;

/// Rings of a size are handed out while there is room for so many.
const AHEAD: u64 = 8;
/// A field of a region that others use at the same time.
pub(crate) fn atomic<'a>(place: *mut u32) -> &'a AtomicU32 {
    // SAFETY: only fields of a mapped region come here.
    unsafe { AtomicU32::from_ptr(place) }
}

/// The same, of eight bytes.
pub(crate) fn atomic_wide<'a>(place: *mut u64) -> &'a AtomicU64 {
    // SAFETY: only fields of a mapped region come here.
    unsafe { AtomicU64::from_ptr(place) }
}

/// A slot that is nobody's, with a ring: one that was used before, or the next one.
pub(crate) unsafe fn take(region: *mut Region) -> Option<*mut Slot> {
    // SAFETY: the region is mapped.
    let used = atomic(unsafe { &raw mut (*region).slots });
    let mut index = 0;
    loop {
        let count = (used.load(Ordering::Acquire) as usize).min(SLOTS);
        if index == count {
            let next = count as u32 + 1;
            if count == SLOTS {
                return None;
            }
            // Whoever wins, there is one more slot now, and it is looked at next.
            used.compare_exchange(count as u32, next, Ordering::AcqRel, Ordering::Relaxed).ok();
            continue;
        }
        // SAFETY: the region has room for so many slots.
        unsafe {
            let slot = region.cast::<u8>().add(SLOTS_AT).cast::<Slot>().add(index);
            let state = atomic(&raw mut (*slot).state);
            let is_free = state.load(Ordering::Relaxed) == state::FREE;
            if is_free
                && state
                    .compare_exchange(state::FREE, state::TAKEN, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                if (*slot).ring_bytes != 0 || carve(region, slot) {
                    return Some(slot);
                }
                state.store(state::FREE, Ordering::Release);
                return None;
            }
        }
        index += 1;
    }
}

/// Cuts a ring for the slot out of what is left of the region.
unsafe fn carve(region: *mut Region, slot: *mut Slot) -> bool {
    // SAFETY: the region is mapped, and the slot taken.
    unsafe {
        let taken = atomic_wide(&raw mut (*region).taken);
        let mut begin = taken.load(Ordering::Relaxed);
        loop {
            let left = (*region).bytes.saturating_sub(begin.max(RINGS_AT as u64));
            let mut bytes = (*region).ring_bytes;
            while bytes > (*region).least_ring_bytes && left < AHEAD * bytes {
                bytes /= 2;
            }
            if left < bytes {
                return false;
            }
            match taken.compare_exchange_weak(begin, begin + bytes, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    ((*slot).ring_at, (*slot).ring_bytes) = (begin, bytes);
                    return true;
                }
                Err(now) => begin = now,
            }
        }
    }
}

/// Begins a life of a slot that was taken, for this thread.
///
/// # Safety
/// The region is mapped.
pub(crate) unsafe fn begin(slot: *mut Slot, tid: u32) {
    // SAFETY: the slot is mapped, and nobody else's until it is live.
    unsafe {
        (*slot).tid = tid;
        (*slot).begun_ns = sys::monotonic_ns();
        (*slot).ended_ns = 0;
        (*slot).comm = sys::thread_name();
        (*slot).life += 1;
        atomic_wide(&raw mut (*slot).head).store(0, Ordering::Relaxed);
        atomic_wide(&raw mut (*slot).lost).store(0, Ordering::Relaxed);
        atomic_wide(&raw mut (*slot).tail).store(0, Ordering::Relaxed);
        atomic(&raw mut (*slot).busy).store(0, Ordering::Relaxed);
        atomic(&raw mut (*slot).state).store(state::LIVE, Ordering::Release);
    }
}

/// Ends it: nothing is written to its ring from now on.
///
/// # Safety
/// The region is mapped, and the slot this thread's.
pub(crate) unsafe fn end(slot: *mut Slot) {
    // SAFETY: as the caller promises.
    unsafe {
        (*slot).comm = sys::thread_name();
        (*slot).ended_ns = sys::monotonic_ns();
        atomic(&raw mut (*slot).state).store(state::ENDED, Ordering::Release);
    }
}
