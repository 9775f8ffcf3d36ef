//! A region in private memory and a thread that writes into it, with a reader that follows the links of its
//! chunks.

use core::{
    alloc::Layout,
    sync::atomic::{AtomicU64, Ordering},
};
use std::{
    alloc::{alloc_zeroed, dealloc},
    collections::HashSet,
    vec,
    vec::Vec,
};

use trace_format::preload::{CHUNKS_OFFSET, LOW_MASK, MIN_CHUNK_BYTES, payload_units, pool::Cursor, state};

use super::{super::*, chunks::Chunks};
use crate::slot::{self, Facts};

/// A region in private memory.
pub(super) struct Memory {
    pub(super) region: *mut Region,
    pub(super) layout: Layout,
}

impl Memory {
    pub(super) fn new(chunks: u32) -> Self {
        let bytes = CHUNKS_OFFSET + chunks as usize * MIN_CHUNK_BYTES as usize;
        let layout = Layout::from_size_align(bytes, 4096).expect("a valid layout");
        // SAFETY: zeros are a valid region.
        unsafe {
            let region = alloc_zeroed(layout).cast::<Region>();
            assert!(!region.is_null());
            (*region).chunk_bytes = MIN_CHUNK_BYTES;
            (*region).chunks = chunks;
            (*region).fresh_chunks.filled = u64::from(chunks).into();
            Self { region, layout }
        }
    }

    pub(super) fn pool(&self) -> Pool<'_> {
        // SAFETY: the memory lives as long as `self`.
        unsafe { Pool::new(self.region, (*self.region).chunks) }
    }

    /// Reads a word of a chunk.
    pub(super) fn word(&self, chunk: u32, offset: u64) -> u64 {
        let at = (chunk_offset(chunk, MIN_CHUNK_BYTES) + offset) as usize;
        // SAFETY: inside the region.
        unsafe { self.region.cast::<u8>().add(at).cast::<u64>().read() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`.
        unsafe { dealloc(self.region.cast(), self.layout) };
    }
}

/// A thread, and klock's knowledge of it.
pub(super) struct Session {
    pub(super) writer: Writer,
    pub(super) cursor: Cursor,
    pub(super) revoked: bool,
    /// Records that were tried, and those that were read.
    pub(super) tried: u64,
    /// Records that nothing was tried for after, because a handler interrupted the thread.
    pub(super) read: Vec<u64>,
    pub(super) reported: u64,
    pub(super) reported_nested: u64,
}

impl Session {
    pub(super) fn start(memory: &Memory) -> Self {
        let facts = Facts { tid: 1, comm: [0; 16], now_ns: 1 };
        // SAFETY: the memory is there.
        let writer = unsafe {
            let slot = slot::claim(memory.region).expect("a slot");
            slot::start_session(slot, &facts);
            let shape = Shape { chunks: (*memory.region).chunks, chunk_bytes: (*memory.region).chunk_bytes };
            Writer::new(memory.region, shape, slot)
        };
        let cursor = Cursor::default();
        Self { writer, cursor, revoked: false, tried: 0, read: vec![], reported: 0, reported_nested: 0 }
    }

    pub(super) fn slot(&self) -> &Slot {
        // SAFETY: the memory is there.
        unsafe { &*self.writer.slot() }
    }

    pub(super) fn limit(&self) -> &AtomicU64 {
        // SAFETY: the memory is there.
        unsafe { self.writer.limit() }
    }

    pub(super) fn put(&mut self) {
        // SAFETY: the memory is there.
        unsafe {
            self.writer.set_busy();
            self.writer.put(Record::new(self.tried, op::ACQUIRED, 1, 0x1000, 0));
            self.writer.set_idle();
        }
        self.tried += 1;
    }

    pub(super) fn put_with_payload(&mut self) {
        let record = Record::new(self.tried, op::WAIT, 1, 0x1000, 0);
        // SAFETY: the memory is there.
        unsafe { self.writer.put_with_payload(record, Payload { first: 1, second: 2 }) };
        self.tried += 1;
    }

    pub(super) fn put_stack(&mut self, frames: usize) -> bool {
        let frames: Vec<usize> = (1..=frames).collect();
        // SAFETY: the memory is there.
        unsafe { self.writer.put_stack(self.tried, &frames) }
    }

    pub(super) fn lose_nested(&mut self) {
        // SAFETY: the memory is there.
        unsafe { self.writer.lose_nested() };
    }

    /// Reads everything that is published.
    pub(super) fn drain(&mut self, memory: &Memory, owned: &mut HashSet<u32>) {
        let pool = memory.pool();
        let (head, first) = (self.slot().head.load(Ordering::Relaxed), &raw const self.slot().first);
        let mut chunks = Chunks { pool, owned };
        // SAFETY: the slot lives as long as the memory.
        let first = unsafe { &*first };
        while let Some(piece) =
            self.cursor.next(&pool, first, MIN_CHUNK_BYTES, head, &mut chunks).expect("valid links")
        {
            let mut at = piece.offset;
            while at < piece.offset + piece.bytes {
                let record =
                    Record { head: memory.word(piece.chunk, at), body: memory.word(piece.chunk, at + 8) };
                match record.op() {
                    op::LOST => {
                        self.reported += record.address();
                        self.reported_nested += u64::from(record.api() == lost::NESTED) * record.address();
                    }
                    op::STACK => {}
                    _ => self.read.push(record.time()),
                }
                at += (1 + payload_units(&record).expect("a known record") as u64) * UNIT_SIZE;
            }
            assert_eq!(at, piece.offset + piece.bytes, "no record continues in another chunk");
        }
        assert_eq!(self.cursor.tail(), head);
    }

    /// A step of taking the chunk away, as klock does it for an idle thread.
    pub(super) fn take_chunk(&mut self, memory: &Memory, owned: &mut HashSet<u32>) {
        let limit = self.limit().load(Ordering::Relaxed);
        if !self.revoked {
            if self.cursor.has_chunk() && limit >= limit::REPORT {
                self.limit().store(limit::REVOKED, Ordering::Relaxed);
                self.revoked = true;
            }
            return;
        }
        self.revoked = false;
        if limit == limit::REVOKED {
            self.limit().store(limit::NO_CHUNK, Ordering::Relaxed);
            self.cursor.close(&mut Chunks { pool: memory.pool(), owned });
        }
    }

    /// Reads the rest, and checks that every record was delivered in order or lost.
    pub(super) fn end(mut self, memory: &Memory, owned: &mut HashSet<u32>) {
        self.drain(memory, owned);
        self.cursor.close(&mut Chunks { pool: memory.pool(), owned });
        let slot = self.slot();
        assert_eq!(self.read.len() as u64 + slot.lost.load(Ordering::Relaxed), self.tried);
        let unreported = self.writer.pending + self.writer.nested.load(Ordering::Relaxed);
        assert_eq!(self.reported + unreported, slot.lost.load(Ordering::Relaxed));
        assert_eq!(
            self.reported_nested + self.writer.nested.load(Ordering::Relaxed),
            slot.nested.load(Ordering::Relaxed)
        );
        assert!(self.read.windows(2).all(|two| two[0] < two[1]) && self.tried < LOW_MASK);
        // SAFETY: the slot lives as long as the memory.
        unsafe { (*self.writer.slot()).state = state::FREE.into() };
        let index = (self.writer.slot() as usize - memory.region as usize - 4096) / size_of::<Slot>();
        memory.pool().free_slots.push(index as u32);
    }
}

pub(super) fn free(memory: &Memory) -> u64 {
    memory.pool().used.len() + memory.pool().fresh.len()
}
