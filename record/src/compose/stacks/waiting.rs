//! Unwound stacks that wait for their events: stacks by CPU and number of the event in and out.
//!
//! The events of a CPU are numbered in the order in which they come, so nearly every stack is at the place of
//! its number. That is memory that the processor fetches in time, and a hash table's is not.

use rustc_hash::FxHashMap;

use crate::names::unwind::UnwoundId;

/// The age from which frames have no event any more: events are composed within two rounds of being drained.
/// If old frames were kept until the event numbers of their CPU wrap around, they would be given to another
/// event.
pub(crate) const MAX_AGE_NS: u64 = 10_000_000_000;
const PLACES: usize = 1 << 12;
/// No stack is dropped while fewer than this are not at their places. Every task that is off-CPU has one.
const MIN_LIMIT: usize = 1 << 16;

/// The CPU and the number of an event, and whether the stack is its peer's.
type Key = (u32, u32, bool);

/// An unwound stack, and the time at which it was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unwound {
    pub(crate) ts_ns: u64,
    pub(crate) tgid: u32,
    pub(crate) frames: UnwoundId,
    /// It was not walked itself: an equal copy had these frames.
    pub(crate) is_known: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// By CPU, and then by number. CPUs without stacks have no places.
    places: Vec<Vec<Option<(u32, bool, Unwound)>>>,
    /// Stacks whose place a later one has.
    others: FxHashMap<Key, Unwound>,
    /// The number of `others` from which those whose event never came are dropped.
    limit: usize,
}

impl Waiting {
    /// Adds a stack. Its event has no other one: a look for it among those without a place would find
    /// nothing, in a table that is larger than the caches.
    pub(crate) fn insert(&mut self, (cpu, seq, peer): Key, stack: Unwound) {
        let index = cpu as usize;
        if self.places.len() <= index {
            self.places.resize_with(index + 1, Vec::new);
        }
        let places = &mut self.places[index];
        if places.is_empty() {
            places.resize(PLACES, None);
        }
        let Some((seq, peer, before)) = places[seq as usize % PLACES].replace((seq, peer, stack)) else {
            return;
        };
        if self.others.len() >= self.limit {
            self.others.retain(|_, old| stack.ts_ns.saturating_sub(old.ts_ns) < MAX_AGE_NS);
            // So that a stack is looked at once or twice, however many are young.
            self.limit = (2 * self.others.len()).max(MIN_LIMIT);
        }
        self.others.insert((cpu, seq, peer), before);
    }

    /// Takes the stack of an event.
    pub(crate) fn take(&mut self, (cpu, seq, peer): Key) -> Option<Unwound> {
        let place = self.places.get_mut(cpu as usize)?.get_mut(seq as usize % PLACES)?;
        if let Some((_, _, stack)) = place.take_if(|place| (place.0, place.1) == (seq, peer)) {
            return Some(stack);
        }
        if self.others.is_empty() { None } else { self.others.remove(&(cpu, seq, peer)) }
    }

    /// Drops the stacks that `keep` does not select.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Unwound) -> bool) {
        for place in self.places.iter_mut().flatten() {
            place.take_if(|(_, _, stack)| !keep(stack));
        }
        self.others.retain(|_, stack| keep(stack));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn stacks_are_taken_as_from_a_table(
            steps in prop::collection::vec((0..2_u32, 0..6_u32, 0..3_u32, any::<bool>(), 0..8_u8), 0..200),
        ) {
            let (mut waiting, mut model) = (Waiting::default(), FxHashMap::default());
            for (number, (cpu, low, high, peer, step)) in (0..).zip(steps) {
                let key = (cpu, low + high * PLACES as u32, peer);
                let stack = Unwound { ts_ns: number, tgid: low, frames: UnwoundId(number as u32), is_known: peer };
                match step {
                    // An event has one stack.
                    0..4 if !model.contains_key(&key) => {
                        waiting.insert(key, stack);
                        model.insert(key, stack);
                    }
                    0..7 => prop_assert_eq!(waiting.take(key), model.remove(&key)),
                    _ => {
                        waiting.retain(|stack| stack.tgid != low);
                        model.retain(|_, stack| stack.tgid != low);
                    }
                }
            }
            for (key, stack) in model {
                prop_assert_eq!(waiting.take(key), Some(stack));
            }
        }
    }
}
