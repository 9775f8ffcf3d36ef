//! The layout of a region: a [`Region`], followed by [`SLOTS`] [`Slot`]s, the tables of the pool, and the
//! chunks.

use core::sync::atomic::{AtomicU32, AtomicU64};

use super::queue::{Link, Queue};

/// The first word of a region and of a request: `klockPR6`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"klockPR6");
/// Maximum number of threads that a process records at once. A power of two.
pub const SLOTS: usize = 16_384;
/// Maximum number of chunks. A power of two.
pub const MAX_CHUNKS: usize = 32_768;
/// Size of the smallest chunk. Every record fits.
pub const MIN_CHUNK_BYTES: u64 = 2048;
/// Offset of the first slot in the region.
pub const SLOTS_OFFSET: usize = 4096;
/// Offset of the entries of the queue of free slots.
pub(super) const FREE_SLOTS_OFFSET: usize = SLOTS_OFFSET + SLOTS * size_of::<Slot>();
/// Offset of the entries of the queue of used chunks that are free.
pub(super) const FREE_CHUNKS_OFFSET: usize = FREE_SLOTS_OFFSET + SLOTS * size_of::<u32>();
/// Offset of the entries of the queue of chunks that were never used.
pub(super) const FRESH_CHUNKS_OFFSET: usize = FREE_CHUNKS_OFFSET + MAX_CHUNKS * size_of::<u32>();
/// Offset of the links behind the chunks.
pub(super) const LINKS_OFFSET: usize = FRESH_CHUNKS_OFFSET + MAX_CHUNKS * size_of::<u32>();
/// Offset of the first chunk in the region.
pub const CHUNKS_OFFSET: usize = LINKS_OFFSET + MAX_CHUNKS * size_of::<Link>();
/// Size of a unit. Records consist of units.
pub const UNIT_BYTES: usize = 16;

/// The head of a region. klock sets all fields before it sends the region.
#[repr(C)]
#[derive(Debug)]
pub struct Region {
    /// [`MAGIC`].
    pub magic: u64,
    /// Size of the region in bytes.
    pub bytes: u64,
    /// Size of a chunk in bytes, a power of two.
    pub chunk_bytes: u64,
    /// Number of chunks.
    pub chunks: u32,
    /// Maximum number of frames per stack.
    pub max_frames: u32,
    /// The clock of the records, one of [`clock`](super::clock).
    pub clock: u32,
    /// Whether a thread that finds no chunk waits for klock (1) or counts the lost record and continues (0).
    pub lossless: u32,
    /// One of [`active`].
    pub active: AtomicU32,
    /// Number of slots that were ever used; klock reads these.
    pub used_slots: AtomicU32,
    /// Number of programs that the process has started, and of its children that wanted a region and got
    /// none. A program that records itself asks for a region.
    pub programs: AtomicU32,
    /// 1 once the process has restricted itself so that it cannot read the clock; it clears `active` then.
    pub clockless: AtomicU32,
    /// A call that does not wait is recorded if a random number of 32 bits is below; 0 if all are.
    pub sample_below: u32,
    /// 1 if calls on spinlocks are not recorded.
    pub no_spin: u32,
    /// Of `programs`, those that cannot record themselves, by reason.
    pub unrecorded: [AtomicU32; Unrecorded::ALL.len()],
    /// Number of events of unrecorded threads, and of those that a restriction of the process keeps from
    /// recording.
    pub unrecorded_events: AtomicU64,
    /// Slots that were used and are free.
    pub free_slots: Queue,
    /// Chunks that were used and are free.
    pub free_chunks: Queue,
    /// Chunks that were never used.
    pub fresh_chunks: Queue,
    /// If a lossless thread waited in vain: 1 more than the number of chunks that klock had put into the pool
    /// by then. Until it grows, no thread waits. Written by the process.
    pub stalled_at: AtomicU64,
}

/// Why a program does not record itself, as far as the process sees that starts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unrecorded {
    /// Its environment does not name the library.
    Cleared,
    /// It does not see the library's file, in another root or mount namespace.
    Elsewhere,
    /// It has no loader.
    Static,
    /// It is for another machine: of 32 bits.
    OtherMachine,
    /// It gets rights that its caller does not have.
    GainsRights,
}

impl Unrecorded {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::Cleared, Self::Elsewhere, Self::Static, Self::OtherMachine, Self::GainsRights];
}

/// Whether a process records.
pub mod active {
    /// The recording has ended: calls are only forwarded from now on.
    pub const ENDED: u32 = 0;
    /// Calls are recorded.
    pub const RECORDING: u32 = 1;
    /// Calls are not recorded for a while; children still ask for regions.
    pub const PAUSED: u32 = 2;
}

/// States of a slot.
pub mod state {
    /// Unowned.
    pub const FREE: u32 = 0;
    /// A thread is setting it up.
    pub const CLAIMED: u32 = 1;
    /// A thread records.
    pub const LIVE: u32 = 2;
    /// Its thread exited. klock reads the rest of its records and frees the slot.
    pub const EXITED: u32 = 3;
}

/// A thread's slot: its identity and the position of its records. To start a session, a thread claims a
/// [`state::FREE`] slot, sets `head`, `lost` and `busy` to 0, `limit` to
/// [`NO_CHUNK`](super::queue::limit::NO_CHUNK), removes the link, increments `session`, and sets
/// [`state::LIVE`] last. Two cache lines: one that changes rarely, and the thread's.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Slot {
    /// One of [`state`].
    pub state: AtomicU32,
    /// The thread id in its own PID namespace.
    pub tid: u32,
    /// The first chunk of the session, and each chunk after a closed one or one that klock took away. klock
    /// removes the link when it has followed it.
    pub first: Link,
    /// Start of the session, CLOCK_MONOTONIC in ns.
    pub start_ns: u64,
    /// Exit of the thread, CLOCK_MONOTONIC in ns; 0 before.
    pub exit_ns: u64,
    /// The thread's name, padded with zeros. Written at its first call, when it is renamed, and at its exit.
    pub comm: [u8; 16],
    /// Number of sessions of the slot. Identifies a session together with the slot's index.
    pub session: u64,
    /// Written by the thread: number of bytes written in this session. Records below are complete.
    pub head: AtomicU64,
    /// Written by the thread: 1 from before it reads the clock for a record until the record is published.
    /// While it is 0, no record older than now can follow. It is an ordinary store, which klock may see some
    /// hundred nanoseconds late, so klock allows a millisecond.
    pub busy: AtomicU32,
    /// Zero.
    pub padding: u32,
    /// Written by the thread: number of records lost in this session because the pool was empty, or because a
    /// signal handler locked while a record was being written. Each loss that a later record follows is
    /// reported by an [`op::LOST`](super::op::LOST).
    pub lost: AtomicU64,
    /// Written by the thread: the part of `lost` that a signal handler lost.
    pub nested: AtomicU64,
    /// The end of the current chunk as a number of bytes of this session, or one of
    /// [`limit`](super::queue::limit). Records up to the limit may be written.
    pub limit: AtomicU64,
    /// Zero.
    pub reserved: [u64; 3],
}
