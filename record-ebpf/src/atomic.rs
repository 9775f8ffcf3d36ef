//! Atomic operations on integers in map values. Uprobe programs can be preempted in the middle of an addition, and the
//! counts have to be exact.
//!
//! Kernels before 5.12 have one atomic operation, an addition that tells nothing. There no task can preempt a program
//! either (`migrate_disable` is `preempt_disable` up to 5.10): only interrupts come in between, and their programs are
//! over, with the guard as it was, when the one that they interrupted goes on. So a reading and then an addition do.

#[cfg(not(bpf_without_fetch))]
pub(crate) use fetching::{add, claim, swap};
#[cfg(bpf_without_fetch)]
pub(crate) use plain::{add, claim, swap};

#[cfg(not(bpf_without_fetch))]
mod fetching {
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
}

#[cfg(bpf_without_fetch)]
mod plain {
    use core::{
        intrinsics::{AtomicOrdering, atomic_xadd},
        ptr::{read_volatile, write_volatile},
    };

    #[inline(always)]
    unsafe fn just_add(place: *mut u64, amount: u64) {
        // SAFETY: as for the caller.
        unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(place, amount) };
    }

    /// See the other one.
    #[inline(always)]
    pub(crate) unsafe fn add(place: *mut u64, amount: u64) -> u64 {
        // SAFETY: as for the caller.
        unsafe {
            let before = read_volatile(place);
            just_add(place, amount);
            before
        }
    }

    /// See the other one. What was added since the reading stays.
    #[inline(always)]
    pub(crate) unsafe fn swap(place: *mut u64, value: u64) -> u64 {
        // SAFETY: as for the caller.
        unsafe {
            let before = read_volatile(place);
            just_add(place, value.wrapping_sub(before));
            before
        }
    }

    /// See the other one.
    #[inline(always)]
    pub(crate) unsafe fn claim(place: *mut u64, value: u64) -> bool {
        // SAFETY: as for the caller.
        unsafe {
            let free = read_volatile(place) == 0;
            if free {
                write_volatile(place, value);
            }
            free
        }
    }
}
