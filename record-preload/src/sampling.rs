//! Sampling of acquisitions: of the calls that do not wait, each is recorded with the same probability. Calls
//! that wait are all recorded, and so is the release of each recorded acquisition: a thread remembers the
//! locks that it holds by these.

use crate::{mutex_fields::MutexFields, real::Lock};

/// Locks that a thread remembers. It forgets the oldest one for a further one: another thread released it, or
/// its release is not recorded.
const MAX_HELD: usize = 32;

/// What a thread needs to sample. All zeros records no call that does not wait.
#[derive(Debug)]
pub(crate) struct Sampling {
    /// A call is drawn if a random number of 32 bits is below.
    below: u32,
    count: u32,
    random: u64,
    /// The recorded holds, the oldest first: a lock as many times as it was acquired.
    held: [usize; MAX_HELD],
}

/// Whether a call is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Draw {
    /// The thread does not record.
    Forward,
    Record,
    /// Only a wait is recorded.
    Skip,
}

impl Sampling {
    /// Starts without holds. `below` is the bound of the region, `seed` differs between threads.
    pub(crate) fn new(below: u32, seed: u64) -> Self {
        Self { below, count: 0, random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), held: [0; MAX_HELD] }
    }

    /// Draws a random number, for each call one.
    #[inline(always)]
    fn is_drawn(&mut self) -> bool {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        ((self.random >> 32) as u32) < self.below
    }

    /// Remembers a recorded acquisition.
    pub(crate) fn hold(&mut self, lock: Lock) {
        if self.count as usize == MAX_HELD {
            self.held.copy_within(1.., 0);
            self.count -= 1;
        }
        if let Some(free) = self.held.get_mut(self.count as usize) {
            *free = lock.addr();
            self.count += 1;
        }
    }

    /// Decides whether a call of this thread that may take a lock is recorded if it does not wait. A further
    /// acquisition by the owner of a recursive mutex is recorded with its first one.
    #[inline(always)]
    pub(crate) unsafe fn draw(&mut self, lock: Lock, is_mutex: bool, tid: u32) -> Draw {
        if self.count > 0 && self.has(lock) {
            return Draw::Record;
        }
        let is_again = || {
            // SAFETY: the caller's obligation.
            let mutex = unsafe { MutexFields::of(lock) };
            is_mutex && mutex.is_recursive() && mutex.owner() == tid
        };
        if self.is_drawn() && !is_again() { Draw::Record } else { Draw::Skip }
    }

    /// Returns the place of a recorded hold.
    #[inline(always)]
    fn find(&self, lock: Lock) -> Option<usize> {
        self.held.get(..self.count as usize)?.iter().rposition(|&held| held == lock.addr())
    }

    /// Whether a hold of the lock is recorded.
    pub(crate) fn has(&self, lock: Lock) -> bool {
        self.find(lock).is_some()
    }

    /// Forgets a hold. Returns whether it was recorded.
    #[inline(always)]
    pub(crate) fn release(&mut self, lock: Lock) -> bool {
        let Some(at) = self.find(lock) else { return false };
        self.held.copy_within(at + 1..self.count as usize, at);
        self.count -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(address: usize) -> Lock {
        core::ptr::without_provenance_mut(address)
    }

    #[test]
    fn one_in_n_calls_is_drawn() {
        for n in [2_u64, 10, 1000] {
            let mut sampling = Sampling::new(((1_u64 << 32) / n) as u32, 7);
            let drawn = (0..1_000_000).filter(|_| sampling.is_drawn()).count() as f64;
            let (mean, sigma) = (1e6 / n as f64, (1e6 / n as f64).sqrt());
            assert!((drawn - mean).abs() < 7.0 * sigma, "{drawn} of a million, one in {n}");
        }
    }

    #[test]
    fn a_release_is_recorded_as_often_as_the_acquisition_and_the_oldest_hold_gives_way() {
        let mut sampling = Sampling::new(0, 1);
        for at in [8, 16, 8] {
            sampling.hold(lock(at));
        }
        let released = [8, 8, 8, 16, 16].map(|at| sampling.release(lock(at)));
        assert_eq!(released, [true, true, false, true, false]);
        (1..=MAX_HELD + 1).for_each(|at| sampling.hold(lock(at)));
        assert!(!sampling.has(lock(1)) && sampling.has(lock(2)) && sampling.has(lock(MAX_HELD + 1)));
    }
}
