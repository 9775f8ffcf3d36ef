//! The shared memory between klock and the recorder library inside a process: its layout, and the records in
//! it. Plain integers, no dependencies, no std.
//!
//! Each recorded process has a region of shared memory, which klock creates and sends through a socket. The
//! region starts with a [`Region`], followed by [`SLOTS`] [`Slot`]s, the tables of the [`pool`], and the
//! chunks. A thread owns a slot from its first call to its exit, and a chunk while it has something to write:
//! only the thread writes records there, and only klock reads them. A record is a [`Record`] of 16 bytes,
//! followed by as many [`Payload`]s as its [`op`] requires. It never continues in another chunk.
//!
//! The library tries to acquire before it waits, so its records state whether a lock was free; BPF records
//! need inference for that.

// Machines of BPF programs have no such atomic operations, and the programs do not need them.
#[cfg(target_has_atomic = "32")]
mod layout;
#[cfg(target_has_atomic = "32")]
pub mod pool;
#[cfg(target_has_atomic = "32")]
pub mod queue;

#[cfg(target_has_atomic = "32")]
pub use layout::{
    CHUNKS_OFFSET, MAGIC, MAX_CHUNKS, MIN_CHUNK_BYTES, Region, SLOTS, SLOTS_OFFSET, Slot, UNIT_BYTES,
    Unrecorded, active, state,
};

/// Environment variable with the path of the socket where a process asks for its region, a colon, and the
/// recording's secret in [`SECRET_DIGITS`] hexadecimal digits. Every user can connect to the socket; only the
/// user of a process and root can read its environment.
pub const SOCKET_VARIABLE: &str = "KLOCK_PRELOAD";
/// Environment variable with the number of seccomp filters that klock itself has. A program that starts under
/// more makes no system calls for its recording.
pub const SECCOMP_VARIABLE: &str = "KLOCK_SECCOMP";
/// Size of the secret that a process must present.
pub const SECRET_BYTES: usize = 16;
/// Number of hexadecimal digits of the secret in [`SOCKET_VARIABLE`].
pub const SECRET_DIGITS: usize = 2 * SECRET_BYTES;
/// Maximum number of frames of a stack.
pub const MAX_FRAMES: usize = 127;

/// A request of a process: mostly for a region, which klock answers with one byte and the file descriptor of
/// the region.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// [`MAGIC`]: both sides are of the same build.
    pub magic: u64,
    /// The process id in its own PID namespace. klock trusts only the socket's credentials; a different value
    /// means that the thread ids of the process are ids in its namespace.
    pub pid: u32,
    /// The reason of the request, one of [`reason`].
    pub reason: u32,
    /// CLOCK_MONOTONIC, in ns.
    pub ts_ns: u64,
    /// The secret from [`SOCKET_VARIABLE`].
    pub secret: [u8; SECRET_BYTES],
    /// Maximum size of the region.
    pub max_bytes: u64,
}

/// Maximum length of the path in [`SOCKET_VARIABLE`].
pub const MAX_SOCKET_PATH: usize = 107;

/// Splits the value of [`SOCKET_VARIABLE`] into the socket's path and the secret; `None` if it is invalid.
pub fn parse_socket(value: &[u8]) -> Option<(&[u8], [u8; SECRET_BYTES])> {
    let (rest, digits) = value.split_at_checked(value.len().checked_sub(SECRET_DIGITS)?)?;
    let path =
        rest.strip_suffix(b":").filter(|path| path.starts_with(b"/") && path.len() <= MAX_SOCKET_PATH)?;
    let mut secret = [0; SECRET_BYTES];
    for (byte, pair) in secret.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some((path, secret))
}

const fn digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// Reasons of requests. All but one are for a region.
pub mod reason {
    /// The process runs a new program.
    pub const EXEC: u32 = 1;
    /// The process was forked and continues its parent's program. Requested at its first call.
    pub const FORK: u32 = 2;
    /// The process is about to exit. klock reads its mappings, and answers by closing the connection.
    pub const EXIT: u32 = 3;
}

/// Clocks of records.
pub mod clock {
    /// CLOCK_MONOTONIC in nanoseconds, modulo 2^48.
    pub const MONOTONIC: u32 = 0;
    /// The processor's time-stamp counter, modulo 2^48. klock converts it to CLOCK_MONOTONIC.
    pub const TSC: u32 = 1;
}

/// A record, or the first unit of one.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Bits 0 to 47: the time ([`clock`]). Bits 48 to 55: one of [`op`]. Bits 56 to 63: one of [`api`], and
    /// the [`call`].
    pub head: u64,
    /// Bits 0 to 47: the lock's address. Bits 48 to 63: the stack, the number of an [`op::STACK`] in this
    /// session counted from 1; 0 means that there is none.
    pub body: u64,
}

