//! The ring buffers of the kernel side, from maps to borrowed bytes. Nothing is copied or decoded here.

use aya::maps::{MapData, RingBuf};

/// Maximum events of one ring in one drain: somewhat more than a ring of the default size holds.
const MAX_EVENTS: usize = 100_000;

/// Distance at which events are prefetched, in bytes: some events.
const EVENTS_AHEAD: usize = 512;
/// Maximum number of cache lines of an event.
const EVENT_LINES: usize = 2;
/// Cache lines of a descriptor that are prefetched: its header, and the part of a stack that most walks read.
const DESCRIPTOR_LINES: usize = 6;

/// The rings of all CPUs: one per CPU, then another one per CPU for programs that interrupted another
/// program.
pub(crate) struct Rings {
    events: Vec<RingBuf<MapData>>,
    descriptors: Vec<RingBuf<MapData>>,
}

/// A record, borrowed from its ring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item<'a> {
    Event(&'a [u8]),
    Descriptor(&'a [u8]),
}

impl Rings {
    pub(crate) fn new(events: Vec<RingBuf<MapData>>, descriptors: Vec<RingBuf<MapData>>) -> Self {
        Self { events, descriptors }
    }

    /// Passes all records to `take`: events first, then descriptors. A program writes the descriptors of an
    /// event before the event, so they come in the same call.
    ///
    /// If a CPU records as fast as it is drained, draining stops at a limit; such CPUs are returned.
    pub(crate) fn drain(&mut self, take: &mut dyn FnMut(Item<'_>)) -> Vec<u32> {
        let mut unfinished = Vec::new();
        let cpus = self.events.len() / 2;
        for (cpu, ring) in (0..cpus).chain(0..cpus).zip(&mut self.events) {
            let mut taken = 0;
            while let Some(item) = ring.next() {
                prefetch(item.as_ptr().wrapping_add(EVENTS_AHEAD), EVENT_LINES);
                take(Item::Event(&item));
                taken += 1;
                if taken == MAX_EVENTS {
                    unfinished.extend(u32::try_from(cpu));
                    break;
                }
            }
        }
        for ring in &mut self.descriptors {
            while let Some(item) = ring.next() {
                // Copies of stacks are so long that the processor does not guess where the next one is.
                prefetch(item.as_ptr().wrapping_add(item.len()), DESCRIPTOR_LINES);
                take(Item::Descriptor(&item));
            }
        }
        unfinished
    }
}

/// Asks the processor for cache lines, which another one has written.
fn prefetch(from: *const u8, lines: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..lines {
        // SAFETY: a prefetch accesses no memory as far as the program is concerned, so any address is valid.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
                from.wrapping_add(line * 64).cast(),
            );
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (from, lines);
}
