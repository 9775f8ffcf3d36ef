//! The stacks that the BPF programs recognize, as entries of the programs' maps. They save two fifths of what
//! an event costs klock.
//!
//! A program must never read an entry that is being written. The places of the array are used one after the
//! other, one half of them at a time: when a half is full, all keys are removed, and the other half is used,
//! whose keys were removed long ago.

use std::fmt;

use aya::maps::{Array, HashMap, MapData};
use rustc_hash::FxHashMap;
use trace_format::{
    known_stack::{KnownStack, KnownStackKey, VARIANTS},
    wire::stack,
};

use crate::system::priority::with_raised_priority;

/// Time after which no program reads the place of a removed key any more, in ns. Programs take microseconds,
/// but may be preempted.
const REST_NS: u64 = 10_000_000_000;
/// Maximum number of stacks that are added at once.
const MAX_AT_ONCE: usize = 256;

/// The maps that the programs read.
pub(crate) trait Maps: fmt::Debug {
    /// Carries out changes in their order. Returns how many of them could be made; the others were not tried.
    fn change(&mut self, changes: &[Change]) -> usize;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Writes a stack to a place, and then has its key lead there.
    Add(u32, Box<KnownStack>),
    /// Removes a key, if it exists.
    Remove(KnownStackKey),
}

/// The values by which the variants of each key differ for an event, by the key of the first one.
type Variants = FxHashMap<KnownStackKey, Vec<(i32, i32)>>;

#[derive(Debug)]
pub(crate) struct KnownStacks {
    maps: Box<dyn Maps>,
    places: u32,
    /// Number of bytes that programs copy of a stack.
    pub(crate) copied: u32,
    /// Stacks to add, with the time of the copy that was unwound.
    waiting: Vec<(u64, Box<KnownStack>)>,
    known: FxHashMap<u32, Variants>,
    /// The half of the places in use, and the number of used ones in it.
    half: u32,
    used: u32,
    /// The time since which the other half is not in use.
    left_ns: Option<u64>,
}

impl KnownStacks {
    /// Starts without stacks. The array has this many places; programs copy `copied` bytes of a stack.
    pub(crate) fn new(maps: Box<dyn Maps>, places: u32, copied: u32) -> Self {
        Self {
            maps,
            places,
            copied,
            waiting: Vec::new(),
            known: FxHashMap::default(),
            half: 0,
            used: 0,
            left_ns: None,
        }
    }

    /// Adds a stack, of which a copy from this time was unwound, with the next [`flush`](Self::flush).
    pub(crate) fn add(&mut self, ts_ns: u64, stack: Box<KnownStack>) {
        if self.waiting.len() < MAX_AT_ONCE {
            self.waiting.push((ts_ns, stack));
        }
    }

    pub(crate) fn forget(&mut self, tgid: u32) {
        self.waiting.retain(|(_, stack)| stack.key.incarnation.tgid != tgid);
        let removed = self.known.remove(&tgid);
        self.remove(removed.into_iter().flatten());
    }

    /// Forgets the stacks of all processes.
    pub(crate) fn forget_all(&mut self) {
        self.waiting.clear();
        let removed = std::mem::take(&mut self.known);
        self.remove(removed.into_values().flatten());
    }

    /// Gives the programs the stacks whose copies are not after `complete_ns`: executions of programs before
    /// that time are known.
    pub(crate) fn flush(&mut self, complete_ns: u64) {
        let mut changes = Vec::new();
        for (ts_ns, mut stack) in std::mem::take(&mut self.waiting) {
            if ts_ns > complete_ns {
                self.waiting.push((ts_ns, stack));
                continue;
            }
            let values = (stack.stack, stack.by_pointers);
            if self.known_variants(&stack.key).contains(&values) {
                continue;
            }
            if self.used == self.places / 2 {
                self.change(&std::mem::take(&mut changes));
                if !self.use_other_half(complete_ns) {
                    break;
                }
            }
            let variants = self.variants(&stack.key);
            if variants.len() == VARIANTS as usize {
                continue;
            }
            stack.key.variant = variants.len() as u32;
            variants.push(values);
            changes.push(Change::Add(self.half * (self.places / 2) + self.used, stack));
            self.used += 1;
        }
        self.change(&changes);
    }

    /// Forgets all stacks, and goes on with the other half of the places. Returns `false` if programs may
    /// still read that one.
    fn use_other_half(&mut self, now_ns: u64) -> bool {
        if self.places < 2 || self.left_ns.is_some_and(|left_ns| now_ns < left_ns.saturating_add(REST_NS)) {
            return false;
        }
        let removed = std::mem::take(&mut self.known);
        self.remove(removed.into_values().flatten());
        (self.half, self.used, self.left_ns) = (1 - self.half, 0, Some(now_ns));
        true
    }

    fn variants(&mut self, key: &KnownStackKey) -> &mut Vec<(i32, i32)> {
        self.known.entry(key.incarnation.tgid).or_default().entry(first(key)).or_default()
    }

    fn known_variants(&self, key: &KnownStackKey) -> &[(i32, i32)] {
        let of_process = self.known.get(&key.incarnation.tgid);
        of_process.and_then(|variants| variants.get(&first(key))).map_or(&[], Vec::as_slice)
    }

    fn remove(&mut self, removed: impl Iterator<Item = (KnownStackKey, Vec<(i32, i32)>)>) {
        // The last one first: a variant exists only if those before it do.
        let keys = removed.flat_map(|(key, variants)| {
            (0..variants.len() as u32).rev().map(move |variant| KnownStackKey { variant, ..key })
        });
        let changes: Vec<Change> = keys.map(Change::Remove).collect();
        self.change(&changes);
    }

    /// Makes changes. If the kernel refuses one, programs recognize fewer stacks, and copy the others as
    /// before.
    fn change(&mut self, changes: &[Change]) {
        let made = if changes.is_empty() { 0 } else { self.maps.change(changes) };
        for change in &changes[made..] {
            if let Change::Add(_, stack) = change {
                self.variants(&stack.key).truncate(stack.key.variant as usize);
            }
        }
    }
}

fn first(key: &KnownStackKey) -> KnownStackKey {
    KnownStackKey { variant: 0, ..*key }
}

/// Whether a stack by frame pointers can be compared: inline and lost ones are not numbered.
pub(crate) fn is_comparable(by_pointers: i32) -> bool {
    by_pointers >= 0 || by_pointers == stack::ABSENT
}

#[cfg(test)]
pub(crate) mod tests;

// The maps of the BPF programs in the kernel.

/// [`KnownStackKey`] in a type of this crate, for which aya's `Pod` can be implemented.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Key(KnownStackKey);

// SAFETY: repr(transparent) over a repr(C) struct of integers, with its padding written out; every bit
// pattern is valid.
unsafe impl aya::Pod for Key {}

/// [`KnownStack`], likewise.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Value(KnownStack);

// SAFETY: as above.
unsafe impl aya::Pod for Value {}

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
