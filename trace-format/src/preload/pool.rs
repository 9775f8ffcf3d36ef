//! The pool of a region: its chunks, and how they pass between klock and the threads of the process.
//!
//! Free chunks and free slots are in [`Queue`](super::queue::Queue)s that only klock fills. A thread takes a
//! chunk, fills it alone and links the next one to it ([`Link`]). klock follows the links with a [`Cursor`],
//! reads what is published, and puts each chunk that was read back into the pool. A thread that has not
//! written for a while loses its chunk ([`limit`](super::queue::limit)).
//!
//! The process may write anything there at any time. All indices are checked or masked; [`Owners`] decides in
//! klock's own memory which chunk a link may name.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{
    layout::{
        CHUNKS_OFFSET, FREE_CHUNKS_OFFSET, FREE_SLOTS_OFFSET, FRESH_CHUNKS_OFFSET, LINKS_OFFSET, MAX_CHUNKS,
        Region, SLOTS, UNIT_BYTES,
    },
    queue::{Entries, Link, Next},
};

/// The queues and links of a region.
#[derive(Clone, Copy, Debug)]
pub struct Pool<'a> {
    /// Slots that were used and are free.
    pub free_slots: Entries<'a>,
    /// Chunks that were used and are free. Their memory is there already, so they are taken first.
    pub used: Entries<'a>,
    /// Chunks that take no memory yet.
    pub fresh: Entries<'a>,
    /// The links behind the chunks.
    pub links: &'a [Link],
    stalled_at: &'a AtomicU64,
}

impl<'a> Pool<'a> {
    /// Returns the pool of a region with this number of chunks.
    ///
    /// # Safety
    /// The region is mapped up to [`CHUNKS_OFFSET`] as long as the pool is used.
    pub unsafe fn new(region: *mut Region, chunks: u32) -> Self {
        // SAFETY: the tables are in the mapped part, aligned, and consist of atomics.
        unsafe {
            let base = region.cast::<u8>();
            let entries = |offset: usize, count| {
                core::slice::from_raw_parts(base.add(offset).cast::<AtomicU32>(), count)
            };
            let count = (chunks as usize).min(MAX_CHUNKS);
            Self {
                free_slots: Entries {
                    queue: &(*region).free_slots,
                    entries: entries(FREE_SLOTS_OFFSET, SLOTS),
                },
                used: Entries {
                    queue: &(*region).free_chunks,
                    entries: entries(FREE_CHUNKS_OFFSET, MAX_CHUNKS),
                },
                fresh: Entries {
                    queue: &(*region).fresh_chunks,
                    entries: entries(FRESH_CHUNKS_OFFSET, MAX_CHUNKS),
                },
                links: core::slice::from_raw_parts(base.add(LINKS_OFFSET).cast::<Link>(), count),
                stalled_at: &(*region).stalled_at,
            }
        }
    }

    /// Takes a free chunk. Its link is empty.
    pub fn take(&self) -> Option<u32> {
        let chunk = self.used.pop().or_else(|| self.fresh.pop())?;
        self.links.get(chunk as usize)?.clear();
        Some(chunk)
    }

    /// Returns a number that grows when klock puts chunks into the pool.
    pub fn returned(&self) -> u64 {
        self.used.filled().wrapping_add(self.fresh.filled())
    }

    /// Notes that a thread waited in vain while klock had put this number of chunks into the pool.
    pub fn stall_at(&self, returned: u64) {
        self.stalled_at.store(returned.wrapping_add(1), Ordering::Relaxed);
    }

    /// Returns whether a thread has waited in vain and klock has put no chunk into the pool since then.
    pub fn is_stalled(&self) -> bool {
        self.stalled_at.load(Ordering::Relaxed) == self.returned().wrapping_add(1)
    }
}

/// Returns the offset of a chunk in its region.
pub const fn chunk_offset(chunk: u32, chunk_bytes: u64) -> u64 {
    CHUNKS_OFFSET as u64 + chunk as u64 * chunk_bytes
}

/// Decides which session reads a chunk.
pub trait Owners {
    /// Gives a chunk to the session that links to it. Returns `false` if there is no such chunk, or another
    /// session has it.
    fn claim(&mut self, chunk: u32) -> bool;
    /// Puts a chunk that was read back into the pool.
    fn release(&mut self, chunk: u32);
}

/// A link or a position in the process's memory is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid;

/// A part of a chunk that is published and not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The chunk.
    pub chunk: u32,
    /// The first byte in it.
    pub offset: u64,
    /// The number of bytes, at least one unit.
    pub bytes: u64,
}

/// The position up to which the records of a session were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The chunk that is being read.
    chunk: Option<u32>,
    /// Number of bytes of the session before that chunk.
    start: u64,
    /// Number of bytes that were read.
    tail: u64,
}

impl Cursor {
    /// Returns the number of bytes that were read.
    pub const fn tail(&self) -> u64 {
        self.tail
    }

    /// Whether the session has a chunk.
    pub const fn has_chunk(&self) -> bool {
        self.chunk.is_some()
    }

    /// Returns the next piece below `head`, and moves behind it; `None` if all is read. Pieces are never
    /// empty, so that a walk ends. A chunk is released when its successor is reached.
    pub fn next(
        &mut self,
        pool: &Pool<'_>,
        first: &Link,
        chunk_bytes: u64,
        head: u64,
        owners: &mut impl Owners,
    ) -> Result<Option<Piece>, Invalid> {
        if head < self.tail || !head.is_multiple_of(UNIT_BYTES as u64) {
            return Err(Invalid);
        }
        while self.tail < head {
            let Some(chunk) = self.chunk else {
                match first.get() {
                    Some((Next::Chunk(chunk), position)) if position == self.tail && owners.claim(chunk) => {
                        (self.chunk, self.start) = (Some(chunk), position);
                        // The thread may close its chunk, and then link to another one here.
                        first.clear();
                    }
                    _ => return Err(Invalid),
                }
                continue;
            };
            let link = pool.links.get(chunk as usize).ok_or(Invalid)?.get();
            let end = link.map_or(u64::MAX, |(_, end)| end);
            if end <= self.start
                || end < self.tail
                || !(end == u64::MAX || end.is_multiple_of(UNIT_BYTES as u64))
            {
                return Err(Invalid);
            }
            let to = end.min(head);
            if to - self.start > chunk_bytes {
                return Err(Invalid);
            }
            if to > self.tail {
                let piece = Piece { chunk, offset: self.tail - self.start, bytes: to - self.tail };
                self.tail = to;
                return Ok(Some(piece));
            }
            // The end of the chunk is reached.
            self.close(owners);
            if let Some((Next::Chunk(next), _)) = link {
                if !owners.claim(next) {
                    return Err(Invalid);
                }
                (self.chunk, self.start) = (Some(next), self.tail);
            }
        }
        // A finished chunk is free at once, because its thread may wait for one.
        if let Some(chunk) = self.chunk
            && pool.links.get(chunk as usize).and_then(Link::get) == Some((Next::Closed, self.tail))
        {
            self.close(owners);
        }
        Ok(None)
    }

    /// Moves back to before the last `bytes` of the last piece.
    pub const fn unread(&mut self, bytes: u64) {
        self.tail -= bytes;
    }

    /// Releases the chunk. When klock takes the chunk of an idle thread, the position is the end of what the
    /// thread wrote there: by now, the thread may write to its next chunk.
    pub fn close(&mut self, owners: &mut impl Owners) {
        if let Some(chunk) = self.chunk.take() {
            owners.release(chunk);
        }
    }
}

#[cfg(test)]
mod tests;
