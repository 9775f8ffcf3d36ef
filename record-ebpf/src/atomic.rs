//! Atomic operations on integers in map values. Uprobe programs can be preempted in the middle of an addition, and the
//! counts have to be exact.

use core::intrinsics::{AtomicOrdering, atomic_cxchg, atomic_xadd, atomic_xchg};

/// With a weaker order, LLVM's BPF back end leaves out the fetch, even where its result is used.
const ORDER: AtomicOrdering = AtomicOrdering::SeqCst;

/// Adds and gives what was there before. `place` has to be a field of a map's value.
#[inline(always)]
pub(crate) unsafe fn add(place: *mut u64, amount: u64) -> u64 {
    // SAFETY: as for the caller.
    unsafe { atomic_xadd::<u64, u64, ORDER>(place, amount) }
}

/// Puts `value` there and gives what was there before. `place` has to be a field of a map's value.
#[inline(always)]
pub(crate) unsafe fn swap(place: *mut u64, value: u64) -> u64 {
    // SAFETY: as for the caller.
    unsafe { atomic_xchg::<u64, ORDER>(place, value) }
}

/// Puts `value` there if there is 0; whether it did. `place` has to be a field of a map's value.
#[inline(always)]
pub(crate) unsafe fn claim(place: *mut u64, value: u64) -> bool {
    // SAFETY: as for the caller.
    unsafe { atomic_cxchg::<u64, ORDER, ORDER>(place, 0, value).1 }
}