/// A further unit of a record. Each [`op`] documents its content.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// The first half.
    pub first: u64,
    /// The second half.
    pub second: u64,
}

/// Number of bits of a time or an address in a record.
pub const LOW_BITS: u32 = 48;
/// Mask of the time or the address in a word of a record.
pub const LOW_MASK: u64 = (1 << LOW_BITS) - 1;

impl Record {
    /// Packs the fields of a record.
    #[inline(always)]
    pub const fn new(time: u64, op: u8, api: u8, address: u64, stack: u16) -> Self {
        Self {
            head: time & LOW_MASK | (op as u64) << LOW_BITS | (api as u64) << (LOW_BITS + 8),
            body: address & LOW_MASK | (stack as u64) << LOW_BITS,
        }
    }

    /// Returns the time, modulo 2^48.
    pub const fn time(&self) -> u64 {
        self.head & LOW_MASK
    }

    /// Returns the [`op`]. Any value if the memory was overwritten.
    pub const fn op(&self) -> u8 {
        (self.head >> LOW_BITS) as u8
    }

    /// Returns the [`api`] without the call. Any value if the memory was overwritten.
    pub const fn api(&self) -> u8 {
        (self.head >> (LOW_BITS + 8)) as u8 & !call::MASK
    }

    /// Returns the [`call`]. Any value of [`call::MASK`] if the memory was overwritten.
    pub const fn call(&self) -> u8 {
        (self.head >> (LOW_BITS + 8)) as u8 & call::MASK
    }

    /// Returns the lock's address.
    pub const fn address(&self) -> u64 {
        self.body & LOW_MASK
    }

    /// Returns the number of the stack; 0 is no stack.
    pub const fn stack(&self) -> u16 {
        (self.body >> LOW_BITS) as u16
    }
}

/// Operations of records. Those without a stated payload have none. Errors are positive errno values; 0 is
/// success.
pub mod op {
    /// The call acquired a free lock without waiting, or decremented a semaphore. Never earlier than the
    /// [`RELEASED`] that made it possible.
    pub const ACQUIRED: u8 = 1;
    /// The first attempt failed and the call starts to wait. One payload: `first` is the owner's TID as
    /// stored in the lock, or zero. Until the [`WAITED`] or [`FAILED`] that ends the wait, other records of
    /// the thread come from signal handlers. A barrier call always waits.
    pub const WAIT: u8 = 2;
    /// The wait ended with the lock acquired.
    pub const WAITED: u8 = 3;
    /// The call ended without the lock. One payload: `first` is the errno. Ends a [`WAIT`] or stands alone;
    /// for a try-lock, `EBUSY` (semaphore: `EAGAIN`). `ECANCELED` if the thread was cancelled while it waited
    /// for a semaphore. With the address of a condition variable: a wait that failed because the thread does
    /// not hold the mutex.
    pub const FAILED: u8 = 4;
    /// The lock was released. The time is from before it was free. Recorded only if the call succeeded.
    pub const RELEASED: u8 = 5;
    /// The lock was initialized.
    pub const INIT: u8 = 6;
    /// The lock was destroyed.
    pub const DESTROY: u8 = 7;
    /// A wait on a condition variable begins and releases the mutex, `address`. One payload: `first` is the
    /// condition variable's address. The api is [`CONDITION`](super::api::CONDITION), also for
    /// [`CONDITION_WAITED`].
    pub const CONDITION_WAIT: u8 = 8;
    /// The end of that wait: the mutex, `address`, is held again. One payload: `first` is the condition
    /// variable's address, `second` the errno, `ECANCELED` if the thread was cancelled. After `EPERM` and
    /// `ENOTRECOVERABLE` the mutex is not held.
    pub const CONDITION_WAITED: u8 = 9;
    /// [`ACQUIRED`] for a robust mutex whose owner died (`EOWNERDEAD`).
    pub const ACQUIRED_OWNER_DIED: u8 = 10;
    /// [`WAITED`] for a robust mutex whose owner died (`EOWNERDEAD`).
    pub const WAITED_OWNER_DIED: u8 = 11;
    /// A semaphore was posted, a condition variable signalled, to one waiter or to all, or the thread is
    /// about to end.
    pub const POSTED: u8 = 12;

    /// The frames of a stack that later records of this session refer to. Stacks are numbered from 1.
    /// `address` is the number of frames, 1 to [`MAX_FRAMES`](super::MAX_FRAMES). The payloads hold two
    /// frames each, leaf first: the first frame is the return address of the call. The time is the next
    /// record's, or a little earlier.
    pub const STACK: u8 = 32;
    /// `address` records were lost before the next record. The api is one of [`lost`](super::lost).
    pub const LOST: u8 = 33;
    /// The thread was renamed. One payload: the 16 bytes of the name.
    pub const RENAMED: u8 = 34;
    /// The session's thread is the one at `address`, a `pthread_t`. The first record of a session, unless its
    /// thread is the first one of the process, which no thread created.
    pub const STARTED: u8 = 35;
}

