//! What the in-process recorder and klock share: the layout of the memory between them, and the records in it. One definition
//! for both sides; plain integers, no dependency, no std.
//!
//! A recorded process has one region of shared memory, which klock makes and sends it through a socket. It begins with a
//! [`Region`], then [`SLOTS`] times a [`Slot`], then rings. A thread owns one slot and one ring while it lives: it alone writes
//! records there, klock alone reads them. A record is a [`Record`], 16 bytes, and behind it as many [`Rest`]s as its
//! [`op`] says, all in the same ring without a gap, except that the ring may wrap between any two 16-byte units.
//!
//! Unlike the kernel side's records, most of these are facts already: the recorder in the process tries first, so that it
//! knows whether a lock was free.

/// The first word of a region: `klockPR1`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"klockPR1");
/// The environment variable that tells a process where to ask for its region: the name of an abstract socket.
pub const SOCKET_VARIABLE: &str = "KLOCK_PRELOAD";
/// Threads that a process can record at once.
pub const SLOTS: usize = 4096;
/// Bytes from the region's begin to the first slot.
pub const SLOTS_AT: usize = 4096;
/// Bytes from the region's begin to the first ring.
pub const RINGS_AT: usize = SLOTS_AT + SLOTS * size_of::<Slot>();
/// The unit of a ring: a record is one or more of them.
pub const UNIT: usize = 16;
/// The most frames that a stack has here.
pub const MAX_FRAMES: usize = 127;

/// What a process sends when it asks for its region; klock answers with one byte and, beside it, the region's descriptor.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// [`MAGIC`]: both sides are of the same build.
    pub magic: u64,
    /// The process, as it sees itself. klock takes the socket's credentials instead where they differ (PID namespaces).
    pub pid: u32,
    /// Why it asks: one of [`why`].
    pub why: u32,
    /// CLOCK_MONOTONIC, in ns.
    pub ts_ns: u64,
}

/// Why a process asks for a region.
pub mod why {
    /// It runs a new program.
    pub const EXEC: u32 = 1;
    /// It is a child that goes on with its parent's program; asked for at its first call.
    pub const FORK: u32 = 2;
}

/// The head of a region. All fields but the last three are set by klock before the region is sent.
#[repr(C)]
#[derive(Debug)]
pub struct Region {
    /// [`MAGIC`].
    pub magic: u64,
    /// Bytes of the whole region.
    pub bytes: u64,
    /// Bytes of a thread's ring, a power of two: that of the first threads; halved for later ones as the region fills, down to
    /// `least_ring_bytes`.
    pub ring_bytes: u64,
    /// The smallest ring, a power of two.
    pub least_ring_bytes: u64,
    /// Frames of a stack at most.
    pub max_frames: u32,
    /// One of [`clock`]: what the times of the records are.
    pub clock: u32,
    /// A thread whose ring is full waits for klock (1) or counts and goes on (0).
    pub lossless: u32,
    /// Atomic. 1 while calls are recorded; klock clears it when the recording ends, and calls are only forwarded from then on.
    pub active: u32,
    /// Atomic. Bytes taken from the region so far, by rings; begins at [`RINGS_AT`].
    pub taken: u64,
    /// Atomic. Slots that were ever used: klock looks at these.
    pub slots: u32,
    /// Atomic. Threads that found no slot or no room for a ring, and are not recorded.
    pub unplaced: u32,
    /// Atomic. Events of threads that found no place.
    pub unplaced_events: u64,
}

/// What a record's time is.
pub mod clock {
    /// CLOCK_MONOTONIC in nanoseconds, modulo 2^48.
    pub const MONOTONIC: u32 = 0;
    /// The processor's time-stamp counter, modulo 2^48; klock knows how it runs against CLOCK_MONOTONIC.
    pub const TSC: u32 = 1;
}

/// Where a slot is in its life.
pub mod state {
    /// Nobody's; it has no ring yet, or one that klock has emptied.
    pub const FREE: u32 = 0;
    /// A thread is taking it.
    pub const TAKEN: u32 = 1;
    /// A thread writes to its ring.
    pub const LIVE: u32 = 2;
    /// Its thread ended; klock empties the ring and sets it free.
    pub const ENDED: u32 = 3;
}

