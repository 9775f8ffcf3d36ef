//! The kind and the mode of a kernel lock, from the flags of `contention_begin`.

use trace_format::{
    LockKind, Mode,
    kernel_functions::{self, kinds, lcb},
};

/// The kind of lock that the flags mean and the mode in which it is wanted, as `perf lock contention` reads them.
pub(crate) fn kind_of(flags: u8) -> (LockKind, Mode) {
    let mode = if flags & lcb::READ != 0 { Mode::Shared } else { Mode::Exclusive };
    let kind = match kernel_functions::kind(flags) {
        kinds::MUTEX => LockKind::Mutex,
        kinds::RTMUTEX => LockKind::RtMutex,
        kinds::RWSEM => LockKind::RwSem,
        kinds::PERCPU_RWSEM => LockKind::PercpuRwSem,
        kinds::SPINLOCK => LockKind::SpinLock,
        kinds::RWLOCK => LockKind::RwLock,
        _ => LockKind::Semaphore,
    };
    (kind, mode)
}
