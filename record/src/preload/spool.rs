//! What was drained, on its way to be put in order: a queue between the thread that empties the rings, which must not wait,
//! and the recording, which may. When it is full the rings are left alone: they fill, and what finds no room is counted in its
//! place.

use std::{
    collections::VecDeque,
    fs,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{
    lanes::{Batch, Part},
    records::Unit,
};

/// The queue.
#[derive(Debug)]
pub struct Spool {
    inner: Mutex<Inner>,
    limit: usize,
}

#[derive(Debug, Default)]
struct Inner {
    batches: VecDeque<Batch>,
    /// Units in them.
    units: usize,
    /// Buffers to be used again.
    spent: Vec<Vec<Unit>>,
}

/// Bytes that may wait.
const MOST_BYTES: usize = 1 << 30;
/// Of the machine's memory, in parts: no more waits than one of these.
const PART_OF_MEMORY: usize = 8;
/// Buffers that are kept, each no larger than this: what waits in the queue is counted by its units, not by its buffers.
const MOST_SPENT: usize = 64;
const MOST_KEPT_UNITS: usize = 1 << 16;

impl Spool {
    /// With room for as much as this machine can spare.
    pub fn new() -> Self {
        let bytes = memory_bytes().map_or(MOST_BYTES, |all| (all / PART_OF_MEMORY).min(MOST_BYTES));
        Self::with_room(bytes / size_of::<Unit>())
    }

    /// With room for so many units.
    pub fn with_room(limit: usize) -> Self {
        Self { inner: Mutex::default(), limit }
    }

    /// Whether nothing more should be drained.
    pub fn is_full(&self) -> bool {
        self.lock().units >= self.limit
    }

    /// Whether it is filled so far that it must be emptied, whoever else wants to run.
    pub fn is_half_full(&self) -> bool {
        self.lock().units >= self.limit / 2
    }

    /// Puts a batch in.
    pub fn push(&self, batch: Batch) {
        let units = units_of(&batch);
        let mut inner = self.lock();
        inner.units += units;
        inner.batches.push_back(batch);
    }

    /// Takes the oldest batch out, and buffers back.
    pub fn pop(&self, spent: Vec<Vec<Unit>>) -> Option<Batch> {
        let mut inner = self.lock();
        let room = MOST_SPENT.saturating_sub(inner.spent.len());
        let small = spent.into_iter().filter(|buffer| buffer.capacity() <= MOST_KEPT_UNITS);
        inner.spent.extend(small.take(room));
        let batch = inner.batches.pop_front()?;
        inner.units -= units_of(&batch);
        Some(batch)
    }

    /// Whether no batch waits.
    pub fn is_empty(&self) -> bool {
        self.lock().batches.is_empty()
    }

    /// An empty buffer.
    pub fn buffer(&self) -> Vec<Unit> {
        let mut buffer = self.lock().spent.pop().unwrap_or_default();
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

fn units_of(batch: &Batch) -> usize {
    let units = |part: &Part| if let Part::Units(units) = part { units.len() } else { 0 };
    batch.parts.iter().map(|(_, part)| units(part)).sum()
}

/// The machine's memory.
pub fn memory_bytes() -> Option<usize> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<usize>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(units: usize) -> Batch {
        Batch { parts: vec![(0, Part::Units(vec![[0, 0]; units]))], ..Batch::default() }
    }

    #[test]
    fn the_queue_is_full_by_what_waits_in_it_and_empties_in_order() {
        let spool = Spool::with_room(10);
        spool.push(batch(4));
        assert!(!spool.is_full() && !spool.is_half_full());
        spool.push(batch(6));
        assert!(spool.is_full() && spool.is_half_full());
        assert_eq!(units_of(&spool.pop(vec![Vec::with_capacity(7)]).unwrap()), 4);
        assert!(!spool.is_full());
        assert_eq!(spool.buffer().capacity(), 7);
        assert_eq!(units_of(&spool.pop(vec![]).unwrap()), 6);
        assert!(spool.pop(vec![]).is_none() && spool.is_empty());
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(memory_bytes().unwrap() > 16 << 20);
    }
}
