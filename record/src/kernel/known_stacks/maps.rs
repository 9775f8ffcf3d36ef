//! The maps of the BPF programs in the kernel.

use std::fmt;

use aya::maps::{Array, HashMap, MapData};
use trace_format::known_stack::{KnownStack, KnownStackKey};

use super::{Change, Maps};
use crate::system::priority::with_raised_priority;

/// [`KnownStackKey`] in a type of this crate, for which aya's `Pod` can be implemented.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Key(KnownStackKey);

// SAFETY: repr(transparent) over a repr(C) struct of integers, with its padding written out; every bit pattern is valid.
unsafe impl aya::Pod for Key {}

/// [`KnownStack`], likewise.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Value(KnownStack);

// SAFETY: as above.
unsafe impl aya::Pod for Value {}

/// The maps of the loaded programs.
pub(crate) struct ProgramMaps {
    pub(crate) keys: HashMap<MapData, Key, u32>,
    pub(crate) stacks: Array<MapData, Value>,
}

impl fmt::Debug for ProgramMaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgramMaps").field("places", &self.stacks.len()).finish_non_exhaustive()
    }
}

impl Maps for ProgramMaps {
    fn change(&mut self, changes: &[Change]) -> usize {
        let Self { keys, stacks } = self;
        let mut make = |change: &Change| match change {
            Change::Add(place, stack) => {
                stacks.set(*place, Value(**stack), 0)?;
                keys.insert(Key(stack.key), *place, 0)
            }
            // The kernel may have refused it.
            Change::Remove(key) => keys.remove(&Key(*key)).or(Ok(())),
        };
        with_raised_priority(|| changes.iter().take_while(|change| make(change).is_ok()).count())
    }
}