/// A thread's slot: who it is, and its ring. A thread that takes one finds it [`state::FREE`], gives it a ring if it has none, sets
/// `head`, `tail`, `lost` and `busy` to 0, counts `life` up, and makes it [`state::LIVE`] last. Three cache lines: one that seldom changes, the thread's and klock's.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Slot {
    /// Atomic, one of [`state`].
    pub state: u32,
    /// The thread, as its process sees it.
    pub tid: u32,
    /// Where its ring begins, in bytes from the region's begin.
    pub ring_at: u64,
    /// Its bytes, a power of two; 0 if the slot never had one.
    pub ring_bytes: u64,
    /// CLOCK_MONOTONIC, in ns: when the thread took the slot.
    pub begun_ns: u64,
    /// CLOCK_MONOTONIC, in ns: when it ended; 0 before.
    pub ended_ns: u64,
    /// The thread's name, padded with zeros; written at its first call, when it is renamed, and at its end.
    pub comm: [u8; 16],
    /// How often the slot was taken: with the slot's place, the name of one life.
    pub life: u64,
    /// Atomic, written by the thread: bytes that it has written since the slot's life began. A record is complete below.
    pub head: u64,
    /// Atomic, written by the thread: 1 from before it reads the clock for a record until the record is published. While it is
    /// 0, no record older than now can come. An ordinary store, which klock may see some hundred nanoseconds late: it allows
    /// a millisecond.
    pub busy: u32,
    /// Zero.
    pub padding: u32,
    /// Atomic, written by the thread: records that found no room, or came in the middle of another one (a signal handler that
    /// locks), in this life. An [`op::LOST`] says them in their place, but for those at the end.
    pub lost: u64,
    /// Zero.
    pub thread_reserved: [u64; 5],
    /// Atomic, written by klock: bytes that it has read in this life.
    pub tail: u64,
    /// Zero.
    pub klock_reserved: [u64; 7],
}

/// One record, or the first unit of one.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Bits 0 to 47: the time ([`clock`]). Bits 48 to 55: one of [`op`]. Bits 56 to 63: one of [`api`](crate::preload::api).
    pub head: u64,
    /// Bits 0 to 47: the lock's address. Bits 48 to 63: the stack, 0 is none: the place of an [`op::STACK`] in this life of
    /// the slot, counted from 1.
    pub body: u64,
}

/// Further units of a record; what they are is said with each [`op`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    /// The first half.
    pub first: u64,
    /// The second half.
    pub second: u64,
}

/// How many bits the time and an address have in a record.
pub const LOW_BITS: u32 = 48;
/// The time, or the address, of a record's word.
pub const LOW: u64 = (1 << LOW_BITS) - 1;

impl Record {
    /// A record of these parts.
    #[inline(always)]
    pub const fn new(time: u64, op: u8, api: u8, address: u64, stack: u16) -> Self {
        Self {
            head: time & LOW | (op as u64) << LOW_BITS | (api as u64) << (LOW_BITS + 8),
            body: address & LOW | (stack as u64) << LOW_BITS,
        }
    }

    /// The time, modulo 2^48.
    pub const fn time(&self) -> u64 {
        self.head & LOW
    }

    /// One of [`op`], unless the memory was overwritten.
    pub const fn op(&self) -> u8 {
        (self.head >> LOW_BITS) as u8
    }

    /// One of [`api`](crate::preload::api), unless the memory was overwritten.
    pub const fn api(&self) -> u8 {
        (self.head >> (LOW_BITS + 8)) as u8
    }

    /// The lock's address.
    pub const fn address(&self) -> u64 {
        self.body & LOW
    }

    /// The stack's number, 0 is none.
    pub const fn stack(&self) -> u16 {
        (self.body >> LOW_BITS) as u16
    }
}

