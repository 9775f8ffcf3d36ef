//! The memory that a recorded process shares with klock. klock creates it, maps its head, slots and tables,
//! which are read through atomics, and reads the chunks from the file.
//!
//! Its readers get facts of slots and copied units. The process may write anything there at any time,
//! so nothing that was read is used as an offset before it was checked. The file is sealed, so it cannot
//! shrink while it is mapped. Its pages that klock reads take no memory of klock: a large region costs as
//! little as a small one.

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    ptr::{self, NonNull},
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create},
    mm::{MapFlags, ProtFlags, mmap, munmap},
};
use trace_format::preload::{
    self, CHUNKS_OFFSET, MAX_CHUNKS, MIN_CHUNK_BYTES, SLOTS, SLOTS_OFFSET, Slot, UNIT_BYTES, Unrecorded,
    active,
    pool::{Cursor, Invalid, Owners, Piece, Pool, chunk_offset},
    queue::limit,
};

use super::records::{self, Unit};
use crate::system::maps::OWN_MEMORY;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegionConfig {
    /// Bytes of all chunks; only used pages take memory.
    pub pool_bytes: u64,
    /// Bytes of a chunk, a power of two.
    pub chunk_bytes: u64,
    pub max_frames: u32,
    /// One of [`preload::clock`].
    pub clock: u32,
    /// A thread that finds no chunk waits.
    pub lossless: bool,
    pub sample_below: u32,
    pub no_spin: bool,
}

impl RegionConfig {
    /// Bytes of a pool that has room for a few threads.
    pub(crate) const MIN_POOL_BYTES: u64 = 32 * MIN_CHUNK_BYTES;
    /// Bytes of a chunk, unless the pool is very small or very large.
    const CHUNK_BYTES: u64 = 16 << 10;
    /// A pool has at least this many chunks.
    const MIN_CHUNKS: u64 = 32;

    pub(crate) fn chunk_bytes(pool_bytes: u64) -> u64 {
        let largest = 1 << (pool_bytes / Self::MIN_CHUNKS).max(MIN_CHUNK_BYTES).ilog2();
        let smallest = pool_bytes.div_ceil(MAX_CHUNKS as u64).next_power_of_two();
        Self::CHUNK_BYTES.min(largest).max(smallest)
    }

    /// Returns the configuration for a process that maps this many bytes at most; `None` if that is too
    /// little.
    pub(super) fn limited(&self, max_bytes: u64) -> Option<Self> {
        let pool_bytes = self.pool_bytes.min(max_bytes.saturating_sub(CHUNKS_OFFSET as u64));
        if pool_bytes == self.pool_bytes {
            return Some(*self);
        }
        let chunk_bytes = Self::chunk_bytes(pool_bytes);
        (pool_bytes >= Self::MIN_POOL_BYTES).then_some(Self { pool_bytes, chunk_bytes, ..*self })
    }

    fn chunks(&self) -> u32 {
        (self.pool_bytes / self.chunk_bytes).min(MAX_CHUNKS as u64) as u32
    }

    pub(super) fn bytes(&self) -> u64 {
        CHUNKS_OFFSET as u64 + self.pool_bytes
    }
}

#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    mapped: usize,
    chunks: u32,
    chunk_bytes: u64,
    file: OwnedFd,
}

/// The chunks of a region that sessions are reading, one bit each.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnedChunks(Vec<u64>);

impl OwnedChunks {
    /// Sets a bit; returns whether it was clear.
    fn insert(&mut self, chunk: u32) -> bool {
        let (word, bit) = (chunk as usize / 64, 1 << (chunk % 64));
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }

    fn remove(&mut self, chunk: u32) {
        if let Some(word) = self.0.get_mut(chunk as usize / 64) {
            *word &= !(1 << (chunk % 64));
        }
    }
}

/// The chunks of a region and their owners. Only this decides which session reads a chunk, whatever the links
/// say.
struct Chunks<'a> {
    pool: Pool<'a>,
    owned: &'a mut OwnedChunks,
}

