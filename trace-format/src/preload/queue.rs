//! The parts of a pool: queues of free chunks and slots, links between chunks, and the limits of threads.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A queue of numbers with one producer, klock, and any number of consumers, the threads. Positions only
/// grow, so that a consumer that was interrupted cannot take a number twice.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Queue {
    /// Number of entries that were ever added. Written by klock.
    pub filled: AtomicU64,
    /// Zero.
    pub filled_padding: [u64; 7],
    /// Number of entries that were ever taken. Written by the threads.
    pub taken: AtomicU64,
    /// Zero.
    pub taken_padding: [u64; 7],
}

/// A queue with its entries, a power of two. An entry is the number, xor its index: entries of zero are the
/// numbers 0, 1, 2, ...
#[derive(Clone, Copy, Debug)]
pub struct Entries<'a> {
    pub(super) queue: &'a Queue,
    pub(super) entries: &'a [AtomicU32],
}

impl Entries<'_> {
    /// Returns the index of the entry at a position.
    const fn index(&self, position: u64) -> usize {
        position as usize & (self.entries.len() - 1)
    }

    /// Adds a number. For the only producer. The queue must have room, which it has if each number is in it
    /// at most once.
    pub fn push(&self, number: u32) {
        let position = self.queue.filled.load(Ordering::Relaxed);
        let index = self.index(position);
        if let Some(entry) = self.entries.get(index) {
            entry.store(number ^ index as u32, Ordering::Relaxed);
        }
        self.queue.filled.store(position.wrapping_add(1), Ordering::Release);
    }

    /// Takes the oldest number; `None` if there is none. Never waits: if it has to try again, another thread
    /// took a number.
    pub fn pop(&self) -> Option<u32> {
        let mut position = self.queue.taken.load(Ordering::Acquire);
        loop {
            if position >= self.queue.filled.load(Ordering::Acquire) {
                return None;
            }
            let index = self.index(position);
            let number = self.entries.get(index)?.load(Ordering::Relaxed) ^ index as u32;
            // The entry is overwritten only after it was taken. Then this fails.
            let next = position + 1;
            match self.queue.taken.compare_exchange(position, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(number),
                Err(now) => position = now,
            }
        }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> u64 {
        let taken = self.queue.taken.load(Ordering::Relaxed);
        self.queue.filled.load(Ordering::Relaxed).saturating_sub(taken)
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of entries that were ever added.
    pub fn filled(&self) -> u64 {
        self.queue.filled.load(Ordering::Acquire)
    }
}

/// The place where the records of a session continue: behind a chunk, or at the start of the session.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Link {
    /// 0 if there is no link yet, [`Next::Closed`] as `u32::MAX`, else the index of the next chunk plus 1.
    pub next: AtomicU32,
    /// Zero.
    pub padding: u32,
    /// Number of bytes of the session before the link.
    pub position: AtomicU64,
}

/// The target of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The records continue in this chunk.
    Chunk(u32),
    /// The chunk is finished. The records continue in the chunk to which the slot links. A thread closes a
    /// chunk only while the slot has no link that klock has not followed.
    Closed,
}

const CLOSED: u32 = u32::MAX;

impl Link {
    /// Removes the link.
    pub fn clear(&self) {
        self.next.store(0, Ordering::Release);
    }

    /// Whether there is no link.
    pub fn is_empty(&self) -> bool {
        self.next.load(Ordering::Acquire) == 0
    }

    /// Sets the link. `position` is the number of bytes of the session before it.
    pub fn set(&self, next: Next, position: u64) {
        let next = match next {
            Next::Chunk(chunk) => chunk.wrapping_add(1),
            Next::Closed => CLOSED,
        };
        self.position.store(position, Ordering::Relaxed);
        self.next.store(next, Ordering::Release);
    }

    /// Returns the link and its position; `None` if there is none yet.
    pub fn get(&self) -> Option<(Next, u64)> {
        let next = match self.next.load(Ordering::Acquire) {
            0 => return None,
            CLOSED => Next::Closed,
            next => Next::Chunk(next - 1),
        };
        Some((next, self.position.load(Ordering::Relaxed)))
    }
}

/// Values of a slot's limit that are not the end of its chunk. The thread may write up to the limit. To take
/// a chunk away, klock sets the limit to [`REVOKED`](limit::REVOKED). A thread that finds this sets the limit
/// again before it writes. If the thread is idle when every mark of a thread that saw the old limit must be
/// visible, klock sets [`NO_CHUNK`](limit::NO_CHUNK); one of the two compare-and-exchanges fails.
pub mod limit {
    /// klock is about to take the chunk.
    pub const REVOKED: u64 = 0;
    /// The thread has no chunk.
    pub const NO_CHUNK: u64 = 1;
    /// The thread has a chunk, but must report losses before it writes.
    pub const REPORT: u64 = 2;
}

#[cfg(test)]
mod tests;