/// What happened. Errors are positive errno values, 0 is none.
pub mod op {
    /// The call has the lock, which was free: no wait. No further unit. Of a semaphore: it was decremented at once. Never
    /// earlier than the [`RELEASED`] that let it in.
    pub const ACQUIRED: u8 = 1;
    /// The first attempt failed and the call waits from now on. One unit: `first` is the owner's TID as the lock names it, 0 if
    /// it names none. Until the [`WAITED`] or [`FAILED`] that ends it, records of the same thread are those of a signal handler.
    /// Of a barrier: every call waits.
    pub const WAIT: u8 = 2;
    /// The wait ended with the lock. No further unit.
    pub const WAITED: u8 = 3;
    /// The call ended without the lock. One unit: `first` is the errno. After a [`WAIT`], otherwise an immediate refusal; of a
    /// call that only tries, `EBUSY` (a semaphore: `EAGAIN`). `ECANCELED` if the thread was cancelled in a wait for a semaphore.
    /// Of a condition variable, with its own address: a wait that was refused because the thread has not got the mutex.
    pub const FAILED: u8 = 4;
    /// The lock was given back; the time is from before it was free. No further unit. Recorded only if the call succeeded.
    pub const RELEASED: u8 = 5;
    /// The lock was initialised. No further unit.
    pub const INIT: u8 = 6;
    /// The lock was destroyed. No further unit.
    pub const DESTROY: u8 = 7;
    /// A wait on a condition variable begins: the mutex, `address`, is given back. One unit: `first` is the condition variable's
    /// address. The kind of lock is [`CONDITION`](super::api::CONDITION), here and of [`CONDITION_DONE`].
    pub const CONDITION: u8 = 8;
    /// That wait ended, and the mutex, `address`, is held again. One unit: `first` is the condition variable's address, `second`
    /// the errno: `ECANCELED` if the thread was cancelled. After `EPERM` and `ENOTRECOVERABLE` the mutex is not held.
    pub const CONDITION_DONE: u8 = 9;
    /// [`ACQUIRED`], of a robust mutex whose owner died (`EOWNERDEAD`). No further unit.
    pub const ACQUIRED_DEAD: u8 = 10;
    /// [`WAITED`], of a robust mutex whose owner died (`EOWNERDEAD`). No further unit.
    pub const WAITED_DEAD: u8 = 11;
    /// A semaphore was posted. No further unit.
    pub const POSTED: u8 = 12;

    /// The frames of a stack that later records of this life name. The first one is number 1, and so on. `address` is how many
    /// frames there are, of 1 to [`MAX_FRAMES`](super::MAX_FRAMES); as many units as they fill, two frames each, leaf first: the
    /// first frame is the return address of the call, in the code that called. Its time is that of the record behind it, or a
    /// little earlier.
    pub const STACK: u8 = 32;
    /// Records found no room before this one. `address` is how many. No further unit.
    pub const LOST: u8 = 33;
    /// The thread has another name. One unit: its 16 bytes.
    pub const RENAMED: u8 = 34;
}

/// The kind and the use of the lock that a record is about.
pub mod api {
    /// A `pthread_mutex_t` or `mtx_t`.
    pub const MUTEX: u8 = 1;
    /// A `pthread_rwlock_t`, for reading.
    pub const RWLOCK_READ: u8 = 2;
    /// A `pthread_rwlock_t`, for writing.
    pub const RWLOCK_WRITE: u8 = 3;
    /// A `pthread_rwlock_t`, where reading or writing is not known or means nothing: unlock, init, destroy.
    pub const RWLOCK: u8 = 4;
    /// A `pthread_spinlock_t`.
    pub const SPIN: u8 = 5;
    /// A `pthread_cond_t` or `cnd_t`; of its waits see [`op::CONDITION`](super::op::CONDITION).
    pub const CONDITION: u8 = 6;
    /// A `pthread_barrier_t`: its waits are [`op::WAIT`](super::op::WAIT) and [`op::WAITED`](super::op::WAITED).
    pub const BARRIER: u8 = 7;
    /// A `sem_t`.
    pub const SEMAPHORE: u8 = 8;
}

/// Units behind a record of this kind; `None` if it is unknown.
pub const fn units_behind(record: &Record) -> Option<usize> {
    match record.op() {
        op::ACQUIRED
        | op::WAITED
        | op::RELEASED
        | op::INIT
        | op::DESTROY
        | op::ACQUIRED_DEAD
        | op::WAITED_DEAD => Some(0),
        op::POSTED | op::LOST => Some(0),
        op::WAIT | op::FAILED | op::CONDITION | op::CONDITION_DONE | op::RENAMED => Some(1),
        op::STACK if record.address() >= 1 && record.address() <= MAX_FRAMES as u64 => {
            Some((record.address() as usize).div_ceil(2))
        }
        _ => None,
    }
}

const _: () = {
    assert!(size_of::<Record>() == UNIT && size_of::<Rest>() == UNIT);
    assert!(size_of::<Slot>() == 192);
    assert!(size_of::<Region>() <= SLOTS_AT);
};
