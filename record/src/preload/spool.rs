//! The queue of drained batches between the thread that reads the chunks, which must not wait, and the recording, which may. When
//! it is full, the chunks are not read: the pools fill, and each thread counts the records that find no room.

use std::{
    collections::VecDeque,
    fs,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{batch::Batch, records::Unit};

#[derive(Debug)]
pub(crate) struct Spool {
    inner: Mutex<Inner>,
    limit: usize,
}

#[derive(Debug, Default)]
struct Inner {
    batches: VecDeque<Batch>,
    units: usize,
    /// Units of all batches that were ever added.
    added: u64,
    /// Buffers to be used again.
    free: Vec<Vec<Unit>>,
}

const MAX_BYTES: usize = 1 << 30;
/// Maximum fraction of the machine's memory in the queue.
const MEMORY_FRACTION: usize = 8;
/// Maximum number and size of free buffers: the queue's limit counts units, not buffers.
const MAX_FREE: usize = 64;
const MAX_FREE_UNITS: usize = 1 << 16;

impl Spool {
    /// Creates a queue with as much room as this machine can spare.
    pub(crate) fn new() -> Self {
        Self::with_room(units_in_memory(MEMORY_FRACTION, MAX_BYTES))
    }

    /// Creates a queue with room for `limit` units.
    pub(crate) fn with_room(limit: usize) -> Self {
        Self { inner: Mutex::default(), limit }
    }

    /// Whether nothing more should be drained.
    pub(crate) fn is_full(&self) -> bool {
        self.lock().units >= self.limit
    }

    /// Whether it is so full that it must be emptied even if there is backpressure.
    pub(crate) fn is_half_full(&self) -> bool {
        self.lock().units >= self.limit / 2
    }

    /// Returns the number of units that were ever added.
    pub(crate) fn added(&self) -> u64 {
        self.lock().added
    }

    pub(crate) fn push(&self, batch: Batch) {
        let units = batch.units();
        let mut inner = self.lock();
        inner.units += units;
        inner.added += units as u64;
        inner.batches.push_back(batch);
    }

    /// Takes the oldest batch, and returns free buffers to the queue.
    pub(crate) fn pop(&self, free: Vec<Vec<Unit>>) -> Option<Batch> {
        let mut inner = self.lock();
        let room = MAX_FREE.saturating_sub(inner.free.len());
        let small = free.into_iter().filter(|buffer| buffer.capacity() <= MAX_FREE_UNITS);
        inner.free.extend(small.take(room));
        let batch = inner.batches.pop_front()?;
        inner.units -= batch.units();
        Some(batch)
    }

    /// Whether no batch is in the queue.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().batches.is_empty()
    }

    pub(crate) fn buffer(&self) -> Vec<Unit> {
        let mut buffer = self.lock().free.pop().unwrap_or_default();
        buffer.clear();
        buffer
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Spool {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the number of units in a fraction of the machine's memory, or in `max_bytes` if that is less.
pub(crate) fn units_in_memory(fraction: usize, max_bytes: usize) -> usize {
    memory_bytes().map_or(max_bytes, |all| (all / fraction).min(max_bytes)) / size_of::<Unit>()
}

/// The size of the machine's memory.
pub(crate) fn memory_bytes() -> Option<usize> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<usize>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::{super::batch::Chunk, *};

    fn batch(units: usize) -> Batch {
        Batch { chunks: vec![(0, Chunk::Units(vec![[0, 0]; units]))], ..Batch::default() }
    }

    #[test]
    fn the_queue_fills_by_units_and_empties_in_order() {
        let spool = Spool::with_room(10);
        spool.push(batch(4));
        assert!(!spool.is_full() && !spool.is_half_full());
        spool.push(batch(6));
        assert!(spool.is_full() && spool.is_half_full());
        assert_eq!(spool.pop(vec![Vec::with_capacity(7)]).unwrap().units(), 4);
        assert!(!spool.is_full());
        assert_eq!(spool.buffer().capacity(), 7);
        assert_eq!(spool.pop(vec![]).unwrap().units(), 6);
        assert!(spool.pop(vec![]).is_none() && spool.is_empty());
        assert_eq!(spool.added(), 10);
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(memory_bytes().unwrap() > 16 << 20);
    }
}
