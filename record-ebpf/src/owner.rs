//! Who owns a lock, by the word in it: mutexes, writers of rwsems, rtmutexes. Read at the first failed attempt, so that the
//! owner is the one whom the waiter met. The low bits are flags (`kernel/locking/{mutex,rwsem,rtmutex_common}.h`).

use aya_ebpf::helpers::bpf_probe_read_kernel;
use trace_format::{
    kernel_functions::{kind, kinds},
    wire::{WireEvent, flag},
};

use crate::{
    config::{self, ABSENT},
    probes::field,
};

/// A mutex's owner has three flags: waiters, hand-over, picked up (4.10).
const MUTEX_FLAGS: u64 = 7;
/// An rwsem's owner has two: owned by readers, and no spinning; up to 5.10 three.
const RWSEM_FLAGS: u64 = 7;
/// Then it names the last reader, who may be gone long since.
const RWSEM_READERS: u64 = 1;
/// An rtmutex's owner has one: waiters.
const RTMUTEX_FLAGS: u64 = 1;

/// Puts the owner of the lock into the event, if the lock names one.
#[inline(always)]
pub(crate) fn name(lock: u64, flags: u8, event: &mut WireEvent) {
    let (offset, low, nobody) = match kind(flags) {
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
    if task == 0 || word & nobody != 0 {
        return;
    }
    if let (Some(tgid), Some(tid)) =
        (field(task, config::task_tgid_offset()), field(task, config::task_pid_offset()))
    {
        event.flags |= flag::OWNER;
        event.peer_tgid = tgid;
        event.peer_tid = tid;
    }
}
