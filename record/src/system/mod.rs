//! The machine as every step sees it: clocks, `/proc`, mappings and control groups of processes, and the
//! priorities of klock's own threads.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) mod clocks;
pub(crate) mod control_groups;
pub(crate) mod maps;
pub(crate) mod priority;
pub(crate) mod procfs;
pub(crate) mod stuck;

/// Locks a mutex. A thread that panicked with it does not end the recording: what it guards is changed in one
/// step each.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns bytes in lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