impl Owners for Chunks<'_> {
    fn claim(&mut self, chunk: u32) -> bool {
        (chunk as usize) < self.pool.links.len() && self.owned.insert(chunk)
    }

    fn release(&mut self, chunk: u32) {
        self.owned.remove(chunk);
        self.pool.used.push(chunk);
    }
}

// SAFETY: the memory is shared with another process anyway, so it is accessed through atomics and raw copies
// only.
unsafe impl Send for Region {}

/// The contents of a slot: the thread that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotFacts {
    /// One of [`preload::state`].
    pub state: u32,
    /// The number of times that the slot was taken.
    pub session: u64,
    /// The thread, as its process sees it.
    pub tid: u32,
    /// The time at which the thread took the slot, CLOCK_MONOTONIC in ns.
    pub start_ns: u64,
    /// The time at which it exited; 0 before.
    pub exit_ns: u64,
    pub comm: [u8; 16],
    /// The thread may be writing a record that has its time already.
    pub busy: bool,
    /// Bytes written in this session.
    pub head: u64,
    /// Records that found no room in this session.
    pub lost: u64,
    /// Those of them that came while another record of the thread was being written.
    pub nested: u64,
}

/// A link or a position of a slot is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid records of a slot: expected chunks of its own")]
pub(crate) struct BadChunks;

impl From<Invalid> for BadChunks {
    fn from(Invalid: Invalid) -> Self {
        Self
    }
}

impl Region {
    /// Creates a region, and the descriptor by which the process gets it.
    pub(crate) fn create(config: &RegionConfig) -> io::Result<(Self, OwnedFd)> {
        let fd = memfd_create(OWN_MEMORY, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, config.bytes())?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let region = Self::map(fd.try_clone()?, config, CHUNKS_OFFSET)?;
        let head = region.head();
        // SAFETY: the region is ours alone until it is sent, and large enough for its head.
        unsafe {
            (*head).magic = preload::MAGIC;
            (*head).bytes = config.bytes();
            (*head).chunk_bytes = config.chunk_bytes;
            (*head).chunks = config.chunks();
            (*head).max_frames = config.max_frames;
            (*head).clock = config.clock;
            (*head).lossless = u32::from(config.lossless);
            ((*head).sample_below, (*head).no_spin) = (config.sample_below, u32::from(config.no_spin));
            (*head).active = active::RECORDING.into();
            // Its entries are zero, which are all chunks in their order.
            (*head).fresh_chunks.filled = u64::from(config.chunks()).into();
        }
        Ok((region, fd))
    }

