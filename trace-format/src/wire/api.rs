//! Identifies the C library function of a record from [`CALL`](super::code::CALL) to
//! [`DESTROY`](super::code::DESTROY), [`POST`](super::code::POST) or [`TAKEN`](super::code::TAKEN): the
//! object that the function works on and, for functions that acquire or wait, the variant. C11 functions call
//! these.

pub use crate::preload::api::{
    BARRIER, CONDITION, MUTEX, RWLOCK, RWLOCK_READ, RWLOCK_WRITE, SEMAPHORE, SPIN, THREAD,
};

/// A spinlock, by a function that both initializes and unlocks: glibc has one for both on x86.
pub const SPIN_UNLOCK_OR_INIT: u8 = 9;
/// A mutex of Rust's standard library, by the function that waits for it.
pub const RUST_MUTEX: u8 = 10;
/// A reader-writer lock of Rust's standard library, by the function in which a reader waits for it.
pub const RUST_RWLOCK_READ: u8 = 11;
/// As [`RUST_RWLOCK_READ`], for a writer.
pub const RUST_RWLOCK_WRITE: u8 = 12;
/// A mutex of Go. `extra` is the goroutine: the address of its `runtime.g`.
pub const GO_MUTEX: u8 = 13;
/// The last object.
pub const LAST: u8 = GO_MUTEX;

/// The function acquires nothing.
pub const NONE: u8 = 0;
/// Waits without limit: `_lock`, `_wait`.
pub const BLOCKING: u8 = 1;
/// Does not wait: `_try`.
pub const TRY: u8 = 2;
/// Waits until a time of the lock's clock: `_timed`.
pub const TIMED: u8 = 3;
/// Waits until a time of a clock that the caller names: `_clock`.
pub const CLOCK: u8 = 4;
/// Waits without limit; reported after the first attempt failed, and possibly again after further ones.
pub const RETRY: u8 = 5;

/// Packs both into a byte.
pub const fn pack(object: u8, variant: u8) -> u8 {
    object << 4 | variant
}

/// Returns the object.
pub const fn object(api: u8) -> u8 {
    api >> 4
}

/// Returns the variant.
pub const fn variant(api: u8) -> u8 {
    api & 15
}

/// Whether the value is valid.
pub const fn is_known(api: u8) -> bool {
    object(api) >= MUTEX && object(api) <= LAST && variant(api) <= RETRY
}