/// The reasons of an [`op::LOST`].
pub mod lost {
    /// The pool had no chunk.
    pub const NO_CHUNK: u8 = 0;
    /// The call came while a record of the same thread was being written: from a signal handler.
    pub const NESTED: u8 = 1;
}

/// The kind of lock of a record, and for rwlocks the mode.
pub mod api {
    /// A `pthread_mutex_t` or `mtx_t`.
    pub const MUTEX: u8 = 1;
    /// A `pthread_rwlock_t`, for reading.
    pub const RWLOCK_READ: u8 = 2;
    /// A `pthread_rwlock_t`, for writing.
    pub const RWLOCK_WRITE: u8 = 3;
    /// A `pthread_rwlock_t` in no particular mode: unlock, init, destroy.
    pub const RWLOCK: u8 = 4;
    /// A `pthread_spinlock_t`.
    pub const SPIN: u8 = 5;
    /// A `pthread_cond_t` or `cnd_t`. For its waits see [`op::CONDITION_WAIT`](super::op::CONDITION_WAIT).
    pub const CONDITION: u8 = 6;
    /// A `pthread_barrier_t`: its waits are [`op::WAIT`](super::op::WAIT) and
    /// [`op::WAITED`](super::op::WAITED).
    pub const BARRIER: u8 = 7;
    /// A `sem_t`.
    pub const SEMAPHORE: u8 = 8;
    /// The end of a thread, at its `pthread_t`: [`op::INIT`](super::op::INIT) by its creator,
    /// [`op::POSTED`](super::op::POSTED) by the thread, and the other operations by those who join it. No
    /// probe records it.
    pub const THREAD: u8 = 14;
}

/// The kind of call, in bits of the byte of the [`api`]: none if the call waits without limit, or acquires
/// nothing. The records of a call have the same bits.
pub mod call {
    /// All bits.
    pub const MASK: u8 = 0x30;
    /// The call does not wait: `_trylock`.
    pub const TRY: u8 = 0x10;
    /// The call gives up at some time: `_timedlock`, `_clocklock`.
    pub const TIMED: u8 = 0x20;
}

/// Returns the number of payloads of a record; `None` if its op is unknown.
pub const fn payload_units(record: &Record) -> Option<usize> {
    match record.op() {
        op::ACQUIRED
        | op::WAITED
        | op::RELEASED
        | op::INIT
        | op::DESTROY
        | op::ACQUIRED_OWNER_DIED
        | op::WAITED_OWNER_DIED => Some(0),
        op::POSTED | op::LOST | op::STARTED => Some(0),
        op::WAIT | op::FAILED | op::CONDITION_WAIT | op::CONDITION_WAITED | op::RENAMED => Some(1),
        op::STACK if record.address() >= 1 && record.address() <= MAX_FRAMES as u64 => {
            Some((record.address() as usize).div_ceil(2))
        }
        _ => None,
    }
}

#[cfg(target_has_atomic = "32")]
const _: () = {
    assert!(size_of::<Record>() == UNIT_BYTES && size_of::<Payload>() == UNIT_BYTES);
    assert!(size_of::<Slot>() == 128);
    assert!(size_of::<Region>() <= SLOTS_OFFSET);
    assert!(SLOTS.is_power_of_two() && MAX_CHUNKS.is_power_of_two());
    assert!(CHUNKS_OFFSET.is_multiple_of(4096));
    // The largest record with a report of losses before it.
    assert!((1 + MAX_FRAMES.div_ceil(2) + 1) * UNIT_BYTES <= MIN_CHUNK_BYTES as usize);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_has_a_path_and_a_secret() {
        let value = b"/k/klock-1-ab:000102030405060708090a0b0c0d0eff";
        let secret = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255];
        assert_eq!(parse_socket(value), Some((&b"/k/klock-1-ab"[..], secret)));
        let invalid: [&[u8]; 7] = [
            b"",
            b"/klock-1-ab",
            b":000102030405060708090a0b0c0d0eff",
            b"klock-1-ab:000102030405060708090a0b0c0d0eff",
            b"/klock-1-ab000102030405060708090a0b0c0d0eff",
            b"/klock-1-ab:000102030405060708090a0b0c0d0eFF",
            b"/klock-1-ab:0102030405060708090a0b0c0d0eff",
        ];
        for value in invalid {
            assert_eq!(parse_socket(value), None);
        }
    }
}
