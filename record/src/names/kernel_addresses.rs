//! Hides kernel addresses in a trace. They would tell readers of the trace where the kernel and its objects
//! are in memory.
//!
//! Each address becomes an opaque number, the same one everywhere in a trace and different ones in different
//! traces. The numbers come from a permutation whose key is drawn at random and is not kept. Names, and
//! offsets into functions and modules, stay.

use std::{collections::hash_map::RandomState, hash::BuildHasher as _};

use trace_format::{LockRow, Scope};

/// Rounds of the permutation: four make it as good as a random one.
const ROUNDS: u32 = 4;

/// The treatment of kernel addresses in a trace.
#[derive(Clone, Debug)]
pub(crate) enum KernelAddresses {
    Kept,
    /// They are replaced by opaque numbers. The system seeds the key.
    Hidden(RandomState),
}

impl KernelAddresses {
    /// Returns a new treatment, with a key of its own.
    pub(crate) fn new(keep: bool) -> Self {
        if keep { Self::Kept } else { Self::Hidden(RandomState::new()) }
    }

    /// Returns the number that stands for a kernel address in the trace.
    pub(crate) fn shown(&self, address: u64) -> u64 {
        match self {
            Self::Kept => address,
            Self::Hidden(key) => permute(key, address),
        }
    }

    pub(crate) fn replace(&self, addresses: &mut [u64]) {
        addresses.iter_mut().for_each(|address| *address = self.shown(*address));
    }

    pub(crate) fn replace_locks(&self, locks: &mut [LockRow]) {
        for lock in locks.iter_mut().filter(|lock| lock.scope == Scope::Kernel) {
            lock.address = lock.address.map(|address| self.shown(address));
        }
    }
}

/// Maps a number to another one: a Feistel network of keyed hashes.
fn permute(key: &RandomState, number: u64) -> u64 {
    let (mut left, mut right) = ((number >> 32) as u32, number as u32);
    for round in 0..ROUNDS {
        (left, right) = (right, left ^ key.hash_one((round, right)) as u32);
    }
    u64::from(left) << 32 | u64::from(right)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use trace_format::{LockId, LockKind};

    use super::*;

    const ADDRESS: u64 = 0xffff_8881_0123_4560;

    fn lock(scope: Scope) -> LockRow {
        LockRow {
            id: LockId(0),
            address: Some(ADDRESS),
            kind: LockKind::Mutex,
            scope,
            pid: None,
            name: None,
            shared: None,
            init_stack: None,
            first_ns: 0,
            last_ns: 0,
        }
    }

    #[test]
    fn kernel_addresses_become_opaque_numbers_and_user_addresses_stay() {
        let replaced = |addresses: &KernelAddresses| {
            let (mut frames, mut locks) = ([ADDRESS], [lock(Scope::Kernel), lock(Scope::Process)]);
            addresses.replace(&mut frames);
            addresses.replace_locks(&mut locks);
            (frames[0], locks.map(|lock| lock.address.unwrap()))
        };
        assert_eq!(replaced(&KernelAddresses::new(true)), (ADDRESS, [ADDRESS; 2]));
        let hidden = KernelAddresses::new(false);
        let (frame, [kernel, user]) = replaced(&hidden);
        assert_ne!(frame, ADDRESS);
        assert_eq!([frame, kernel], [hidden.shown(ADDRESS); 2], "the same number everywhere");
        assert_eq!(user, ADDRESS);
    }

    #[test]
    fn different_addresses_have_different_numbers() {
        let key = RandomState::new();
        let numbers: BTreeSet<u64> = (0..10_000).map(|index| permute(&key, ADDRESS + 8 * index)).collect();
        assert_eq!(numbers.len(), 10_000);
        assert_ne!(permute(&RandomState::new(), ADDRESS), permute(&key, ADDRESS));
    }
}
