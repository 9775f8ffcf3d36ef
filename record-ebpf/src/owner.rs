//! The owner of a kernel lock, from its owner word: mutexes, rwsems held for writing, rtmutexes. Read at the
//! first failed attempt, so that it is the owner that blocked the waiter. The low bits are flags
//! (`kernel/locking/{mutex,rwsem,rtmutex_common}.h`).

use aya_ebpf::helpers::bpf_probe_read_kernel;
use trace_format::{
    kernel_functions::{kind, kinds},
    wire::{WireEvent, flag},
};

use crate::{
    config::{self, ABSENT},
    memory::task_field,
};

/// Flags of a mutex's owner: waiters, hand-off, pick-up (4.10).
const MUTEX_FLAGS: u64 = 7;
/// Flags of an rwsem's owner: owned by readers, no spinning, and up to 5.10 a third one.
const RWSEM_FLAGS: u64 = 7;
/// Owned by readers. The owner is the last reader, which may have released the lock long ago.
const RWSEM_READERS: u64 = 1;
/// Flag of an rtmutex's owner: waiters.
const RTMUTEX_FLAGS: u64 = 1;

/// Stores the owner of the lock in the event, if the lock has an owner word.
#[inline(always)]
pub(crate) fn describe(lock: u64, flags: u8, event: &mut WireEvent) {
    let (offset, low, unowned) = match kind(flags) {
        kinds::MUTEX => (config::mutex_owner_offset(), MUTEX_FLAGS, 0),
        kinds::RWSEM => (config::rwsem_owner_offset(), RWSEM_FLAGS, RWSEM_READERS),
        kinds::RTMUTEX => (config::rtmutex_owner_offset(), RTMUTEX_FLAGS, 0),
        _ => return,
    };
    if offset == ABSENT {
        return;
    }
    // SAFETY: the helper checks the address.
    let Ok(word) = (unsafe { bpf_probe_read_kernel((lock + u64::from(offset)) as *const u64) }) else {
        return;
    };
    let task = word & !low;
    if task == 0 || word & unowned != 0 {
        return;
    }
    if let (Some(tgid), Some(tid)) =
        (task_field(task, config::task_tgid_offset()), task_field(task, config::task_pid_offset()))
    {
        event.flags |= flag::OWNER;
        event.peer_tgid = tgid;
        event.peer_tid = tid;
    }
}