    /// Maps the first bytes of a region.
    pub(super) fn map(file: OwnedFd, config: &RegionConfig, mapped: usize) -> io::Result<Self> {
        if mapped < CHUNKS_OFFSET || config.bytes() < mapped as u64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (chunks, chunk_bytes) = (config.chunks(), config.chunk_bytes);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, which nothing else knows.
        let base = unsafe {
            mmap(ptr::null_mut(), mapped, access, MapFlags::SHARED | MapFlags::NORESERVE, &file, 0)?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, mapped, chunks, chunk_bytes, file })
    }

    pub(super) fn head(&self) -> *mut preload::Region {
        self.base.as_ptr().cast()
    }

    pub(super) fn slot(&self, index: usize) -> *mut Slot {
        assert!(index < SLOTS, "no such slot");
        // SAFETY: a region is at least as large as its slots.
        unsafe { self.base.as_ptr().add(SLOTS_OFFSET).cast::<Slot>().add(index) }
    }

    pub(super) fn pool(&self) -> Pool<'_> {
        // SAFETY: the tables are mapped as long as the region, and are accessed atomically only.
        unsafe { Pool::new(self.head(), self.chunks) }
    }

    pub(crate) fn pool_bytes(&self) -> u64 {
        u64::from(self.chunks) * self.chunk_bytes
    }

    #[cfg(test)]
    pub(super) fn bytes_at(&self, at: usize, count: usize) -> *mut u8 {
        assert!(at <= self.mapped && count <= self.mapped - at, "outside of the mapped part");
        // SAFETY: just checked.
        unsafe { self.base.as_ptr().add(at) }
    }

    /// Stops the recording in the process.
    pub(crate) fn deactivate(&self) {
        // SAFETY: the field is aligned, lives as long as the region, and is only accessed atomically.
        unsafe { &(*self.head()).active }.store(active::ENDED, Ordering::Release);
    }

    /// Pauses or resumes the recording in the process, unless it has ended.
    pub(crate) fn pause(&self, pauses: bool) {
        let (from, to) = match pauses {
            true => (active::RECORDING, active::PAUSED),
            false => (active::PAUSED, active::RECORDING),
        };
        // SAFETY: as in `deactivate`.
        let word = unsafe { &(*self.head()).active };
        let _ = word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The number of slots that were ever used.
    pub(crate) fn used_slots(&self) -> usize {
        // SAFETY: as in `deactivate`.
        let slots = unsafe { &(*self.head()).used_slots }.load(Ordering::Acquire);
        (slots as usize).min(SLOTS)
    }

    /// The number of events of threads that found no slot.
    pub(crate) fn unrecorded_events(&self) -> u64 {
        // SAFETY: as in `deactivate`.
        unsafe { &(*self.head()).unrecorded_events }.load(Ordering::Relaxed)
    }

    /// The number of programs that the process has started, and of its children that got no region.
    pub(crate) fn programs(&self) -> u32 {
        // SAFETY: as in `deactivate`.
        unsafe { &(*self.head()).programs }.load(Ordering::Relaxed)
    }

    /// The numbers of programs that cannot record themselves, by [`Unrecorded`].
    pub(crate) fn unrecorded_programs(&self) -> [u32; Unrecorded::ALL.len()] {
        // SAFETY: as in `deactivate`.
        let counters = unsafe { &(*self.head()).unrecorded };
        counters.each_ref().map(|counter| counter.load(Ordering::Relaxed))
    }

    /// Whether the process has ended its recording because it cannot read the clock.
    pub(crate) fn is_clockless(&self) -> bool {
        // SAFETY: as in `deactivate`.
        unsafe { &(*self.head()).clockless }.load(Ordering::Relaxed) != 0
    }

    /// Reads a slot. `busy` is read before `head`: if the thread is not busy, every record at or above `head`
    /// has a time after the start of this call.
    pub(crate) fn read_slot(&self, index: usize) -> SlotFacts {
        let slot = self.slot(index);
        // SAFETY: all fields are aligned and live as long as the region. Those that change during a session
        // are read atomically, the others as volatile; any value that the process writes there is valid.
        unsafe {
            let state = (*slot).state.load(Ordering::Acquire);
            let busy = (*slot).busy.load(Ordering::Acquire);
            let head = (*slot).head.load(Ordering::Acquire);
            SlotFacts {
                state,
                busy: busy != 0,
                head,
                session: (&raw const (*slot).session).read_volatile(),
                tid: (&raw const (*slot).tid).read_volatile(),
                start_ns: (&raw const (*slot).start_ns).read_volatile(),
                exit_ns: (&raw const (*slot).exit_ns).read_volatile(),
                comm: (&raw const (*slot).comm).read_volatile(),
                lost: (*slot).lost.load(Ordering::Relaxed),
                nested: (*slot).nested.load(Ordering::Relaxed),
            }
        }
    }

    /// Appends the records from the cursor of a session to `head` to `out`, but no more than `max_units`
    /// units, and puts the chunks that were read back into the pool. Returns whether this is all.
    pub(crate) fn copy(
        &self,
        index: usize,
        cursor: &mut Cursor,
        head: u64,
        max_units: u64,
        owned: &mut OwnedChunks,
        out: &mut Vec<Unit>,
    ) -> Result<bool, BadChunks> {
        let unit = UNIT_BYTES as u64;
        if head.wrapping_sub(cursor.tail()) > self.pool_bytes() {
            return Err(BadChunks);
        }
        let pool = self.pool();
        let mut chunks = Chunks { pool, owned };
        // SAFETY: the slot lives as long as the region, and a link consists of atomics.
        let first = unsafe { &(*self.slot(index)).first };
        // No more pieces than there are chunks, so that a process that makes links while they are read does
        // not hold klock up.
        for _ in 0..=self.chunks {
            let Some(piece) = cursor.next(&pool, first, self.chunk_bytes, head, &mut chunks)? else {
                return Ok(true);
            };
            let room = max_units.saturating_sub(out.len() as u64).saturating_mul(unit);
            let start = out.len();
            let copied = Piece { bytes: piece.bytes.min(room), ..piece };
            out.reserve((copied.bytes / unit) as usize);
            self.read(&copied, out)?;
            if copied != piece {
                // No record continues in another chunk.
                out.truncate(start + records::whole(&out[start..]));
                cursor.unread(piece.bytes - (out.len() - start) as u64 * unit);
                break;
            }
        }
        Ok(false)
    }

    /// Appends a piece of a chunk to `out`, which has room for it.
    fn read(&self, piece: &Piece, out: &mut Vec<Unit>) -> Result<(), BadChunks> {
        let mut at = chunk_offset(piece.chunk, self.chunk_bytes) + piece.offset;
        let mut count = piece.bytes as usize;
        while count > 0 {
            let room = &mut out.spare_capacity_mut()[..count / UNIT_BYTES];
            // SAFETY: the room is ours and outlives the call. The thread writes elsewhere in its chunk; if it
            // does not, it spoils its own records, which are checked when they are decoded.
            let read = unsafe {
                libc::pread(self.file.as_raw_fd(), room.as_mut_ptr().cast(), count, at as libc::off_t)
            };
            // The file has this size for good, so it is read completely unless a signal interrupts.
            let read = usize::try_from(read).ok().filter(|read| *read >= UNIT_BYTES).ok_or(BadChunks)?;
            let units = read / UNIT_BYTES;
            // SAFETY: these units were just written; they consist of integers.
            unsafe { out.set_len(out.len() + units) };
            at += (units * UNIT_BYTES) as u64;
            count -= units * UNIT_BYTES;
        }
        Ok(())
    }

    fn limit(&self, index: usize) -> &AtomicU64 {
        // SAFETY: as in `deactivate`.
        unsafe { &(*self.slot(index)).limit }
    }

    /// Begins to take the chunk of an idle thread away. Returns whether it has one.
    pub(crate) fn revoke_chunk(&self, index: usize) -> bool {
        let limit = self.limit(index);
        let now = limit.load(Ordering::Relaxed);
        let (success, failure) = (Ordering::SeqCst, Ordering::Relaxed);
        now >= limit::REPORT && limit.compare_exchange(now, limit::REVOKED, success, failure).is_ok()
    }

    /// Takes the chunk of a thread that was idle, and whose records were all read, after the chunk had been
    /// revoked. Returns whether the thread has not kept it.
    pub(crate) fn take_chunk(&self, index: usize, cursor: &mut Cursor, owned: &mut OwnedChunks) -> bool {
        let (success, failure) = (Ordering::SeqCst, Ordering::Relaxed);
        let taken =
            self.limit(index).compare_exchange(limit::REVOKED, limit::NO_CHUNK, success, failure).is_ok();
        if taken {
            self.release_chunk(cursor, owned);
        }
        taken
    }

    /// Puts the last chunk of a session back into the pool.
    pub(crate) fn release_chunk(&self, cursor: &mut Cursor, owned: &mut OwnedChunks) {
        cursor.close(&mut Chunks { pool: self.pool(), owned });
    }

    /// Lets another thread take the slot.
    pub(crate) fn free_slot(&self, index: usize) {
        // SAFETY: as in `deactivate`.
        unsafe { &(*self.slot(index)).state }.store(preload::state::FREE, Ordering::Release);
        self.pool().free_slots.push(index as u32);
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it any more. It can't fail for a whole mapping.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests;
