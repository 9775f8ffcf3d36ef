//! Atomic operations on integers in map values. Counts have to be exact although uprobe programs can be
//! preempted.
//!
//! Kernels before 5.12 have a single atomic operation, an addition without a result. On these kernels no task
//! can preempt a program (`migrate_disable` is `preempt_disable` up to 5.10). Only programs in interrupts can
//! come in between, and they finish and restore the guard before the interrupted program continues. So
//! reading and then adding is sufficient.

#[cfg(not(bpf_without_fetch))]
pub(crate) use fetching::{add, claim, swap};
#[cfg(bpf_without_fetch)]
pub(crate) use plain::{add, claim, swap};

#[cfg(not(bpf_without_fetch))]
mod fetching {
    use core::intrinsics::{AtomicOrdering, atomic_cxchg, atomic_xadd, atomic_xchg};

    /// With a weaker order, LLVM's BPF backend omits the fetch even if its result is used.
    const ORDER: AtomicOrdering = AtomicOrdering::SeqCst;

    /// Adds `amount` and returns the previous value. `field` must be a field of a map value.
    #[inline(always)]
    pub(crate) unsafe fn add(field: *mut u64, amount: u64) -> u64 {
        // SAFETY: the caller's obligation.
        unsafe { atomic_xadd::<u64, u64, ORDER>(field, amount) }
    }

    /// Stores `value` and returns the previous value. `field` must be a field of a map value.
    #[inline(always)]
    pub(crate) unsafe fn swap(field: *mut u64, value: u64) -> u64 {
        // SAFETY: the caller's obligation.
        unsafe { atomic_xchg::<u64, ORDER>(field, value) }
    }

    /// Stores `value` if the field is 0; returns whether it was. `field` must be a field of a map value.
    #[inline(always)]
    pub(crate) unsafe fn claim(field: *mut u64, value: u64) -> bool {
        // SAFETY: the caller's obligation.
        unsafe { atomic_cxchg::<u64, ORDER, ORDER>(field, 0, value).1 }
    }
}

#[cfg(bpf_without_fetch)]
mod plain {
    use core::{
        intrinsics::{AtomicOrdering, atomic_xadd},
        ptr::{read_volatile, write_volatile},
    };

    #[inline(always)]
    unsafe fn add_without_fetch(field: *mut u64, amount: u64) {
        // SAFETY: the caller's obligation.
        unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(field, amount) };
    }

    /// As `fetching::add`.
    #[inline(always)]
    pub(crate) unsafe fn add(field: *mut u64, amount: u64) -> u64 {
        // SAFETY: the caller's obligation.
        unsafe {
            let before = read_volatile(field);
            add_without_fetch(field, amount);
            before
        }
    }

    /// As `fetching::swap`. Keeps what an interrupt added after the read.
    #[inline(always)]
    pub(crate) unsafe fn swap(field: *mut u64, value: u64) -> u64 {
        // SAFETY: the caller's obligation.
        unsafe {
            let before = read_volatile(field);
            add_without_fetch(field, value.wrapping_sub(before));
            before
        }
    }

    /// As `fetching::claim`.
    #[inline(always)]
    pub(crate) unsafe fn claim(field: *mut u64, value: u64) -> bool {
        // SAFETY: the caller's obligation.
        unsafe {
            let free = read_volatile(field) == 0;
            if free {
                write_volatile(field, value);
            }
            free
        }
    }
}
