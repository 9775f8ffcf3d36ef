//! The rings, from maps to borrowed bytes. Nothing is copied or decoded here.

use std::fmt;

use aya::maps::{MapData, RingBuf};

/// Events of one CPU that one call hands over at most: somewhat more than a ring of the default size holds.
const MOST_OF_ONE_CPU: usize = 100_000;

/// The rings of all CPUs: one for each, and then once more one for each, for programs that ran inside another one.
pub struct Rings {
    events: Vec<RingBuf<MapData>>,
    descriptors: Vec<RingBuf<MapData>>,
}

impl fmt::Debug for Rings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rings").field("cpus", &(self.events.len() / 2)).finish_non_exhaustive()
    }
}

/// A record, valid during the call.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// From a ring of events.
    Event(&'a [u8]),
    /// From a ring of descriptors.
    Descriptor(&'a [u8]),
}

impl Rings {
    pub(crate) fn new(events: Vec<RingBuf<MapData>>, descriptors: Vec<RingBuf<MapData>>) -> Self {
        Self { events, descriptors }
    }

    /// Hands over every record that is there: events first, then descriptors. A program writes the descriptors of an
    /// event before the event, so when an event was seen, its descriptors come in the same call.
    ///
    /// Of a CPU that records as fast as we read, only so much is taken that the call ends; such CPUs are returned.
    pub fn drain(&mut self, take: &mut dyn FnMut(Item<'_>)) -> Vec<u32> {
        let mut unfinished = Vec::new();
        let cpus = self.events.len() / 2;
        for (cpu, ring) in (0..cpus).chain(0..cpus).zip(&mut self.events) {
            let mut taken = 0;
            while let Some(item) = ring.next() {
                take(Item::Event(&item));
                taken += 1;
                if taken == MOST_OF_ONE_CPU {
                    unfinished.extend(u32::try_from(cpu));
                    break;
                }
            }
        }
        for ring in &mut self.descriptors {
            while let Some(item) = ring.next() {
                take(Item::Descriptor(&item));
            }
        }
        unfinished
    }
}
