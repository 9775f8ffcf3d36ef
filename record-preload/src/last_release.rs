//! The thread that last released each mutex. If the thread that acquires a mutex released it last, no other
//! thread's release allowed the acquisition, and the clock can be read without waiting for what came before.
//!
//! A table has a place for each mutex, which others share. Whoever releases a mutex writes both into its
//! place before the mutex is free, so that the next owner reads that, or what was written later. A place that
//! holds another mutex means only that the answer is no.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::real::Lock;

const INDEX_BITS: u32 = 14;
const INDEX: u64 = (1 << INDEX_BITS) - 1;
/// The upper half: the part of the mutex's address that its place does not tell. The lower half: the thread
/// id. 0 if there is none.
static PLACES: [AtomicU64; 1 << INDEX_BITS] = [const { AtomicU64::new(0) }; 1 << INDEX_BITS];

/// Returns the place of a mutex, and the part of its address that the place does not tell. `None` if that is
/// too large: no address of a user program is, unless the mutex is not aligned.
#[inline(always)]
fn place_of(mutex: Lock) -> Option<(&'static AtomicU64, u64)> {
    // The lowest two bits, which are 0, become the highest ones.
    let address = (mutex as u64).rotate_right(2);
    let rest = address >> INDEX_BITS;
    // From the rest, the place and this number follow the other bits.
    let index = (address ^ rest.wrapping_mul(0x9e37_79b9) >> 16) & INDEX;
    (rest <= u32::MAX.into()).then(|| (&PLACES[index as usize], rest))
}

/// Fetches the place of a mutex that this thread is about to lock, so that both come at the same time if
/// another processor has them.
#[inline(always)]
pub(crate) fn prefetch(mutex: Lock) {
    if let Some((place, _)) = place_of(mutex) {
        // SAFETY: a prefetch has no effect but on caches.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            core::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
            #[cfg(target_arch = "aarch64")]
            core::arch::asm!("prfm pstl1keep, [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
        }
    }
}

/// Returns whether this thread was the last one to release the mutex, which it holds; `false` if that is not
/// known.
#[inline(always)]
pub(crate) fn was_by(mutex: Lock, tid: u32) -> bool {
    place_of(mutex).is_some_and(|(place, rest)| place.load(Ordering::Relaxed) == entry(rest, tid))
}

/// Notes that this thread is about to release the mutex.
#[inline(always)]
pub(crate) fn note(mutex: Lock, tid: u32) {
    if let Some((place, rest)) = place_of(mutex) {
        let new = entry(rest, tid);
        // Writing costs more than reading, if other threads read the neighbours.
        if place.load(Ordering::Relaxed) != new {
            place.store(new, Ordering::Relaxed);
        }
    }
}

/// Notes that the mutex is about to be released by somebody, or was not released by whoever noted that.
#[inline]
pub(crate) fn forget(mutex: Lock) {
    if let Some((place, _)) = place_of(mutex)
        && place.load(Ordering::Relaxed) != 0
    {
        place.store(0, Ordering::Relaxed);
    }
}

#[inline(always)]
fn entry(rest: u64, tid: u32) -> u64 {
    rest << 32 | u64::from(tid)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn mutex(address: u64) -> Lock {
        core::ptr::without_provenance_mut(address as usize)
    }

    proptest! {
        /// Against a map of all mutexes: the answer is yes only if it is true, and always if no other mutex
        /// has used the place since.
        #[test]
        fn a_thread_was_the_last_one_only_if_it_was(
            steps in prop::collection::vec((0..3_u64, 0..1_u64 << 33, 1..4_u32, 0..8_u8), 1..200),
        ) {
            let (mut last, mut users): (HashMap<u64, u32>, HashMap<usize, u64>) = Default::default();
            for (few, many, tid, step) in steps {
                // Few mutexes that meet again, and many whose places others have.
                let address = if step & 1 == 0 { 0x7f00_0000_1000 + 40 * few } else { many << 14 | few << 2 };
                let (place, _) = place_of(mutex(address)).expect("the address of a user program");
                let place = core::ptr::from_ref(place).addr();
                match step / 2 {
                    0 => {
                        forget(mutex(address));
                        users.remove(&place);
                    }
                    1 | 2 => {
                        note(mutex(address), tid);
                        last.insert(address, tid);
                        users.insert(place, address);
                    }
                    _ => {
                        let is_known = users.get(&place) == Some(&address);
                        let expected = is_known && last.get(&address) == Some(&tid);
                        prop_assert_eq!(was_by(mutex(address), tid), expected);
                    }
                }
            }
            for place in users.keys() {
                // SAFETY: the address of a place.
                unsafe { &*core::ptr::with_exposed_provenance::<AtomicU64>(*place) }.store(0, Ordering::Relaxed);
            }
        }

        #[test]
        fn two_mutexes_of_one_place_differ_in_the_rest(one in 0..1_u64 << 46, other in 0..1_u64 << 46) {
            let [(first, rest), (second, other_rest)] =
                [one, other].map(|word| place_of(mutex(word << 2)).expect("the address of a user program"));
            prop_assert!(one == other || !core::ptr::eq(first, second) || rest != other_rest);
        }
    }

    #[test]
    fn of_an_address_that_no_aligned_mutex_has_nothing_is_known() {
        for address in [0x7f00_0000_1001, 0x7f00_0000_1002, 1 << 48, u64::MAX] {
            note(mutex(address), 1);
            assert!(!was_by(mutex(address), 1));
        }
    }
}
