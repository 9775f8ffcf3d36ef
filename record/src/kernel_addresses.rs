//! Hides kernel addresses in a trace. They would tell readers of the trace where the kernel and its objects are in memory.
//!
//! Each address becomes an opaque number, the same one everywhere in a trace and different ones in different traces. The numbers come
//! from a permutation whose key is drawn at random and is not kept. Names, and offsets into functions and modules, stay.

use std::{collections::hash_map::RandomState, hash::BuildHasher as _};

use trace_format::{LockRow, Scope, Stack};

/// Rounds of the permutation: four make it as good as a random one.
const ROUNDS: u32 = 4;

/// The treatment of kernel addresses in a trace.
#[derive(Debug)]
pub(crate) enum KernelAddresses {
    /// They are written as they are.
    Kept,
    /// They are replaced by opaque numbers. The system seeds the key.
    Hidden(RandomState),
}

impl KernelAddresses {
    /// Returns a new treatment, with a key of its own.
    pub(crate) fn new(keep: bool) -> Self {
        if keep { Self::Kept } else { Self::Hidden(RandomState::new()) }
    }

    /// Replaces the addresses of kernel locks and of kernel frames.
    pub(crate) fn replace(&self, stacks: &mut [Stack], locks: &mut [LockRow]) {
        let Self::Hidden(key) = self else { return };
        let frames = stacks.iter_mut().flat_map(|stack| &mut stack.frames).filter(|frame| frame.kernel);
        let locks = locks.iter_mut().filter(|lock| lock.scope == Scope::Kernel);
        for address in frames.map(|frame| &mut frame.address).chain(locks.map(|lock| &mut lock.address)) {
            *address = address.map(|address| permute(key, address));
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

    use trace_format::{Frame, LockId, LockKind, StackId};

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
        let frame = |kernel| Frame { address: Some(ADDRESS), kernel, ..Frame::default() };
        let mut stacks = [Stack { id: StackId(0), frames: vec![frame(true), frame(false)] }];
        let mut locks = [lock(Scope::Kernel), lock(Scope::Process)];
        KernelAddresses::new(true).replace(&mut stacks, &mut locks);
        assert_eq!((stacks[0].frames[0].address, locks[0].address), (Some(ADDRESS), Some(ADDRESS)));
        KernelAddresses::new(false).replace(&mut stacks, &mut locks);
        assert_ne!(locks[0].address, Some(ADDRESS));
        assert_eq!(stacks[0].frames[0].address, locks[0].address, "the same number everywhere");
        assert_eq!((stacks[0].frames[1].address, locks[1].address), (Some(ADDRESS), Some(ADDRESS)));
    }

    #[test]
    fn different_addresses_have_different_numbers() {
        let key = RandomState::new();
        let numbers: BTreeSet<u64> = (0..10_000).map(|index| permute(&key, ADDRESS + 8 * index)).collect();
        assert_eq!(numbers.len(), 10_000);
        assert_ne!(permute(&RandomState::new(), ADDRESS), permute(&key, ADDRESS));
    }
}
